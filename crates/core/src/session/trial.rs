//! The steps of a plan, each tried by itself.

use std::collections::BTreeMap;

use super::{Settings, plan};
use crate::fault::Words;

/// `temp_buffers`: a session that has used temporary tables can't change it.
pub const BUFFERS: &[u8] = b"temp_buffers";
/// One of these is not what such a session has.
pub const OTHER_BUFFERS: [&str; 2] = ["100", "101"];

/// What a statement does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It takes something back.
    Reset,
    /// It shows whether the session can change `temp_buffers` at all.
    Probe,
    /// It sets these parameters.
    Set(Vec<Box<[u8]>>),
}

/// A plan that has failed.
#[derive(Debug, Default)]
pub struct Trial {
    /// Its steps, once they are under way.
    pub steps: Vec<Step>,
    /// Which of them have failed, and what the server said.
    pub failed: Vec<(usize, Words)>,
}

/// The statements of a plan one by one, each to be a Query of its own; at least one.
#[must_use]
pub fn steps(wanted: &Settings, held: &Settings) -> Vec<(Step, Vec<u8>)> {
    let difference = plan::Difference::between(wanted, held);
    let mut steps = Vec::new();
    if difference.resets_who {
        steps.push((Step::Reset, plan::RESET_WHO.to_vec()));
    }
    for name in &difference.resets {
        let mut text = Vec::new();
        plan::reset(&mut text, name);
        steps.push((Step::Reset, text));
    }
    // What another client has left under a name is not to stay there, should that name be refused.
    for (name, _) in &difference.sets {
        if !plan::is_who(name) && held.get(name).is_some() {
            let mut text = Vec::new();
            plan::reset(&mut text, name);
            steps.push((Step::Reset, text));
        }
    }
    let mut set = |names: Vec<Box<[u8]>>, pairs: &[(&[u8], &[u8])]| {
        if names.iter().any(|name| **name == *BUFFERS) {
            for value in OTHER_BUFFERS {
                let mut text = Vec::new();
                plan::sets(&mut text, &[(BUFFERS, value.as_bytes())]);
                steps.push((Step::Probe, text));
            }
        }
        let mut text = Vec::new();
        // It may have that since the step before.
        plan::begin(&mut text, wanted);
        plan::sets(&mut text, pairs);
        steps.push((Step::Set(names), text));
    };
    // Role and login user are one: what may be set as a role depends on the user.
    let are_one =
        |(one, _): &(&[u8], _), (other, _): &(&[u8], _)| plan::is_who(one) && plan::is_who(other);
    for pairs in difference.sets.chunk_by(are_one) {
        set(pairs.iter().map(|&(name, _)| name.into()).collect(), pairs);
    }
    if steps.is_empty() {
        // An empty Query: its end is waited for.
        steps.push((Step::Set(Vec::new()), Vec::new()));
    }
    steps
}

impl Trial {
    /// These are under way.
    #[must_use]
    pub fn of(steps: Vec<Step>) -> Self {
        Self {
            steps,
            failed: Vec::new(),
        }
    }

    /// What has failed to be taken back, if something has.
    #[must_use]
    pub fn unclean(&self) -> Option<&Words> {
        let mut failed = self.failed.iter();
        let found = failed.find(|(at, _)| self.steps.get(*at) == Some(&Step::Reset));
        found.map(|(_, words)| words)
    }

    /// Is it for what others have done in this session that it can't be given a parameter?
    #[must_use]
    pub fn is_spoiled(&self) -> bool {
        let has_failed = |at: &usize| self.failed.iter().any(|(failed, _)| failed == at);
        let probes = |at: &usize| self.steps.get(*at) == Some(&Step::Probe);
        self.refused().contains_key(BUFFERS)
            && (0..self.steps.len()).any(|at| probes(&at) && has_failed(&at))
    }

