//! Commands for all nodes: what a node knows of them, and which of them it carries out.
//!
//! The node whose console got a command writes the key `command/NUMBER`, with the numbers of the nodes that have to carry the
//! command out. Each of these nodes writes the key `answer/NUMBER/NODE`. All keys of a command have the same lease in etcd,
//! which the first node ends when all nodes have answered, or when their time is over.

use std::collections::{BTreeMap, VecDeque};

use etcd_client::KeyValue;
use pgweir_core::{
    Token, WorkerId,
    base::fault::Fault,
    console::{CommandOnAll, NodeOutcome, OrderForNodes},
    mail::{FleetMail, Mail},
};
use pgweir_fleet::NodeId;
use pgweir_formats::fleet_values::{AnswerValue, CommandValue};
use tokio::sync::oneshot;

use super::store::EtcdLease;
use crate::net::{Mailboxes, WorkerMessage};

/// The maximum number of commands in progress in the whole fleet.
pub(super) const COMMANDS_MAX: usize = 8;
/// The maximum number of keys of commands that a node reads. Further keys are ignored.
const KEYS_MAX: usize = 100;
/// How many commands a node remembers, so that it carries out none of them twice.
const REMEMBERED_MAX: usize = 1_000;

/// The answers of the nodes to a command, or the error because of which the command was not passed on to them.
pub(crate) type NodesAnswer = Result<Vec<NodeOutcome>, Fault>;

/// A command for all nodes that a console or a request over HTTP has given.
#[derive(Debug)]
pub(crate) struct NodesOrder {
    pub(crate) command: CommandOnAll,
    /// The user who has given the command.
    pub(crate) user: String,
    /// The address that the user has connected from.
    pub(crate) address: String,
    pub(crate) reply: OrderReply,
}

/// The receiver of the nodes' answers to a command.
#[derive(Debug)]
pub(crate) enum OrderReply {
    /// A client of the console, on this worker.
    Console(WorkerId, Token),
    /// A request over HTTP, which may not wait any more.
    Request(oneshot::Sender<NodesAnswer>),
}

impl OrderReply {
    /// Passes the answers of the nodes on.
    pub(super) fn send(self, mailboxes: &Mailboxes, answer: NodesAnswer) {
        match self {
            Self::Console(worker, console) => {
                let mail = Mail::Fleet(FleetMail::CommandAnswered(console, Box::new(answer)));
                mailboxes.send(worker, WorkerMessage::Mail(mail));
            }
            // The receiver is gone if the request does not wait any more.
            Self::Request(reply) => drop(reply.send(answer)),
        }
    }
}

impl From<OrderForNodes> for NodesOrder {
    fn from(order: OrderForNodes) -> Self {
        Self {
            command: order.command,
            user: order.user,
            address: order.address,
            reply: OrderReply::Console(order.worker, order.console),
        }
    }
}

/// The keys of commands as they were read last.
#[derive(Debug, Default)]
pub(super) struct CommandKeys {
    /// The commands by number, with their leases.
    pub(super) commands: BTreeMap<u64, (CommandValue, i64)>,
    /// The answers by command and node.
    pub(super) answers: BTreeMap<(u64, NodeId), AnswerValue>,
    /// A key with a value that no node writes: it is ignored.
    pub(super) garbage: Option<String>,
}

impl CommandKeys {
    /// Takes a key, whose `name` is the text after the fleet's prefix. Returns false if the key does not belong to a command.
    pub(super) fn add(&mut self, name: &[u8], pair: &KeyValue) -> bool {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let text = str::from_utf8(name).unwrap_or_default();
        let is_known = if let Some(text) = text.strip_prefix("command/") {
            let command = number(text).zip(CommandValue::parse(pair.value()));
            let command = command.filter(|_| self.commands.len() < KEYS_MAX);
            command.map(|(number, value)| {
                let command = (value, pair.lease());
                self.commands.insert(number, command);
            })
        } else if let Some(text) = text.strip_prefix("answer/") {
            let ids = text.split_once('/');
            let ids = ids.and_then(|(command, node)| number(command).zip(number(node)));
            let answer = ids.zip(AnswerValue::parse(pair.value()));
            answer.map(|(ids, value)| {
                self.answers.insert(ids, value);
            })
        } else if name.starts_with(b"command/") || name.starts_with(b"answer/") {
            None
        } else {
            return false;
        };
        if is_known.is_none() {
            self.garbage = Some(String::from_utf8_lossy(pair.key()).into_owned());
        }
        true
    }
}

/// A node's decision about a command that it has not seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The node carries the command out.
    CarryOut,
    /// The command may be an old one: the store may have gone back in time since the command was given.
    MayBeOld,
    /// Too many commands are in progress.
    TooMany,
}

/// Which commands a node has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    numbers: VecDeque<u64>,
    /// The instance of the store whose commands were read last.
    instance: Option<u64>,
}

