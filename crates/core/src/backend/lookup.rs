//! What a server is asked of a user, and what it answers.

use std::{collections::BTreeSet, sync::Arc};

use pgweir_auth::userlist::Secret;
use pgweir_wire::{Body, MessageWriter};

use crate::{
    Token,
    lookups::{Answer, Question, Topic},
};

/// Of the roles that a user is a member of, so many are taken at most.
const ROLES_MAX: usize = 10_000;

/// The roles that a user is a member of, however many grants lie between, and its own name.
const ROLES: &str = "WITH RECURSIVE member(oid) AS (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1 \
     UNION SELECT m.roleid FROM pg_catalog.pg_auth_members m JOIN member ON m.member = member.oid) \
     SELECT r.rolname FROM member JOIN pg_catalog.pg_roles r ON r.oid = member.oid";

/// A question under way.
#[derive(Debug)]
pub struct Lookup {
    /// The client that wants to know.
    pub client: Token,
    /// What is asked.
    pub question: Question,
    secret: Option<Arc<Secret>>,
    roles: BTreeSet<String>,
    failed: Option<String>,
}

impl Lookup {
    /// One that was not asked yet.
    #[must_use]
    pub fn new(client: Token, question: Question) -> Self {
        Self {
            client,
            question,
            secret: None,
            roles: BTreeSet::new(),
            failed: None,
        }
    }

    /// Appends the question: Parse, Bind, Execute, Close, Sync. The user's name goes as a parameter.
    pub fn ask(&self, out: &mut Vec<u8>) {
        let text = match &self.question.topic {
            Topic::Secret(query) => query,
            Topic::Roles => ROLES,
        };
        MessageWriter::new(out).unnamed_query(text.as_bytes(), self.question.user.as_bytes());
    }

    /// It has failed: what the log says of that.
    pub fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Takes a row.
    pub fn take(&mut self, row: &[u8]) {
        let taken = match self.question.topic {
            Topic::Secret(_) => self.take_secret(row),
            Topic::Roles => self.take_role(row),
        };
        if let Err(why) = taken {
            self.fail(why);
        }
    }

    /// The answer, once all rows have come.
    ///
    /// # Errors
    /// What is wrong with it, for the log.
    pub fn answer(self) -> Result<Answer, String> {
        match (self.failed, self.question.topic) {
            (Some(why), _) => Err(why),
            (None, Topic::Roles) => Ok(Answer::Roles(Arc::new(self.roles))),
            (None, Topic::Secret(_)) => Ok(self.secret.map_or(Answer::NoUser, Answer::Secret)),
        }
    }

    fn take_secret(&mut self, row: &[u8]) -> Result<(), String> {
        let columns = columns(row)?;
        let [name, secret] = columns.as_slice() else {
            let count = columns.len();
            return Err(format!("expected 2 columns from auth_query, not {count}"));
        };
        match name {
            None => return Err("auth_query response contained null user name".to_owned()),
            Some(name) if *name != self.question.user.as_bytes() => {
                return Err(
                    "auth_query has answered for another user than the one in question".to_owned(),
                );
            }
            Some(_) => {}
        }
        let secret = std::str::from_utf8(secret.unwrap_or_default());
        let secret =
            secret.map_err(|_| "auth_query has answered a secret that is not UTF-8".to_owned())?;
        self.secret = Some(Arc::new(Secret::parse(secret)));
        Ok(())
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

/// The columns of a DataRow.
fn columns(row: &[u8]) -> Result<Vec<Option<&[u8]>>, String> {
    parse(row).ok_or_else(|| "the answer is malformed".to_owned())
}

fn parse(row: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let mut body = Body::new(row);
    let &[high, low] = body.bytes(2).ok()? else {
        return None;
    };
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes([high, low]) {
        let len = body.i32().ok()?;
        columns.push(match usize::try_from(len) {
            Ok(len) => Some(body.bytes(len).ok()?),
            Err(_) => None,
        });
    }
    body.end().ok()?;
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(topic: Topic) -> Lookup {
        let token = Token {
            slot: 0,
            generation: 0,
        };
        let question = Question {
            database: "d".into(),
            auth_user: "a".into(),
            user: "ann".into(),
            topic,
        };
        Lookup::new(token, question)
    }

    /// What comes of rows that a server sends.
    fn check(topic: Topic, rows: &[&[Option<&str>]], expect: Result<&str, &str>) {
        let mut lookup = lookup(topic);
        for row in rows {
            let mut message = Vec::new();
            let values = row.iter().map(|value| value.map(str::as_bytes));
            MessageWriter::new(&mut message).data_row(values);
            lookup.take(&message[pgweir_wire::HEADER_LEN..]);
        }
        let answer = lookup.answer().map(|answer| format!("{answer:?}"));
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
        let other = "auth_query has answered for another user than the one in question";
        check(secret(), &[&[Some("bob"), Some("x")]], Err(other));
        check(Topic::Roles, &[&[Some("ann")], &[Some("dba")]], Ok("roles"));
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
