//! Messages between workers, and from the control thread to workers. A mailbox is first in, first out.

use std::{net::IpAddr, sync::Arc};

use crate::{
    Evaluated, SharedPool, Shutdown, Snapshot, Token, WorkerId,
    base::fault::Fault,
    console::{KnownNames, NodeOutcome, WorkerRound},
    diagnosis::Diagnosis,
    listen::{ListenerEvent, ListenerRequest},
    metrics::Measurement,
    pool::Waiter,
    shared::{
        cancel::CancelKey,
        fleet::{FleetCount, FleetRound},
        hosts::{Host, PatroniNews},
        pool::Search,
    },
    signal::SignalOrder,
    takeover::TakeoverMail,
};

/// A notice for the operator about a command that was carried out.
#[derive(Debug)]
pub struct Note {
    /// The notice's message.
    pub text: &'static str,
    /// The reason, as the notice's DETAIL.
    pub detail: String,
}

/// A message from one worker, or from the control thread, to a worker.
#[derive(Debug)]
pub enum Mail {
    /// Clients wait in this pool: offer the pool's idle servers to its ledger, and each server that becomes free, until
    /// the ledger answers that no client waits.
    ServersWanted(Arc<SharedPool>),
    /// Open a server for this pool.
    Open(Arc<SharedPool>),
    /// Open a server of this pool that serves only this client.
    OpenFor(Arc<SharedPool>, Waiter),
    /// The number of this pool's clients has crossed `share_after`: from now on they share servers, or each keeps one.
    SharingChanged(Arc<SharedPool>),
    /// A limit that several pools share, and that has denied this pool a server, has room again.
    CapHasRoom(Arc<SharedPool>),
    /// A search for the idle server that is closed for another pool. The message goes from worker to worker.
    Search(Box<Search>),
    /// A diagnosis of a pool in which clients wait: counts the pool's servers by their use. The message goes from
    /// worker to worker.
    Diagnose(Box<Diagnosis>),
    /// Close the server that the search has found, if it is still idle.
    Evict(Box<Search>),
    /// The server that ran a query about this client's user was lost: look the user up again.
    LookUpAgain(Token),
    /// A request for a listener that this worker owns.
    ListenerRequest(Box<ListenerRequest>),
    /// An answer of a listener, a notification, or its loss, for clients of this worker.
    ListenerEvent(Box<ListenerEvent>),
    /// The pool has no server, and PostgreSQL refuses its logins: fail the clients that wait.
    Failed(Arc<SharedPool>),
    /// The sender has logins above `max_client_conn`. Answer with [`Mail::PendingProcessed`] once all input that has
    /// arrived so far is processed: a client that has disconnected may make room.
    ProcessPending(WorkerId),
    /// The answer to [`Mail::ProcessPending`].
    PendingProcessed,
    /// A cancel request that named a client of this worker.
    Cancel {
        /// The worker that has received the request.
        from: WorkerId,
        /// The request's connection there.
        request: Token,
        /// The key.
        key: CancelKey,
    },
    /// A client whose pid names the receiving worker has moved from one other worker to another, by the move with this
    /// number, or has disconnected there.
    ClientMoved {
        /// The client's key.
        key: CancelKey,
        /// The worker that has the client now; `None` if it has disconnected.
        to: Option<WorkerId>,
        /// The number of the client's moves so far.
        moves: u32,
    },
    /// A client whose pid names the receiving worker has come back from a process that failed to take it over, to the
    /// sending worker, which it had left.
    ClientBack {
        /// The client's key.
        key: CancelKey,
        /// The worker that has the client now.
        to: WorkerId,
        /// The number of the client's moves so far.
        moves: u32,
    },
    /// The load of the receiving worker's thread since its last load, in thousandths of a CPU. The driver of the worker
    /// sends it at the end of an iteration of the event loop, about every
    /// [`WINDOW`](crate::shared::worker_loads::WINDOW). The worker decides with it how many workers take part, and
    /// gives clients to other workers, if they have less to do or if it does not take part itself.
    Busy(u32),
    /// The receiving worker takes part from now on, or does not take part any more: see
    /// [`WorkerLoads`](crate::shared::worker_loads::WorkerLoads).
    ActiveWorkersChanged,
    /// A client has called `pg_cancel_backend` or `pg_terminate_backend` with pids that may be of this worker's
    /// clients.
    Signal(Box<SignalOrder>),
    /// A cancel request for a client of another process of the group, which this worker passes on.
    CancelForPeer {
        /// The worker that has received the request.
        from: WorkerId,
        /// The request's connection there.
        request: Token,
        /// The key.
        key: CancelKey,
    },
    /// The cancel request of this connection is on its way to the server.
    CancelSent(Token),
    /// The cancel request of this connection is over, with this outcome: close the connection.
    CancelDone(Token, &'static str),
    /// The host names for the table that this console has to show.
    Names {
        /// The console's client.
        console: Token,
        /// The host names.
        names: KnownNames,
    },
    /// A host has other addresses now: stop using servers at these old ones.
    AddressesGone {
        /// The name.
        host: Arc<str>,
        /// The addresses that it had.
        gone: Arc<[IpAddr]>,
    },
    /// The state or role of a host has changed, or is in doubt: close the servers of hosts that pools may not use any more, and
    /// begin the checks that are due.
    HostsChanged,
    /// Check at once how far this host has replayed the WAL, or written it.
    CheckReplay(Arc<Host>),
    /// A check of a host was answered, which may show that standbys have replayed the writes for which clients wait.
    ReplayChecked,
    /// Patroni has reported something new about the hosts of databases, or does not answer any more.
    PatroniNews(Box<PatroniNews>),
    /// The facts that a server of this worker had read from its catalog are evaluated.
    CatalogEvaluated(Box<Evaluated>),
    /// The operators' orders have changed: apply those that are now in [`Operator`](crate::shared::operator::Operator).
    OperatorOrders,
    /// Check again whether the event that this console waits for has happened.
    Awaited(Token),
    /// A console command that goes through all workers, one after another.
    ConsoleRound(Box<WorkerRound>),
    /// A new configuration, which takes effect as a whole.
    Config(Arc<Snapshot>),
    /// The outcome of a RELOAD or SET that a console asked for. Its changes were sent to every worker before.
    Configured {
        /// The console's client.
        console: Token,
        /// Whether the change took effect, with a notice for the operator if there is one.
        outcome: Result<Option<Note>, Fault>,
    },
    /// A message of an online restart.
    Takeover(Box<TakeoverMail>),
    /// A measurement for metrics, which visits each worker.
    Measure(Box<Measurement>),
    /// A message about the limit that this process shares with other ones.
    Fleet(FleetMail),
    /// Send this worker's counters to the control thread.
    Count,
    /// End the process.
    Shutdown(Shutdown),
}

/// A message about the limit that the processes of a fleet share.
#[derive(Debug)]
pub enum FleetMail {
    /// Count this worker's idle servers, close those above the limit, and pass the message on to the next worker. The
    /// last worker sends the result to the control thread.
    Round(Box<FleetRound>),
    /// Count the backends in PostgreSQL on an idle server, or on the next server that becomes free.
    Count(Arc<FleetCount>),
    /// PostgreSQL has closed a server of this pool that pgweir had closed.
    ServerClosed(Arc<SharedPool>),
    /// The answers of the nodes to a command that this console has given with `ON ALL`, or why no node got it.
    CommandAnswered(Token, Box<Result<Vec<NodeOutcome>, Fault>>),
}

impl From<TakeoverMail> for Mail {
    fn from(word: TakeoverMail) -> Self {
        Self::Takeover(Box::new(word))
    }
}
