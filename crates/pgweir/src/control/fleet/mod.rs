//! Shares `max_server_conn` with the other processes of a fleet through etcd (`fleet_etcd`), on a thread of its own.
//!
//! `crates/fleet` has the decisions, and the argument why the limit is never exceeded. This module reads the clock,
//! sends requests to etcd and PostgreSQL, and sets the node's limit in the caps that all workers share. The module
//! holds the lock of the caps while it asks the node for its next request. So no worker opens a server between the
//! count of the servers and the limit that is computed from this count.
//!
//! The thread also registers this process as a peer, and reads the list of peers (`registration`).

mod access;
mod actor;
mod commands;
mod registration;
mod store;

use std::{io, thread};

use pgweir_config::Settings;
use pgweir_core::{Control, Directory, base::fault::Fault, console::CommandOnAll};
use pgweir_fleet::Terms;
use tokio::{
    runtime,
    sync::mpsc::{Sender, channel, error::TrySendError},
    task::LocalSet,
};

use self::actor::{Actor, NodeEvent};
pub(crate) use self::{
    access::{FleetAccess, FleetAccessError},
    commands::{NodesAnswer, NodesOrder, OrderReply},
};
use crate::{
    clock::{Clock, since_boot_us},
    console_link::ConsoleConnector,
    log::LogBuffer,
    net::Mailboxes,
};

/// The maximum number of workers' answers in the queue to the thread. Each interval brings at most two.
const ANSWERS_MAX: usize = 16;
/// The maximum number of events in the queue to the thread: commands for all nodes, and the ends of commands.
const EVENTS_MAX: usize = 32;

/// The control thread's handle of the thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    thread: Option<FleetThread>,
    mailboxes: Mailboxes,
}

#[derive(Debug)]
struct FleetThread {
    answers: Sender<Control>,
    events: Sender<NodeEvent>,
}

impl Fleet {
    /// With `fleet_etcd`, puts the process's cap under a lease. Called before a worker opens a server.
    pub(crate) fn begin(directory: &Directory) {
        let settings = &directory.snapshot().config.settings;
        if settings.fleet_etcd.is_set() {
            let floor = settings.floor_of_node();
            let caps = directory.caps();
            caps.with(|caps| caps.begin_leases(floor, since_boot_us));
        }
    }

    /// Starts the thread, if `fleet_etcd` is set.
    ///
    /// # Errors
    /// The system refuses a new thread.
    pub(crate) fn start(
        access: FleetAccess,
        connector: ConsoleConnector,
        (log, clock): (LogBuffer, Clock),
    ) -> io::Result<Self> {
        let snapshot = connector.directory.snapshot();
        let settings = &snapshot.config.settings;
        let mailboxes = connector.mailboxes.clone();
        if !settings.fleet_etcd.is_set() {
            let thread = None;
            return Ok(Self { thread, mailboxes });
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .build()?;
        let (answers, receiver) = channel(ANSWERS_MAX);
        let (events, event_receiver) = channel(EVENTS_MAX);
        let own_events = (events.clone(), event_receiver);
        let name = settings.fleet_name.clone();
        let terms = terms(settings);
        // The highest bit is 0: reserved numbers of sources have 1 there.
        let id = rand::random::<u64>() >> 1;
        let spawn = move || {
            let actor = Actor::new(
                access,
                (name, id),
                terms,
                receiver,
                own_events,
                connector,
                (log, clock),
            );
            LocalSet::new().block_on(&runtime, actor.run());
            // The thread must end even if a look-up of a name hangs.
            runtime.shutdown_background();
        };
        thread::Builder::new()
            .name("fleet".to_owned())
            .spawn(spawn)?;
        let thread = Some(FleetThread { answers, events });
        Ok(Self { thread, mailboxes })
    }

    /// Passes an answer of the workers, or a console's command for all nodes, to the thread.
    pub(crate) fn handle_core_message(&self, control: Control) {
        match (control, &self.thread) {
            (Control::OrderNodes(order), _) => self.order_nodes((*order).into()),
            // The queue is full only while the thread waits for etcd. The thread repeats a request whose answer is
            // lost.
            (control, Some(thread)) => drop(thread.answers.try_send(control)),
            (_, None) => {}
        }
    }

    /// Passes a command for all nodes to the thread.
    pub(crate) fn order_nodes(&self, order: NodesOrder) {
        let (order, refusal) = match &self.thread {
            None => (order, CommandOnAll::NO_FLEET),
            Some(thread) => match thread.events.try_send(NodeEvent::Order(Box::new(order))) {
                Err(
                    TrySendError::Full(NodeEvent::Order(order))
                    | TrySendError::Closed(NodeEvent::Order(order)),
                ) => (
                    *order,
                    "cannot pass the command on through etcd: too many commands wait",
                ),
                _ => return,
            },
        };
        let fault = Fault::Command(refusal.to_owned());
        order.reply.send(&self.mailboxes, Err(fault));
    }
}

/// Returns the numbers that all nodes have in common.
fn terms(settings: &Settings) -> Terms {
    let lease = settings.fleet_lease.0;
    Terms {
        budget: settings.max_server_conn.count(),
        nodes: settings.fleet_nodes,
        floor: settings.floor_of_node(),
        lease,
        interval: lease / 15,
        timeout: lease / 5,
    }
}
