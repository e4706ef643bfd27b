//! Commands that each node of a fleet carries out (`ON ALL`): which commands these are, and their text for other nodes.

use super::grammar::{self, Sentence};
use crate::{Token, WorkerId, base::fault::Fault};

/// The longest text of a command, in bytes.
const TEXT_MAX: usize = 1024;

/// The commands, and what their arguments are. Nodes get commands from etcd, so these are no more than an operator needs for all
/// nodes: none of them changes a setting or ends a process.
const COMMANDS: [(&str, Topic); 9] = [
    ("RELOAD", Topic::None),
    ("PAUSE", Topic::Database),
    ("RESUME", Topic::Database),
    ("KILL", Topic::Database),
    ("RECONNECT", Topic::Database),
    ("WAIT_CLOSE", Topic::Database),
    ("DISABLE", Topic::Database),
    ("ENABLE", Topic::Database),
    ("UNBAN", Topic::Whom),
];

/// The kind of a command's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    None,
    Database,
    /// An address or a user.
    Whom,
}

/// A command that each node of a fleet carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOnAll {
    text: String,
    shown: String,
    database: String,
}

/// A command that a console has given for all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderForNodes {
    /// The worker of the console.
    pub worker: WorkerId,
    /// The console's client there.
    pub console: Token,
    /// The user who has given the command.
    pub user: String,
    /// The address that the user has connected from.
    pub address: String,
    /// The command.
    pub command: CommandOnAll,
}

/// What a node of the fleet has answered to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOutcome {
    /// The number of the node, as in SHOW FLEET.
    pub node: u64,
    /// The addresses that the node's servers come from.
    pub addresses: String,
    /// `ok`, or why the node has not carried the command out.
    pub result: String,
    /// Whether the node has carried the command out.
    pub is_ok: bool,
}

impl NodeOutcome {
    /// Returns how many of the nodes have not carried the command out, as an error, if there are any.
    #[must_use]
    pub fn failure_of(nodes: &[Self]) -> Option<Fault> {
        let failed = nodes.iter().filter(|node| !node.is_ok).count();
        let text = format!("{failed} of {} nodes have not carried it out", nodes.len());
        (failed > 0).then_some(Fault::Command(text))
    }
}

impl CommandOnAll {
    /// The error of a process that belongs to no fleet.
    pub const NO_FLEET: &str = "ON ALL needs a fleet: fleet_etcd is not set";

    /// Returns whether a command that begins with this word runs on all nodes with `ON ALL`.
    #[must_use]
    pub fn is_allowed(verb: &str) -> bool {
        COMMANDS.iter().any(|(known, _)| *known == verb)
    }

    /// Checks that all nodes may carry the command out.
    ///
    /// # Errors
    /// The command only works on one node, or is too long.
    pub(super) fn new(verb: &str, argument: &str) -> Result<Self, Fault> {
        let known = COMMANDS.iter().find(|(known, _)| *known == verb);
        let Some((verb, topic)) =
            known.filter(|(_, topic)| *topic != Topic::None || argument.is_empty())
        else {
            return Err(Fault::Command("the command cannot run ON ALL".to_owned()));
        };
        let (text, shown) = match argument {
            "" => ((*verb).to_owned(), (*verb).to_owned()),
            _ => {
                let quoted = argument.replace('"', "\"\"");
                (format!("{verb} \"{quoted}\""), format!("{verb} {argument}"))
            }
        };
        if text.len() > TEXT_MAX {
            let text = "the command is too long for ON ALL";
            return Err(Fault::Command(text.to_owned()));
        }
        let database = match topic {
            Topic::Database => argument.to_owned(),
            Topic::Whom | Topic::None => String::new(),
        };
        Ok(Self {
            text,
            shown,
            database,
        })
    }

    /// Reads the text of a command from another node. Returns `None` if this is no command for all nodes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match grammar::parse(text).filter(|_| text.len() <= TEXT_MAX)? {
            Sentence::Words { verb, argument } => Self::new(&verb, &argument).ok(),
            Sentence::Empty | Sentence::WordsOnAll { .. } | Sentence::Set { .. } => None,
        }
    }

    /// Returns the command in the console's language, without `ON ALL`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the command as the log shows it, without `ON ALL`.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the database that the command is about, or an empty text.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Command;

    #[test]
    fn commands_for_all_nodes() {
        let check = |text: &str, expect: &str| {
            let Ok(Command::OnAll(command)) = Command::parse(text) else {
                panic!("{text}");
            };
            assert_eq!(command.text(), expect);
            // Another node reads the same command.
            assert_eq!(CommandOnAll::parse(expect), Some(command));
        };
        check("pause on all", "PAUSE");
        check("pause \"a \"\"b\"\"\" on all", "PAUSE \"a \"\"b\"\"\"");
        check("RESUME app ON ALL;", "RESUME \"app\"");
        check("kill app on all", "KILL \"app\"");
        check("reconnect on all", "RECONNECT");
        check("wait_close on all", "WAIT_CLOSE");
        check("disable app on all", "DISABLE \"app\"");
        check("enable app on all", "ENABLE \"app\"");
        check("reload on all", "RELOAD");
        check("unban 10.0.0.1 on all", "UNBAN \"10.0.0.1\"");
    }

    #[test]
    fn commands_for_one_node() {
        for text in [
            "shutdown",
            "restart",
            "suspend",
            "show pools",
            "kill_client 7",
            "set on",
        ] {
            let on_all = format!("{text} on all");
            assert!(Command::parse(&on_all).is_err(), "{text}");
            assert_eq!(CommandOnAll::parse(text), None, "{text}");
        }
        for text in [
            "",
            "SET auth_type = trust",
            "RELOAD app",
            "pause",
            "PAUSE ON ALL",
            "PAUSE; KILL",
            "no command",
        ] {
            assert_eq!(CommandOnAll::parse(text), None, "{text}");
        }
        let long = format!("PAUSE {}", "a".repeat(TEXT_MAX));
        assert_eq!(CommandOnAll::parse(&long), None);
    }
}
