//! Commands for all nodes (`ON ALL`): passes those that were given on this node on through etcd, carries out those that name this
//! node, and writes the answers.
//!
//! A command runs on a console connection of pgweir's own, as a request over HTTP does. The rights of the user were checked
//! where the command was given. Whoever can write the keys can give the commands of
//! [`CommandOnAll`](pgweir_core::console::CommandOnAll), and no others.

use std::{collections::BTreeMap, time::Duration};

use pgweir_core::{
    Audit, Level, LogLine,
    base::fault::Fault,
    console::{CommandOnAll, NodeOutcome},
    shared::{events::EventKind, fleet::FleetNodeState},
};
use pgweir_formats::fleet_values::{AnswerValue, CommandValue};
use tokio::{
    sync::mpsc::{Receiver, Sender},
    task::{AbortHandle, spawn_local},
    time,
};

use super::{Actor, StoreError};
use crate::{
    clock::since_boot_us,
    console_link::{CONSOLE, ConsoleConnector, LinkError},
    control::fleet::commands::{COMMANDS_MAX, CommandKeys, Decision, Given, NodesOrder, Seen},
};

/// The longest result of a command in its answer, in characters.
const RESULT_MAX: usize = 500;

/// An event that the thread handles between two intervals.
#[derive(Debug)]
pub(in crate::control::fleet) enum NodeEvent {
    /// A console or a request over HTTP has given a command for all nodes.
    Order(Box<NodesOrder>),
    /// A command of the fleet was carried out on this node, with this result.
    Finished(u64, Result<(), String>),
}

/// The commands for all nodes that are in progress, as this node knows them.
#[derive(Debug)]
pub(super) struct Orders {
    events: Receiver<NodeEvent>,
    /// The sender for the tasks that carry commands out.
    own_events: Sender<NodeEvent>,
    seen: Seen,
    /// The commands that this node carries out.
    running: BTreeMap<u64, Running>,
    /// The answers of this node that have to be written, with the leases of the commands.
    answers: BTreeMap<u64, (i64, AnswerValue)>,
    /// The commands that were given on this node.
    given: Vec<Given>,
}

#[derive(Debug)]
struct Running {
    command: CommandOnAll,
    value: CommandValue,
    lease: i64,
    task: AbortHandle,
}

impl Orders {
    pub(super) fn new((own_events, events): (Sender<NodeEvent>, Receiver<NodeEvent>)) -> Self {
        Self {
            events,
            own_events,
            seen: Seen::default(),
            running: BTreeMap::new(),
            answers: BTreeMap::new(),
            given: Vec::new(),
        }
    }

    /// Returns how many commands are in progress in the fleet.
    pub(super) fn in_progress(&self, keys: &CommandKeys) -> usize {
        keys.commands.len().max(self.given.len())
    }
}

impl Actor {
    /// Waits for the next interval, or for the next event.
    pub(super) async fn wait(&mut self, interval: Duration) {
        let first = time::timeout(interval, self.orders.events.recv()).await;
        let mut next = first.ok().flatten();
        while let Some(event) = next {
            match event {
                NodeEvent::Order(order) => self.pass_on(*order).await,
                NodeEvent::Finished(number, result) => self.finish(number, result),
            }
            next = self.orders.events.try_recv().ok();
        }
    }

    /// Returns `fleet_command_timeout`, in microseconds.
    fn command_timeout(&self) -> u64 {
        let snapshot = self.connector.directory.snapshot();
        snapshot.config.settings.fleet_command_timeout.0
    }

