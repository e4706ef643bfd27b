//! Keeps UNLISTEN commands until their transaction is committed, when they take effect.

use super::Channel;

/// The UNLISTEN commands of a client, and their outcome.
#[derive(Debug, Default)]
pub struct PendingUnlisten {
    /// The channels in the texts of the present transaction.
    noted: UnlistenedChannels,
    /// Whether the server has completed the command in the present transaction.
    is_done: bool,
    /// The channels in committed transactions.
    committed: UnlistenedChannels,
}

/// The channels that UNLISTEN named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UnlistenedChannels {
    /// No channel.
    #[default]
    Nothing,
    /// These channels.
    These(Vec<Channel>),
    /// All channels.
    All,
}

impl PendingUnlisten {
    /// Notes that a text has UNLISTEN, of one channel or of all.
    pub fn note_unlisten(&mut self, channel: Option<&Channel>) {
        self.noted.add(channel);
    }

    /// Notes that a command has completed; `tag` ends with a zero.
    pub fn completed(&mut self, tag: &[u8]) {
        match tag {
            b"UNLISTEN\0" => self.is_done = true,
            b"COMMIT\0" => self.commit(),
            b"DISCARD ALL\0" => self.committed = UnlistenedChannels::All,
            // The rollback may go only to a later savepoint. A client that gets too many notifications loses nothing.
            b"ROLLBACK\0" => self.failed(),
            _ => {}
        }
    }

    /// Notes that the transaction has failed.
    pub fn failed(&mut self) {
        self.noted = UnlistenedChannels::Nothing;
        self.is_done = false;
    }

    /// Takes the channels dropped since the last call, when no transaction is open any more.
    pub fn take(&mut self) -> UnlistenedChannels {
        self.commit();
        std::mem::take(&mut self.committed)
    }

    /// Returns whether [`PendingUnlisten::take`] would return any channel.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_done && self.noted != UnlistenedChannels::Nothing
            || self.committed != UnlistenedChannels::Nothing
    }

    fn commit(&mut self) {
        let noted = std::mem::take(&mut self.noted);
        if std::mem::take(&mut self.is_done) {
            match noted {
                UnlistenedChannels::Nothing => {}
                UnlistenedChannels::These(channels) => {
                    channels
                        .iter()
                        .for_each(|one| self.committed.add(Some(one)));
                }
                UnlistenedChannels::All => self.committed = UnlistenedChannels::All,
            }
        }
    }
}

impl UnlistenedChannels {
    fn add(&mut self, channel: Option<&Channel>) {
        match (&mut *self, channel) {
            (Self::All, _) => {}
            (_, None) => *self = Self::All,
            (Self::These(channels), Some(channel)) if channels.contains(channel) => {}
            (Self::These(channels), Some(channel)) => channels.push(Channel::clone(channel)),
            (Self::Nothing, Some(channel)) => *self = Self::These(vec![Channel::clone(channel)]),
        }
    }

    /// Returns whether this channel is among them.
    #[must_use]
    pub fn has(&self, channel: &Channel) -> bool {
        match self {
            Self::Nothing => false,
            Self::These(channels) => channels.contains(channel),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script in order: texts (`a`, `*`), completed commands (tags in capitals), and an error (`!`).
    fn check(script: &str, expect: &[&str]) {
        let mut dropping = PendingUnlisten::default();
        for step in script.split(", ").filter(|step| !step.is_empty()) {
            match step {
                "*" => dropping.note_unlisten(None),
                "!" => dropping.failed(),
                name if name.len() == 1 => dropping.note_unlisten(Some(&name.as_bytes().into())),
                tag => dropping.completed(format!("{tag}\0").as_bytes()),
            }
        }
        let is_due = dropping.is_due();
        let dropped = dropping.take();
        let of = |name: &&str| dropped.has(&name.as_bytes().into());
        let found: Vec<_> = ["a", "b"].into_iter().filter(of).collect();
        assert_eq!(found, expect, "{script}");
        assert_eq!(is_due, dropped != UnlistenedChannels::Nothing, "{script}");
        assert_eq!(dropping.take(), UnlistenedChannels::Nothing);
    }

    #[test]
    fn only_what_is_committed() {
        check("", &[]);
        check("a", &[]);
        check("a, UNLISTEN", &["a"]);
        check("a, a, b, UNLISTEN", &["a", "b"]);
        check("a, *, b, UNLISTEN", &["a", "b"]);
        check("a, UNLISTEN, !", &[]);
        check("a, UNLISTEN, ROLLBACK", &[]);
        check("a, UNLISTEN, ROLLBACK, b, UNLISTEN", &["b"]);
        check("BEGIN, a, UNLISTEN, COMMIT, !", &["a"]);
        check("BEGIN, a, UNLISTEN, COMMIT, b, UNLISTEN, !", &["a"]);
        check("DISCARD ALL", &["a", "b"]);
    }
}
