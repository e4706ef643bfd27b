//! The plan: the statements that turn the settings of one session into those of another.

use super::{Settings, quote, sql::shapes_plans};

/// The role is reset first and set last, and so is the session user: other settings are made with the rights of the
/// login user.
pub const ROLE: &[u8] = b"role";
pub(super) const AUTHORIZATION: &[u8] = b"session_authorization";

/// Ends the role of a session until the end of the transaction. The session's user stays: PostgreSQL does not promise
/// in which order it restores user and role.
pub const WITHOUT_ROLE: &[u8] = b"SELECT pg_catalog.set_config('role','none',true) IS NULL";

/// While this parameter is on, an error in a later statement would end the server connection.
pub(super) const ENDS_WITH_ERRORS: &[u8] = b"exit_on_error";

/// Returns the text that turns a session with the settings `held` into one with `wanted`; `None` if they are equal.
///
/// Settings that are held but not wanted are reset. The whole text is one Query, and one transaction.
#[must_use]
pub fn plan(wanted: &Settings, held: &Settings) -> Option<Vec<u8>> {
    plan_with(wanted, held, |text, _, value| {
        quote::literal_of_bytes(text, value)
    })
}

/// Returns the plan for the parameters that a client logs in with. Whether the client may have a role is checked anew,
/// even on a server that has the role already.
#[must_use]
pub fn login_plan(wanted: &Settings, held: &Settings) -> Option<Vec<u8>> {
    let who: Vec<_> = [AUTHORIZATION, ROLE]
        .into_iter()
        .filter_map(|name| Some((name, wanted.get(name)?)))
        .collect();
    match plan(wanted, held) {
        None if !who.is_empty() => {
            let mut text = RESET_IDENTITY.to_vec();
            sets(&mut text, &who, |text, _, value| {
                quote::literal_of_bytes(text, value)
            });
            Some(text)
        }
        text => text,
    }
}

/// Returns the plan as it is logged: only with the values of parameters for which `is_open` is true.
#[must_use]
pub fn shown(wanted: &Settings, held: &Settings, is_open: impl Fn(&[u8]) -> bool) -> String {
    let text = plan_with(wanted, held, |text, name, value| match is_open(name) {
        true => quote::literal_of_bytes(text, value),
        false => text.extend_from_slice(b"****"),
    });
    String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
}

/// The steps of a plan, in this order.
struct Difference<'s> {
    /// Whether role and session user are reset first, since other settings are made with the rights of the login user.
    resets_identity: bool,
    resets: Vec<&'s [u8]>,
    sets: Vec<(&'s [u8], &'s [u8])>,
}

impl<'s> Difference<'s> {
    fn between(wanted: &'s Settings, held: &'s Settings) -> Self {
        let differs = |name: &[u8]| wanted.get(name) != held.get(name);
        // A change of the session user ends the role, too. Settings that need rights are made before a role is set.
        let changes_identity = differs(ROLE) || differs(AUTHORIZATION);
        let others = wanted
            .iter()
            .filter(|(name, _)| !is_identity(name) && differs(name));
        let mut sets: Vec<_> = others.collect();
        // Timeouts come last, so that they do not end the plan's own statements.
        sets.sort_by_key(|(name, _)| is_timeout(name));
        let gone = held
            .iter()
            .filter(|(name, _)| !is_identity(name) && wanted.get(name).is_none());
        let mut resets: Vec<_> = gone.map(|(name, _)| name).collect();
        resets.sort_by_key(|name| !is_timeout(name));
        let restores_identity = changes_identity || !sets.is_empty() || !resets.is_empty();
        let had_identity = held.get(ROLE).is_some() || held.get(AUTHORIZATION).is_some();
        if restores_identity && (had_identity || changes_identity) {
            // The session user comes first: the role must be a role of that user.
            let identity = [AUTHORIZATION, ROLE];
            sets.extend(
                identity
                    .iter()
                    .filter_map(|&name| Some((name, wanted.get(name)?))),
            );
        }
        if let Some(at) = sets.iter().position(|(name, _)| *name == ENDS_WITH_ERRORS) {
            let last = sets.remove(at);
            sets.push(last);
        }
        Self {
            resets_identity: restores_identity && had_identity,
            resets,
            sets,
        }
    }

