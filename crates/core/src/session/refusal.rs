//! Settings of a client that no server takes any more: what they speak of is gone, or the right to make
//! them is.
//!
//! Where it was set, it still counts; directly, a session goes on with it. Here the client's requests
//! fail with PostgreSQL's words until one of them sets it anew, or takes it back.

use super::{
    Context, Resets, Settings, SettingsTable,
    plan::{AUTHORIZATION, ROLE, is_who},
    scan::{Discard, Phrase, phrases},
};
use crate::fault::{Fault, Words};

/// PostgreSQL does as if these were not set, if what they name is gone.
const DISPENSABLE: [&[u8]; 2] = [b"default_tablespace", b"temp_tablespaces"];

/// What a client has set and can't have.
#[derive(Debug)]
pub struct Refusal {
    /// Names and values.
    pub settings: Settings,
    /// Which of them its client is told of.
    pub name: String,
    /// What PostgreSQL said of it.
    pub words: Words,
    /// The client's next request changes them. It goes to a server that lacks them.
    pub opens: bool,
}

/// What of the refused settings a request changes, if it succeeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    names: Vec<Box<[u8]>>,
}

/// A server works for a client and lacks something that it has set.
#[derive(Debug)]
pub struct Lack {
    /// What the request changes that is under way.
    pub changes: Changes,
    /// It is under way as a whole: the next one is none of this server's business.
    pub is_closed: bool,
    /// It has failed, or no server has seen it.
    pub has_failed: bool,
}

impl Refusal {
    /// What its client is told.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault::SettingRefused(Box::new((self.name.clone(), self.words.clone())))
    }
}

impl Changes {
    /// What a text changes of what was refused. `None` if it does anything else that could come out
    /// differently without that.
    #[must_use]
    pub fn read(text: &[u8], refused: &Settings) -> Option<Self> {
        // How a backslash is read depends on settings.
        if !text.is_ascii() || text.contains(&b'\\') {
            return None;
        }
        // A function is looked for where the client says, and would run as somebody else.
        let calls = text.contains(&b'(') && refused.iter().any(|(name, _)| is_who(name));
        let resets = !calls && Resets::read(text).is_some();
        let mut changes = Self::default();
        for phrase in phrases(text) {
            match phrase {
                Phrase::Set {
                    name, local: false, ..
                }
                | Phrase::Reset(name)
                    if changes.add(&name, refused) => {}
                Phrase::ResetAll => changes.add_all(refused),
                Phrase::Discard(Discard::All) => {
                    changes.add_all(refused);
                    changes.add(AUTHORIZATION, refused);
                }
                _ if resets => {}
                _ => return None,
            }
        }
        Some(changes)
    }

    /// What several texts change.
    pub fn join(&mut self, other: &Self) {
        self.names.extend_from_slice(&other.names);
    }

    fn contains(&self, name: &[u8]) -> bool {
        self.names.iter().any(|own| **own == *name)
    }

    /// `false` if it was not refused.
    fn add(&mut self, name: &[u8], refused: &Settings) -> bool {
        let name = name.to_ascii_lowercase();
        let is_refused = refused.get(&name).is_some();
        // It takes the role along.
        let is_who = name == AUTHORIZATION && refused.get(ROLE).is_some();
        if is_who {
            self.names.push(ROLE.into());
        }
        if is_refused {
            self.names.push(name.into());
        }
        is_refused || is_who
    }

    fn add_all(&mut self, refused: &Settings) {
        let others = refused.iter().filter(|(name, _)| !is_who(name));
        self.names.extend(others.map(|(name, _)| name.into()));
    }
}

impl Lack {
    /// A server without something gets this request.
    #[must_use]
    pub fn new(changes: Changes) -> Self {
        Self {
            changes,
            is_closed: false,
            has_failed: false,
        }
    }

    fn has_changed(&self, name: &[u8]) -> bool {
        !self.has_failed && self.changes.contains(name)
    }
}

impl Context {
    /// What a server is to be given: all that is wanted, but for what is refused if the request that
    /// comes changes that.
    #[must_use]
    pub fn target(&self, table: &SettingsTable) -> Settings {
        match self.refused.as_deref().is_some_and(|own| own.opens) {
            true => self.takeable(table),
            false => self.wanted.clone(),
        }
    }

