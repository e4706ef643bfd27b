//! The statements that make the settings of one session out of those of another.

use super::{Settings, quote};

/// Who one is comes first and last: other settings are made with the rights of the login user.
const ROLE: &[u8] = b"role";
const AUTHORIZATION: &[u8] = b"session_authorization";

/// The text that gives a session with the settings `held` those of `wanted`; `None` if they are equal.
///
/// What is held but not wanted is reset. All of it is one Query, and one transaction.
#[must_use]
pub fn plan(wanted: &Settings, held: &Settings) -> Option<Vec<u8>> {
    plan_with(wanted, held, |text, _, value| {
        quote::literal_of_bytes(text, value)
    })
}

/// The same for the log: with the values of those whose names may be seen with them, and no others.
#[must_use]
pub fn shown(wanted: &Settings, held: &Settings, is_open: impl Fn(&[u8]) -> bool) -> String {
    let text = plan_with(wanted, held, |text, name, value| match is_open(name) {
        true => quote::literal_of_bytes(text, value),
        false => text.extend_from_slice(b"****"),
    });
    String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
}

/// `write_value` appends a value as a literal.
fn plan_with(
    wanted: &Settings,
    held: &Settings,
    write_value: impl Fn(&mut Vec<u8>, &[u8], &[u8]),
) -> Option<Vec<u8>> {
    if wanted.is_same(held) {
        return None;
    }
    let who = |name: &[u8]| name == ROLE || name == AUTHORIZATION;
    let differs = |name: &[u8]| wanted.get(name) != held.get(name);
    let mut text = Vec::with_capacity(128);
    // A change of who is logged in ends the role as well; what needs rights is made before a role is.
    let changes_who = differs(ROLE) || differs(AUTHORIZATION);
    let others = || {
        wanted
            .iter()
            .filter(|(name, _)| !who(name) && differs(name))
    };
    let reset = || {
        held.iter()
            .filter(|(name, _)| !who(name) && wanted.get(name).is_none())
    };
    let restores_who = changes_who || others().next().is_some() || reset().next().is_some();
    let had_who = held.get(ROLE).is_some() || held.get(AUTHORIZATION).is_some();
    if restores_who && had_who {
        text.extend_from_slice(b"RESET SESSION AUTHORIZATION;RESET ROLE;");
    }
    for (name, _) in reset() {
        text.extend_from_slice(b"RESET ");
        quote::parameter(&mut text, name);
        text.push(b';');
    }
    let sets_who = |name: &[u8]| {
        let value = wanted
            .get(name)
            .filter(|_| restores_who && (had_who || changes_who));
        value.map(|value| (name.to_vec(), value))
    };
    let before = others().map(|(name, value)| (name.to_vec(), value));
    // Who is logged in first: the role is a role of that user.
    let all = before.chain(sets_who(AUTHORIZATION)).chain(sets_who(ROLE));
    let mut is_first = true;
    for (name, value) in all {
        text.extend_from_slice(if is_first { b"SELECT " } else { b"," });
        is_first = false;
        text.extend_from_slice(b"pg_catalog.set_config(");
        quote::literal_of_bytes(&mut text, &name);
        text.push(b',');
        write_value(&mut text, &name, value);
        text.extend_from_slice(b",false)");
    }
    (!text.is_empty()).then_some(text)
}

/// The statements that take from a session whatever it may hold, prepared statements excepted.
pub const CLEAN: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;CLOSE ALL;UNLISTEN *;\
    SELECT pg_catalog.pg_advisory_unlock_all();DISCARD TEMP;DISCARD SEQUENCES";

#[cfg(test)]
mod tests {
    use super::super::SettingsTable;
    use super::*;

    fn check(wanted: &[(&str, &str)], held: &[(&str, &str)], expect: Option<&str>) {
        let table = SettingsTable::default();
        let pairs = |pairs: &[(&str, &str)]| table.intern(pairs.iter().copied());
        let found = plan(&pairs(wanted), &pairs(held));
        let found = found.map(|text| String::from_utf8(text).unwrap());
        assert_eq!(found.as_deref(), expect, "{wanted:?} from {held:?}");
    }

    #[test]
    fn plans() {
        check(&[], &[], None);
        check(&[("a", "1")], &[("a", "1")], None);
        check(
            &[("a", "1"), ("b.c", "it's")],
            &[("a", "2"), ("d.e", "3")],
            Some(
                "RESET \"d\".\"e\";SELECT pg_catalog.set_config('a','1',false),\
                 pg_catalog.set_config('b.c','it''s',false)",
            ),
        );
        check(&[], &[("a", "2")], Some("RESET \"a\";"));
    }

    #[test]
    fn the_log_shows_what_may_be_seen() {
        let table = SettingsTable::default();
        let wanted = table.intern([("app.token", "hush"), ("timezone", "UTC")]);
        let held = table.intern([("app.key", "hush")]);
        assert_eq!(
            shown(&wanted, &held, |name| name == b"timezone"),
            "RESET \"app\".\"key\";SELECT pg_catalog.set_config('app.token',****,false),\
             pg_catalog.set_config('timezone','UTC',false)"
        );
    }

    #[test]
    fn who_one_is() {
        let r = ("role", "r");
        check(
            &[r],
            &[],
            Some("SELECT pg_catalog.set_config('role','r',false)"),
        );
        check(&[], &[r], Some("RESET SESSION AUTHORIZATION;RESET ROLE;"));
        check(
            &[r, ("a", "1")],
            &[r],
            Some(
                "RESET SESSION AUTHORIZATION;RESET ROLE;\
                 SELECT pg_catalog.set_config('a','1',false),\
                 pg_catalog.set_config('role','r',false)",
            ),
        );
        check(
            &[r, ("session_authorization", "u")],
            &[("session_authorization", "v")],
            Some(
                "RESET SESSION AUTHORIZATION;RESET ROLE;\
                 SELECT pg_catalog.set_config('session_authorization','u',false),\
                 pg_catalog.set_config('role','r',false)",
            ),
        );
    }
}