    /// Returns whether the plan changes a parameter on which PostgreSQL's conversion of literals to constants depends.
    fn changes_constants(&self) -> bool {
        let sets = self.sets.iter().map(|(name, _)| *name);
        let mut names = self.resets.iter().copied().chain(sets);
        names.any(shapes_plans)
    }
}

/// Returns whether the plan from `held` to `wanted` discards the plans of all statements.
#[must_use]
pub fn discards_plans(wanted: &Settings, held: &Settings) -> bool {
    !wanted.is_same(held) && Difference::between(wanted, held).changes_constants()
}

/// Builds a plan. `write_value` appends a value as a literal.
fn plan_with(
    wanted: &Settings,
    held: &Settings,
    write_value: impl Fn(&mut Vec<u8>, &[u8], &[u8]),
) -> Option<Vec<u8>> {
    if wanted.is_same(held) {
        return None;
    }
    let difference = Difference::between(wanted, held);
    let mut text = Vec::with_capacity(128);
    begin(&mut text, held);
    if difference.changes_constants() {
        // PL/pgSQL may have evaluated literals of a function body under another client's settings, and keeps the
        // result.
        text.extend_from_slice(b"DISCARD PLANS;");
    }
    if difference.resets_identity {
        text.extend_from_slice(RESET_IDENTITY);
    }
    for name in difference.resets {
        reset(&mut text, name);
    }
    sets(&mut text, &difference.sets, write_value);
    (!text.is_empty()).then_some(text)
}

/// Appends the start of a text for a session that has these settings.
fn begin(text: &mut Vec<u8>, held: &Settings) {
    if held.get(DEFERRABLE) == Some(b"on") {
        text.extend_from_slice(AT_ONCE);
    }
}

const DEFERRABLE: &[u8] = b"default_transaction_deferrable";
/// Without this statement, the previous client's settings may make the transaction wait for others before it begins.
const AT_ONCE: &[u8] = b"SET TRANSACTION NOT DEFERRABLE;";

/// The longest identifier that PostgreSQL does not cut (`NAMEDATALEN` - 1).
const IDENTIFIER_MAX: usize = 63;

const RESET_IDENTITY: &[u8] = b"RESET SESSION AUTHORIZATION;RESET ROLE;";

fn reset(text: &mut Vec<u8>, name: &[u8]) {
    let is_cut = |part: &[u8]| part.len() > IDENTIFIER_MAX;
    if name.is_ascii() && !name.split(|&byte| byte == b'.').any(is_cut) {
        text.extend_from_slice(b"RESET ");
        quote::parameter(text, name);
    } else {
        // `client_encoding` still has the previous client's value, and RESET would truncate names that `set_config`
        // does not.
        text.extend_from_slice(b"SELECT ");
        set_config(text, name, |text| text.extend_from_slice(b"NULL"));
    }
    text.push(b';');
}

/// Appends one statement that sets all of these.
fn sets(
    text: &mut Vec<u8>,
    pairs: &[(&[u8], &[u8])],
    write_value: impl Fn(&mut Vec<u8>, &[u8], &[u8]),
) {
    for (at, (name, value)) in pairs.iter().enumerate() {
        text.extend_from_slice(if at == 0 { b"SELECT " } else { b"," });
        set_config(text, name, |text| write_value(text, name, value));
    }
}

/// Returns whether the parameter sets the session's user or role.
#[must_use]
pub fn is_identity(name: &[u8]) -> bool {
    name == ROLE || name == AUTHORIZATION
}

fn is_timeout(name: &[u8]) -> bool {
    name.ends_with(b"_timeout")
}

