//! Lookups of users on a server: `auth_query`, and the query for a user's roles.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use pgweir_auth::userlist::Secret;
use pgweir_wire::{Body, MessageWriter};

use crate::{
    Time, Token,
    shared::auth_cache::{Answer, Topic, UserAnswer, UserQuery},
};

/// The largest number of roles of a user that are read.
const ROLES_MAX: usize = 10_000;

/// The query for the roles that a user is a member of, directly or not, and the user's own name.
const ROLES: &str = "WITH RECURSIVE member(oid) AS (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1 \
     UNION SELECT m.roleid FROM pg_catalog.pg_auth_members m JOIN member ON m.member = member.oid) \
     SELECT r.rolname FROM member JOIN pg_catalog.pg_roles r ON r.oid = member.oid";

/// The default of `auth_query`, as in PgBouncer, and the same query with the seconds until the password expires.
/// PostgreSQL can't subtract from an infinite timestamp, but can from an infinite number.
const DEFAULT: [&str; 2] = [
    "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END \
     FROM pg_authid WHERE rolname=$1 AND rolcanlogin",
    "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END, \
     extract(epoch FROM rolvaliduntil) - extract(epoch FROM now()) \
     FROM pg_authid WHERE rolname=$1 AND rolcanlogin",
];

/// A lookup that is under way.
#[derive(Debug)]
pub struct Lookup {
    /// The client that logs in.
    pub(crate) client: Token,
    /// The key of the lookup.
    pub(crate) query: UserQuery,
    /// The number of times that the cache had been cleared when the lookup began.
    pub(crate) clears: u64,
    /// When the query was sent: the server evaluates it later than that.
    asked: Time,
    secret: Option<Arc<Secret>>,
    until: Option<Time>,
    roles: BTreeSet<String>,
    failed: Option<String>,
}

impl Lookup {
    /// Creates a lookup that is sent now. `clears`: the present value of
    /// [`AuthCache::clears`](crate::shared::auth_cache::AuthCache::clears).
    #[must_use]
    pub fn new(client: Token, query: UserQuery, clears: u64, now: Time) -> Self {
        Self {
            client,
            query,
            clears,
            asked: now,
            secret: None,
            until: None,
            roles: BTreeSet::new(),
            failed: None,
        }
    }

    /// Appends the query: Parse, Bind, Execute, Close, Sync. The user's name is a parameter of the query.
    pub fn ask(&self, out: &mut Vec<u8>) {
        let text = match &self.query.topic {
            Topic::Secret(query) if **query == *DEFAULT[0] => DEFAULT[1],
            Topic::Secret(query) => query,
            Topic::Roles => ROLES,
        };
        MessageWriter::new(out).unnamed_query(text.as_bytes(), self.query.user.as_bytes());
    }

    /// Notes that the query has failed; `why` is the reason for the log.
    pub fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Takes a row.
    pub fn take(&mut self, row: &[u8]) {
        let taken = match self.query.topic {
            Topic::Secret(_) => self.take_secret(row),
            Topic::Roles => self.take_role(row),
        };
        if let Err(why) = taken {
            self.fail(why);
        }
    }

    /// Returns the result after all rows have arrived.
    ///
    /// # Errors
    /// The fault of the result, for the log.
    pub fn answer(self) -> Result<UserAnswer, String> {
        let until = self.until;
        let answer = match (self.failed, self.query.topic) {
            (Some(why), _) => return Err(why),
            (None, Topic::Roles) => Answer::Roles(Arc::new(self.roles)),
            (None, Topic::Secret(_)) => self.secret.map_or(Answer::NoUser, Answer::Secret),
        };
        Ok(UserAnswer { answer, until })
    }

    fn take_secret(&mut self, row: &[u8]) -> Result<(), String> {
        let columns = columns(row)?;
        let (name, secret, left) = match *columns.as_slice() {
            [name, secret] => (name, secret, None),
            [name, secret, left] => (name, secret, left),
            _ => {
                let count = columns.len();
                return Err(format!("expected 2 columns from auth_query, not {count}"));
            }
        };
        match name {
            None => return Err("auth_query response contained null user name".to_owned()),
            Some(name) if name != self.query.user.as_bytes() => {
                return Err("auth_query returned another user than the one that logs in".to_owned());
            }
            Some(_) => {}
        }
        let secret = std::str::from_utf8(secret.unwrap_or_default());
        let secret =
            secret.map_err(|_| "auth_query returned a secret that is not UTF-8".to_owned())?;
        let is_over = match left {
            Some(left) => !self.is_valid_for(left)?,
            None => false,
        };
        let secret = if is_over { "" } else { secret };
        self.secret = Some(Arc::new(Secret::parse(secret)));
        Ok(())
    }