    /// The parameters that were refused, and what the server said of each.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<&[u8], &Words> {
        let mut refused = BTreeMap::new();
        for (at, words) in &self.failed {
            if let Some(Step::Set(names)) = self.steps.get(*at) {
                refused.extend(names.iter().map(|name| (&**name, words)));
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::SettingsTable;
    use super::*;

    fn words() -> Words {
        Words {
            severity: "ERROR".into(),
            code: "22023".into(),
            message: "no".into(),
            detail: None,
            hint: None,
        }
    }

    fn texts(found: &[(Step, Vec<u8>)]) -> Vec<Cow<'_, str>> {
        found
            .iter()
            .map(|(_, text)| String::from_utf8_lossy(text))
            .collect()
    }

    #[test]
    fn one_by_one() {
        let table = SettingsTable::default();
        let pairs = |pairs: &[(&str, &str)]| table.intern(pairs.iter().copied());
        let wanted = pairs(&[
            ("a", "1"),
            ("role", "r"),
            ("session_authorization", "u"),
            ("b", "2"),
        ]);
        let found = steps(&wanted, &pairs(&[("c", "3"), ("b", "2"), ("role", "s")]));
        assert_eq!(
            texts(&found),
            [
                "RESET SESSION AUTHORIZATION;RESET ROLE;",
                "RESET \"c\";",
                "SELECT pg_catalog.set_config('a','1',false) IS NULL",
                "SELECT pg_catalog.set_config('session_authorization','u',false) IS NULL,\
                 pg_catalog.set_config('role','r',false) IS NULL",
            ]
        );
        let mut trial = Trial::of(found.into_iter().map(|(step, _)| step).collect());
        assert!(trial.refused().is_empty() && trial.unclean().is_none());
        trial.failed.push((3, words()));
        let refused: Vec<_> = trial.refused().into_keys().collect();
        assert_eq!(refused, [&b"role"[..], b"session_authorization"]);
        assert!(trial.unclean().is_none());
        trial.failed.push((1, words()));
        assert!(trial.unclean().is_some());
    }

    #[test]
    fn what_another_has_left_goes_first() {
        let table = SettingsTable::default();
        let found = steps(&table.intern([("a", "2")]), &table.intern([("a", "1")]));
        assert_eq!(
            texts(&found),
            [
                "RESET \"a\";",
                "SELECT pg_catalog.set_config('a','2',false) IS NULL",
            ]
        );
    }

    #[test]
    fn what_ends_others_is_last() {
        let table = SettingsTable::default();
        let names = [
            "a",
            "exit_on_error",
            "role",
            "default_transaction_deferrable",
            "lock_timeout",
            "work_mem",
        ];
        let wanted = table.intern(names.map(|name| (name, "on")));
        let found = steps(&wanted, &Settings::default());
        let set: Vec<_> = found
            .iter()
            .map(|(step, _)| match step {
                Step::Set(names) => String::from_utf8_lossy(&names[0]).into_owned(),
                _ => String::new(),
            })
            .collect();
        let expect = [
            "a",
            "default_transaction_deferrable",
            "work_mem",
            "lock_timeout",
            "role",
            "exit_on_error",
        ];
        assert_eq!(set, expect);
        assert!(found[2].1.starts_with(b"SET TRANSACTION NOT DEFERRABLE;"));
        let nothing = steps(&wanted, &wanted);
        assert_eq!(nothing, [(Step::Set(Vec::new()), Vec::new())]);
    }

    #[test]
    fn buffers() {
        let wanted = SettingsTable::default().intern([("temp_buffers", "200")]);
        let steps: Vec<_> = steps(&wanted, &Settings::default())
            .into_iter()
            .map(|(step, _)| step)
            .collect();
        assert_eq!(steps.len(), 3);
        let check = |failed: &[usize], expect| {
            let mut trial = Trial::of(steps.clone());
            trial.failed.extend(failed.iter().map(|&at| (at, words())));
            assert_eq!(trial.is_spoiled(), expect, "{failed:?}");
        };
        check(&[2], false);
        check(&[0], false);
        check(&[0, 2], true);
        check(&[0, 1, 2], true);
    }
}