/// Appends a call of `set_config`. Its result is not selected: `client_encoding` may not be able to represent it.
fn set_config(text: &mut Vec<u8>, name: &[u8], write_value: impl Fn(&mut Vec<u8>)) {
    text.extend_from_slice(b"pg_catalog.set_config(");
    quote::literal_of_bytes(text, name);
    text.push(b',');
    write_value(text);
    text.extend_from_slice(b",false) IS NULL");
}

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
                "RESET \"d\".\"e\";SELECT pg_catalog.set_config('a','1',false) IS NULL,\
                 pg_catalog.set_config('b.c','it''s',false) IS NULL",
            ),
        );
        check(&[], &[("a", "2")], Some("RESET \"a\";"));
        let deferrable = "default_transaction_deferrable";
        check(
            &[],
            &[(deferrable, "off")],
            Some("RESET \"default_transaction_deferrable\";"),
        );
        check(
            &[],
            &[(deferrable, "on")],
            Some("SET TRANSACTION NOT DEFERRABLE;RESET \"default_transaction_deferrable\";"),
        );
        check(
            &[],
            &[("a.\u{e4}", "2")],
            Some("SELECT pg_catalog.set_config( E'a.\\xc3\\xa4',NULL,false) IS NULL;"),
        );
    }

    #[test]
    fn names_that_postgresql_would_cut() {
        let [whole, cut] = [63, 64].map(|len| format!("app.{}", "x".repeat(len)));
        let text = |name: &str| format!("RESET \"{}\";", name.replace('.', "\".\""));
        check(&[], &[(&whole, "1")], Some(&text(&whole)));
        let text = format!("SELECT pg_catalog.set_config('{cut}',NULL,false) IS NULL;");
        check(&[], &[(&cut, "1")], Some(&text));
    }

    #[test]
    fn logins_ask_for_their_role() {
        let table = SettingsTable::default();
        let (none, role) = (Settings::default(), table.intern([("role", "r")]));
        let text =
            |wanted, held| login_plan(wanted, held).map(|text| String::from_utf8(text).unwrap());
        let set = "SELECT pg_catalog.set_config('role','r',false) IS NULL";
        let anew = format!("RESET SESSION AUTHORIZATION;RESET ROLE;{set}");
        assert_eq!(text(&role, &role), Some(anew));
        assert_eq!(text(&role, &none).as_deref(), Some(set));
        assert_eq!(text(&none, &none), None);
        let other = table.intern([("role", "s")]);
        assert_eq!(
            text(&role, &other).map(|text| text.matches("RESET ROLE").count()),
            Some(1)
        );
    }

    #[test]
    fn the_log_shows_what_may_be_seen() {
        let table = SettingsTable::default();
        let wanted = table.intern([("app.token", "hush"), ("timezone", "UTC")]);
        let held = table.intern([("app.key", "hush")]);
        assert_eq!(
            shown(&wanted, &held, |name| name == b"timezone"),
            "DISCARD PLANS;RESET \"app\".\"key\";\
             SELECT pg_catalog.set_config('app.token',****,false) IS NULL,\
             pg_catalog.set_config('timezone','UTC',false) IS NULL"
        );
    }

    #[test]
    fn plans_that_are_discarded() {
        let table = SettingsTable::default();
        let (zone, none) = (table.intern([("timezone", "UTC")]), Settings::default());
        let tenant = table.intern([("app.tenant", "7")]);
        let discards = |wanted, held| {
            let text = plan(wanted, held).unwrap_or_default();
            let says = text.windows(13).any(|part| part == b"DISCARD PLANS");
            assert_eq!(says, discards_plans(wanted, held));
            says
        };
        assert!(discards(&zone, &none) && discards(&none, &zone) && discards(&zone, &tenant));
        assert!(!discards(&zone, &zone) && !discards(&tenant, &none));
    }

    #[test]
    fn plans_for_roles() {
        let r = ("role", "r");
        check(
            &[r],
            &[],
            Some("SELECT pg_catalog.set_config('role','r',false) IS NULL"),
        );
        check(&[], &[r], Some("RESET SESSION AUTHORIZATION;RESET ROLE;"));
        check(
            &[r, ("a", "1")],
            &[r],
            Some(
                "RESET SESSION AUTHORIZATION;RESET ROLE;\
                 SELECT pg_catalog.set_config('a','1',false) IS NULL,\
                 pg_catalog.set_config('role','r',false) IS NULL",
            ),
        );
        check(
            &[r, ("session_authorization", "u")],
            &[("session_authorization", "v")],
            Some(
                "RESET SESSION AUTHORIZATION;RESET ROLE;\
                 SELECT pg_catalog.set_config('session_authorization','u',false) IS NULL,\
                 pg_catalog.set_config('role','r',false) IS NULL",
            ),
        );
    }
}