    /// Writes a command into etcd, for all nodes that are active.
    async fn pass_on(&mut self, order: NodesOrder) {
        if self.orders.in_progress(self.store.commands()) >= COMMANDS_MAX {
            let text = format!("{COMMANDS_MAX} commands with ON ALL are in progress already");
            let mailboxes = &self.connector.mailboxes;
            return order.reply.send(mailboxes, Err(Fault::Command(text)));
        }
        let wait = self.command_timeout();
        let mut awaited = BTreeMap::new();
        let mut rows = Vec::new();
        let (own, view) = (self.node.id(), self.connector.directory.fleet().view());
        let known = view
            .nodes
            .into_iter()
            .map(|it| (it.id, it.addresses, it.state));
        let missing = (own, String::new(), FleetNodeState::This);
        let mut nodes: Vec<_> = known.collect();
        if !nodes.iter().any(|(id, ..)| *id == own) {
            nodes.push(missing);
        }
        for (node, addresses, state) in nodes {
            let result = match state {
                FleetNodeState::Unknown => continue,
                FleetNodeState::Lost => "lost: the command was not sent to this node".to_owned(),
                FleetNodeState::This | FleetNodeState::Active => {
                    awaited.insert(node, rows.len());
                    let seconds = Duration::from_micros(wait).as_secs_f64();
                    format!("no answer within {seconds} s; the command may still be in progress")
                }
            };
            rows.push(NodeOutcome {
                node,
                addresses,
                result,
                is_ok: false,
            });
        }
        let value = CommandValue {
            text: order.command.text().to_owned(),
            user: order.user,
            address: order.address,
            from: own,
            nodes: awaited.keys().copied().collect(),
        };
        let number = rand::random();
        let seconds = wait.div_ceil(1_000_000).saturating_add(1);
        let written = async {
            let lease = i64::try_from(seconds).unwrap_or(i64::MAX);
            let lease = self.store.grant_lease(lease).await?;
            self.store.put_command(number, &value, lease).await?;
            Ok::<_, StoreError>(lease)
        };
        let patience = Duration::from_micros(self.terms.timeout);
        let failure = match time::timeout(patience, written).await {
            Ok(Ok(lease)) => {
                let until = since_boot_us().saturating_add(wait);
                return self.orders.given.push(Given {
                    number,
                    reply: order.reply,
                    lease,
                    until,
                    rows,
                    awaited,
                });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        let text = format!("cannot pass the command on through etcd: {failure}");
        let mailboxes = &self.connector.mailboxes;
        order.reply.send(mailboxes, Err(Fault::Command(text)));
    }

    /// Handles the commands of the fleet, after the store was read if `is_fresh`.
    pub(super) async fn handle_commands(&mut self, is_fresh: bool) {
        if is_fresh {
            self.begin_new();
        }
        self.write_answers().await;
        let now = since_boot_us();
        for given in &mut self.orders.given {
            given.take_answers(self.store.commands());
        }
        let (over, given) = std::mem::take(&mut self.orders.given)
            .into_iter()
            .partition::<Vec<_>, _>(|given| given.is_over(now));
        self.orders.given = given;
        for given in over {
            given.reply.send(&self.connector.mailboxes, Ok(given.rows));
            let patience = Duration::from_micros(self.terms.timeout);
            // If this fails, etcd removes the keys when the lease ends.
            let _ = time::timeout(patience, self.store.revoke_lease(given.lease)).await;
        }
    }

    /// Begins the commands that this node has not seen before, and ends those whose keys are gone.
    fn begin_new(&mut self) {
        let (own, instance) = (self.node.id(), self.store.instance());
        let keys = self.store.commands();
        let gone = self
            .orders
            .running
            .extract_if(.., |number, _| !keys.commands.contains_key(number));
        let gone: Vec<_> = gone.collect();
        self.orders
            .answers
            .retain(|number, _| keys.commands.contains_key(number));
        let in_progress = self.orders.running.len();
        let new = self.orders.seen.take_new(keys, own, instance, in_progress);
        let new = new.into_iter().filter_map(|(number, decision)| {
            let (value, lease) = keys.commands.get(&number)?;
            Some((number, decision, value.clone(), *lease))
        });
        let new: Vec<_> = new.collect();
        for (_, running) in gone {
            running.task.abort();
            let why =
                "nobody waits for the end of the command any more; it stays in force".to_owned();
            self.audit(&running.value, Some(&running.command), &Err(why));
        }
        for (number, decision, value, lease) in new {
            let command = CommandOnAll::parse(&value.text);
            let refusal = match (decision, command) {
                (_, None) => "not a command for all nodes".to_owned(),
                (Decision::CarryOut, Some(command)) => {
                    self.begin(number, command, value, lease);
                    continue;
                }
                (Decision::MayBeOld, Some(_)) => {
                    "this node has just connected to etcd, and the command may be an old one"
                        .to_owned()
                }
                (Decision::TooMany, Some(_)) => {
                    format!("{COMMANDS_MAX} commands with ON ALL are in progress already")
                }
            };
            self.end_command((number, lease), &value, None, Err(refusal));
        }
    }

    fn begin(&mut self, number: u64, command: CommandOnAll, value: CommandValue, lease: i64) {
        let (connector, events) = (self.connector.clone(), self.orders.own_events.clone());
        let text = command.text().to_owned();
        let wait = self.command_timeout();
        let task = spawn_local(async move {
            let result = time::timeout(Duration::from_micros(wait), run(&connector, &text)).await;
            let result = result.unwrap_or_else(|_| Err("still in progress".to_owned()));
            // The receiver only ends together with the thread.
            let _ = events.send(NodeEvent::Finished(number, result)).await;
        });
        let task = task.abort_handle();
        self.orders.running.insert(
            number,
            Running {
                command,
                value,
                lease,
                task,
            },
        );
    }

    fn finish(&mut self, number: u64, result: Result<(), String>) {
        if let Some(running) = self.orders.running.remove(&number) {
            let Running {
                command,
                value,
                lease,
                ..
            } = running;
            self.end_command((number, lease), &value, Some(&command), result);
        }
    }

    /// Records the end of a command on this node, and plans the answer.
    fn end_command(
        &mut self,
        (number, lease): (u64, i64),
        value: &CommandValue,
        command: Option<&CommandOnAll>,
        result: Result<(), String>,
    ) {
        self.audit(value, command, &result);
        let is_ok = result.is_ok();
        let result = result.err().unwrap_or_else(|| "ok".to_owned());
        let result = result.chars().take(RESULT_MAX).collect();
        self.orders
            .answers
            .insert(number, (lease, AnswerValue { is_ok, result }));
    }

    async fn write_answers(&mut self) {
        let (own, patience) = (self.node.id(), Duration::from_micros(self.terms.timeout));
        for (number, (lease, value)) in std::mem::take(&mut self.orders.answers) {
            let written = self.store.put_answer((number, lease), own, &value);
            if !matches!(time::timeout(patience, written).await, Ok(Ok(()))) {
                // The node tries again as long as the command has its key.
                self.orders.answers.insert(number, (lease, value));
                return;
            }
        }
    }

    /// Records a command of the fleet: an event, and a line if `log_audit` is set. `command` is `None` if this node has not
    /// carried it out.
    fn audit(
        &mut self,
        value: &CommandValue,
        command: Option<&CommandOnAll>,
        result: &Result<(), String>,
    ) {
        let parsed = command
            .cloned()
            .or_else(|| CommandOnAll::parse(&value.text));
        // An unknown text may contain a secret.
        let shown = parsed
            .as_ref()
            .map_or("(unknown)", |command| command.shown());
        let database = parsed.as_ref().map_or("", |command| command.database());
        let (user, from) = (&value.user, value.from);
        let (level, kind) = match result {
            Ok(()) => (Level::Log, EventKind::Command),
            Err(_) => (Level::Warning, EventKind::CommandFailed),
        };
        let outcome = match result {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.clone(),
        };
        let event = match result {
            Ok(()) => format!("{shown} (ON ALL)"),
            Err(error) => format!("{shown} (ON ALL): {error}"),
        };
        let now = self.clock.now();
        self.connector
            .directory
            .note_event(kind, (database, user), &event, now);
        if !self
            .connector
            .directory
            .snapshot()
            .config
            .settings
            .log_audit
        {
            return;
        }
        let address = &value.address;
        let text = format!(
            "fleet {}: audit: user \"{user}\" from {address}, at node {from:016x}: command \"{shown}\": {outcome}",
            self.name
        );
        let audit = Audit {
            action: "fleet command",
            command: shown.to_owned(),
            user: user.clone(),
            database: CONSOLE.to_owned(),
            address: address.clone(),
            outcome,
        };
        let line = LogLine {
            audit: Some(Box::new(audit)),
            ..LogLine::new(level, "", text)
        };
        self.log.say_line(now, &line);
    }
}

/// Carries a command out on a console connection of pgweir's own.
async fn run(connector: &ConsoleConnector, text: &str) -> Result<(), String> {
    let link = connector.open_own("fleet");
    let mut link = link.await.map_err(|error| error.to_string())?;
    match link.run(text).await {
        Ok(_) => Ok(()),
        Err(LinkError::Command(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