impl Seen {
    /// Returns the commands that the node has not seen before, and what it does with each. `in_progress` is the number of
    /// commands that the node carries out. Commands that the first answer of an instance of the store has may be old ones.
    pub(super) fn take_new(
        &mut self,
        keys: &CommandKeys,
        node: NodeId,
        instance: u64,
        mut in_progress: usize,
    ) -> Vec<(u64, Decision)> {
        let is_first = self.instance.replace(instance) != Some(instance);
        let mut new = Vec::new();
        for (&number, (command, _)) in &keys.commands {
            if !command.nodes.contains(&node) || self.numbers.contains(&number) {
                continue;
            }
            let decision = match is_first {
                true => Decision::MayBeOld,
                false if in_progress >= COMMANDS_MAX => Decision::TooMany,
                false => Decision::CarryOut,
            };
            in_progress += usize::from(decision == Decision::CarryOut);
            new.push((number, decision));
        }
        for (number, _) in &new {
            self.numbers.push_back(*number);
        }
        let surplus = self.numbers.len().saturating_sub(REMEMBERED_MAX);
        self.numbers.drain(..surplus);
        new
    }
}

/// A command that was given on this node.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) number: u64,
    pub(super) reply: OrderReply,
    pub(super) lease: EtcdLease,
    /// When this node stops waiting, in microseconds.
    pub(super) until: u64,
    /// The rows of the answer. Nodes that have not answered yet have a text that says so.
    pub(super) rows: Vec<NodeOutcome>,
    /// The places of nodes in `rows` that have not answered yet.
    pub(super) awaited: BTreeMap<NodeId, usize>,
}

impl Given {
    /// Takes the answers that have arrived.
    pub(super) fn take_answers(&mut self, keys: &CommandKeys) {
        let (number, rows) = (self.number, &mut self.rows);
        self.awaited.retain(|node, at| {
            let Some(answer) = keys.answers.get(&(number, *node)) else {
                return true;
            };
            rows[*at].is_ok = answer.is_ok;
            rows[*at].result.clone_from(&answer.result);
            false
        });
    }

    /// Returns whether all nodes have answered, or their time is over.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.awaited.is_empty() || now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = 7;

    fn keys(numbers: impl IntoIterator<Item = u64>, nodes: &[NodeId]) -> CommandKeys {
        let command = CommandValue {
            text: "PAUSE".to_owned(),
            user: "ann".to_owned(),
            address: "unix".to_owned(),
            from: 1,
            nodes: nodes.iter().copied().collect(),
        };
        let commands = numbers
            .into_iter()
            .map(|number| (number, (command.clone(), 0)));
        CommandKeys {
            commands: commands.collect(),
            ..CommandKeys::default()
        }
    }

    #[test]
    fn a_command_is_carried_out_once_by_the_nodes_that_it_names() {
        let mut seen = Seen::default();
        let mut take = |keys: &CommandKeys| seen.take_new(keys, NODE, 1, 0);
        assert_eq!(take(&keys([], &[])), []);
        assert_eq!(take(&keys([5], &[8])), []);
        assert_eq!(take(&keys([5], &[NODE])), [(5, Decision::CarryOut)]);
        assert_eq!(take(&keys([5], &[NODE])), []);
        // The key was gone, and is there again.
        assert_eq!(take(&keys([], &[])), []);
        assert_eq!(take(&keys([5, 6], &[NODE])), [(6, Decision::CarryOut)]);
    }

    #[test]
    fn a_command_that_is_there_when_the_store_may_have_gone_back_is_not_carried_out() {
        let mut seen = Seen::default();
        let keys = keys([5], &[NODE]);
        assert_eq!(seen.take_new(&keys, NODE, 1, 0), [(5, Decision::MayBeOld)]);
        assert_eq!(seen.take_new(&keys, NODE, 1, 0), []);
        let mut seen = Seen::default();
        assert_eq!(
            seen.take_new(&super::CommandKeys::default(), NODE, 1, 0),
            []
        );
        assert_eq!(seen.take_new(&keys, NODE, 2, 0), [(5, Decision::MayBeOld)]);
    }

    #[test]
    fn the_number_of_commands_is_limited() {
        let mut seen = Seen::default();
        seen.take_new(&CommandKeys::default(), NODE, 1, 0);
        let new = seen.take_new(&keys(0..10, &[NODE]), NODE, 1, COMMANDS_MAX - 1);
        assert_eq!(new[0], (0, Decision::CarryOut));
        assert!(
            new[1..]
                .iter()
                .all(|(_, decision)| *decision == Decision::TooMany)
        );
        // A node remembers a limited number of commands.
        seen.take_new(&keys(0..2_000, &[NODE]), NODE, 1, 0);
        assert_eq!(seen.numbers.len(), REMEMBERED_MAX);
    }
}
