//! What workers say to each other. Every mailbox is first in, first out.

use std::{net::IpAddr, sync::Arc};

use crate::{
    SharedPool, Shutdown, Snapshot, Token, WorkerId,
    admin::{KnownNames, Measurement, Tour},
    cancel::CancelKey,
    fault::Fault,
    listen::Letter,
    pool::Waiter,
    signal::Order,
    worker::{Diagnosis, Search, Word},
};

/// What an operator is to know of a command that was carried out.
#[derive(Debug)]
pub struct Note {
    /// What it says.
    pub text: &'static str,
    /// Why.
    pub detail: String,
}

/// A message from one worker, or from the control thread, to a worker.
#[derive(Debug)]
pub enum Mail {
    /// Clients of some worker wait in this pool: offer idle servers, and pass every server that
    /// comes free through the ledger until it says that nobody waits.
    Wanted(Arc<SharedPool>),
    /// Open a server for this pool.
    Open(Arc<SharedPool>),
    /// Open a server of this pool for this client alone.
    OpenFor(Arc<SharedPool>, Waiter),
    /// The clients of this pool have become so many that they share servers, or so few that each keeps
    /// one.
    Share(Arc<SharedPool>),
    /// A cap that denied this pool a server has room.
    Room(Arc<SharedPool>),
    /// A look for the idle server that has to go, on its way through all workers.
    Search(Box<Search>),
    /// A look at who has the servers of a pool in which clients wait, on its way through all workers.
    Diagnose(Box<Diagnosis>),
    /// The server that was found has to go, if nobody has it meanwhile.
    Evict(Box<Search>),
    /// The server is lost that was asked of the user of this client.
    LookUpAgain(Token),
    /// About LISTEN.
    Listen(Box<Letter>),
    /// The pool has no server, and PostgreSQL lets none in: fail the clients that wait.
    Failed(Arc<SharedPool>),
    /// Logins of this worker are one too many: it is to be told once what has come to the receiver so far
    /// was read.
    CatchUp(WorkerId),
    /// What had come to some worker was read.
    CaughtUp,
    /// A cancel request that named a client of this worker.
    Cancel {
        /// Where the request came in.
        from: WorkerId,
        /// The request's connection there.
        request: Token,
        /// The key.
        key: CancelKey,
    },
    /// A client signals others, of which this worker may have some.
    Signal(Box<Order>),
    /// A cancel request for a client of another process of the group, which this worker passes on.
    CancelForPeer {
        /// Where the request came in.
        from: WorkerId,
        /// The request's connection there.
        request: Token,
        /// The key.
        key: CancelKey,
    },
    /// The cancel request of this connection is on its way to the server.
    CancelSent(Token),
    /// The cancel request of this connection has been dealt with, and how: close it.
    CancelDone(Token, &'static str),
    /// The host names that this console asked for.
    Names {
        /// The console's client.
        console: Token,
        /// What is known.
        names: KnownNames,
    },
    /// This host has another address now: servers at these ones are no longer to be used.
    AddressesGone {
        /// The name.
        host: Arc<str>,
        /// The addresses that it had.
        gone: Arc<[IpAddr]>,
    },
    /// Orders have changed (see [`Operator`](crate::Operator)): look.
    Obey,
    /// What this console waits for may have come.
    Awaited(Token),
    /// A console command that visits every worker in turn.
    Tour(Box<Tour>),
    /// A new configuration; takes effect whole.
    Config(Arc<Snapshot>),
    /// The outcome of a RELOAD or SET that a console asked for. What it changed has been mailed to
    /// every worker before.
    Configured {
        /// The console's client.
        console: Token,
        /// Did it take effect, and what is the operator to know of it?
        outcome: Result<Option<Note>, Fault>,
    },
    /// About an online restart.
    Takeover(Box<Word>),
    /// Counts for metrics, on their way through all workers.
    Measure(Box<Measurement>),
    /// Tell the control thread what was counted.
    Count,
    /// End the process.
    Shutdown(Shutdown),
}