    /// Takes the seconds until the password expires: `false` if it has expired.
    fn is_valid_for(&mut self, left: &[u8]) -> Result<bool, String> {
        let seconds = std::str::from_utf8(left).ok();
        let seconds = seconds.and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| !seconds.is_nan());
        let Some(seconds) = seconds else {
            return Err(
                "the third column of auth_query is the number of seconds that the secret is still valid, \
                 and must be a number or null"
                    .to_owned(),
            );
        };
        if seconds <= 0.0 {
            self.until = Some(self.asked);
            return Ok(false);
        }
        // A number that is too large means that the password does not expire.
        let left = Duration::try_from_secs_f64(seconds).ok();
        let left = left.and_then(|left| u64::try_from(left.as_micros()).ok());
        self.until = left.map(|micros| self.asked.after(micros));
        Ok(true)
    }

    fn take_role(&mut self, row: &[u8]) -> Result<(), String> {
        let columns = columns(row)?;
        if self.roles.len() >= ROLES_MAX {
            return Err(format!(
                "the user is a member of more than {ROLES_MAX} roles"
            ));
        }
        for name in columns.into_iter().flatten() {
            self.roles
                .insert(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    }
}

fn columns(row: &[u8]) -> Result<Vec<Option<&[u8]>>, String> {
    let columns = Body::new(row).columns();
    columns.map_err(|_| "the answer is malformed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(topic: Topic) -> Lookup {
        let token = Token {
            slot: 0,
            generation: 0,
        };
        let query = UserQuery {
            database: "d".into(),
            auth_user: "a".into(),
            user: "ann".into(),
            topic,
        };
        Lookup::new(token, query, 0, Time(1_000_000))
    }

    /// Checks the outcome of a lookup whose server sends these rows.
    fn check(topic: Topic, rows: &[&[Option<&str>]], expect: Result<&str, &str>) {
        let mut lookup = lookup(topic);
        for row in rows {
            let mut message = Vec::new();
            let values = row.iter().map(|value| value.map(str::as_bytes));
            MessageWriter::new(&mut message).data_row(values);
            lookup.take(&message[pgweir_wire::HEADER_LEN..]);
        }
        let answer = lookup.answer().map(|outcome| match outcome.until {
            Some(until) => format!("{:?} until {}", outcome.answer, until.0),
            None => format!("{:?}", outcome.answer),
        });
        assert_eq!(answer.as_deref().map_err(|why| &**why), expect, "{rows:?}");
    }

    #[test]
    fn answers_are_understood_or_refused() {
        let secret = || Topic::Secret("q".into());
        check(secret(), &[], Ok("no user"));
        check(secret(), &[&[Some("ann"), Some("x")]], Ok("plain"));
        check(secret(), &[&[Some("ann"), None]], Ok("none"));
        check(secret(), &[&[Some("ann"), Some("")]], Ok("none"));
        let two = "expected 2 columns from auth_query, not 1";
        check(secret(), &[&[Some("ann")]], Err(two));
        let null = "auth_query response contained null user name";
        check(secret(), &[&[None, Some("x")]], Err(null));
        let other = "auth_query returned another user than the one that logs in";
        check(secret(), &[&[Some("bob"), Some("x")]], Err(other));
        check(Topic::Roles, &[&[Some("ann")], &[Some("dba")]], Ok("roles"));
    }

    #[test]
    fn a_secret_may_have_an_end() {
        let outcome = |left: Option<&str>, expect| {
            let rows: &[&[Option<&str>]] = &[&[Some("ann"), Some("x"), left]];
            check(Topic::Secret("q".into()), rows, expect);
        };
        outcome(Some("2.5"), Ok("plain until 3500000"));
        for none in [None, Some("Infinity"), Some("1e300")] {
            outcome(none, Ok("plain"));
        }
        for over in ["0", "-0.1", "-Infinity"] {
            outcome(Some(over), Ok("none until 1000000"));
        }
        let wrong = "the third column of auth_query is the number of seconds that the secret is still valid, \
                     and must be a number or null";
        for bad in ["", "NaN", "2026-01-01 00:00:00+00"] {
            outcome(Some(bad), Err(wrong));
        }
    }

    #[test]
    fn the_default_is_asked_with_the_end() {
        let default = pgweir_config::Settings::default().auth_query;
        assert_eq!(default, DEFAULT[0]);
        let mut message = Vec::new();
        lookup(Topic::Secret(default.into())).ask(&mut message);
        assert!(String::from_utf8_lossy(&message).contains(DEFAULT[1]));
    }

    #[test]
    fn a_malformed_row_is_refused() {
        for row in [
            &b""[..],
            b"\0",
            b"\0\x01\0\0\0\x05abc",
            b"\0\x01\0\0\0\x01ab",
        ] {
            let mut lookup = lookup(Topic::Roles);
            lookup.take(row);
            assert!(lookup.answer().is_err(), "{row:?}");
        }
    }
}