    /// All that is wanted, but for what is refused.
    #[must_use]
    pub fn takeable(&self, table: &SettingsTable) -> Settings {
        match &self.refused {
            Some(refusal) => table.without(&self.wanted, &refusal.settings),
            None => self.wanted.clone(),
        }
    }

    /// Its server holds this after a request, which it may have got without what was refused. Gives what
    /// the server is to hold.
    pub fn learn(
        &mut self,
        held: &Settings,
        lack: Option<&Lack>,
        table: &SettingsTable,
    ) -> Settings {
        let wanted = table.overlay(&self.base, held);
        let Some(mut refusal) = self.refused.take().filter(|_| lack.is_some()) else {
            self.wanted = wanted;
            return self.wanted.clone();
        };
        let is_changed = |name: &[u8]| lack.is_some_and(|lack| lack.has_changed(name));
        let is_refused = |&(name, value): &(&[u8], &[u8])| {
            // Taken back to a startup value that is refused, it is what it was.
            let is_wanted = !is_changed(name) || wanted.get(name) == Some(value);
            is_wanted && held.get(name) != Some(value)
        };
        refusal.settings = table.intern(refusal.settings.iter().filter(is_refused));
        refusal.opens = false;
        self.wanted = table.overlay(&wanted, &refusal.settings);
        if !refusal.settings.is_empty() {
            self.refused = Some(refusal);
        }
        self.takeable(table)
    }

    /// Goes on without some settings, as PostgreSQL would.
    pub fn dispense(&mut self, gone: &Settings, table: &SettingsTable) {
        self.wanted = table.without(&self.wanted, gone);
        self.base = table.without(&self.base, gone);
    }
}

/// Does PostgreSQL go on without this setting, if it says this of it?
#[must_use]
pub fn is_dispensable(name: &[u8], words: &Words) -> bool {
    DISPENSABLE.contains(&name) || is_removed(words)
}

/// An extension was loaded that wants such names for itself: PostgreSQL takes what others have set under them
/// away.
#[must_use]
pub fn is_removed(words: &Words) -> bool {
    words.code == INVALID_NAME
}

const INVALID_NAME: &str = "42602";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &[&str]) -> Settings {
        SettingsTable::default().intern(names.iter().map(|name| (name, "x")))
    }

    #[track_caller]
    fn check(names: &[&str], text: &str, expect: Option<&[&str]>) {
        let found = Changes::read(text.as_bytes(), &refused(names));
        let expect = expect.map(|names| Changes {
            names: names.iter().map(|name| name.as_bytes().into()).collect(),
        });
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn texts() {
        let role = &["role"][..];
        check(role, "RESET ROLE", Some(role));
        check(role, "set Role none;", Some(role));
        check(role, "SET SESSION AUTHORIZATION DEFAULT", Some(role));
        check(role, "DISCARD ALL", Some(role));
        check(
            role,
            "SET role = 'a'; SET role TO DEFAULT",
            Some(&["role", "role"]),
        );
        check(role, "RESET ALL", Some(&[]));
        check(role, "-- ping", Some(&[]));
        let asyncpg = "SELECT pg_advisory_unlock_all();CLOSE ALL;UNLISTEN *;RESET ALL;";
        check(&["app.x"], asyncpg, Some(&["app.x"]));
        check(role, asyncpg, None);
        check(role, "CLOSE ALL;UNLISTEN *;RESET ALL;", Some(&[]));
        let both = &["app.x", "role"][..];
        check(both, "SET app.x = 'y'", Some(&["app.x"]));
        check(both, "RESET ALL; RESET ROLE", Some(both));
        check(both, "RESET \"App\".X", Some(&["app.x"]));
        check(
            &["session_authorization"],
            "RESET SESSION AUTHORIZATION",
            Some(&["session_authorization"]),
        );
        for text in [
            "SELECT 1",
            "SET LOCAL ROLE a",
            "BEGIN; RESET ROLE",
            "RESET ROLE; SELECT 1",
            "SET work_mem = '5MB'",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET ROLE 'a\\' '; SELECT 1 --'",
            "SET ROLE \u{e4}",
            "SELECT set_config('role', 'none', false)",
            "COMMIT",
        ] {
            check(role, text, None);
        }
        check(&["session_authorization"], "RESET ROLE", Some(&[]));
    }
}
