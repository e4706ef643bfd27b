//! What a module of the worker gets with each event ([`Env`]), and what it asks other modules to do ([`Effect`]).

use std::sync::Arc;

use crate::{
    Action, Actions, Search, Shutdown, Time, Token, WorkerId,
    directory::{Directory, Snapshot},
    fault::Fault,
    listen::{ListenerOpening, Question},
    loan::Early,
    mail::Mail,
    pin::Pins,
    pool::PoolId,
    stats::Stats,
};

/// What modules may read of the worker whose event they handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Env<'w> {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// The data that workers share.
    pub(crate) directory: &'w Directory,
    /// The worker's configuration.
    pub(crate) snapshot: &'w Arc<Snapshot>,
    /// How the process is to end, once that was ordered.
    pub(crate) shutdown: Option<Shutdown>,
    /// When the event happened.
    pub(crate) now: Time,
}

impl Env<'_> {
    /// Returns whether details are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }
}

/// What a module asks another one to do. The worker carries it out when the module has returned.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Close a client's connection, and log the reason.
    Dismiss(Token, &'static str),
    /// Send a client this error, and close its connection.
    Refuse(Token, Fault),
    /// Let a client that has authenticated share the servers of its pool. If its session moves between servers, the
    /// parameters of its startup packet are given.
    JoinPool(Token, Option<Vec<(Vec<u8>, Vec<u8>)>>),
    /// Let a client that logs in wait for a server of this pool.
    WaitAtLogin(Token, PoolId),
    /// Give a client a server for the request that it has sent.
    CheckOut(Token),
    /// Serve a client of the console, which has sent these bytes together with the end of its login.
    ServeConsole(Token, Vec<u8>),
    /// Apply PAUSE and RESUME to this worker's part of a pool.
    ApplyOrders(PoolId),
    /// Tell the other workers that nobody keeps them from ending in this way any more.
    AnnounceShutdown(Shutdown),
    /// End a client with this error, and cancel its query.
    EndClient(Token, Fault),
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// Close a server connection that violates the protocol; how.
    ServerFault(Token, String),
    /// Open a connection that listens: [`Listeners::opened`](crate::listeners::Listeners::opened) gets the outcome.
    OpenListener(Box<ListenerOpening>),
    /// End the command that a console client waits for.
    EndConsoleCommand(Token),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
    /// Settle or release a server connection that its client may need no longer.
    Settle(Token),
    /// Make the servers of a pool available that clients keep without need.
    FreeKeptServers(PoolId),
    /// Go on with a search for a server that may be closed for another pool.
    GoOnSearching(Box<Search>),
    /// End a search for a server that may be closed for another pool.
    EndSearch(Box<Search>),
    /// Give a server connection the session state of this client, which has received all earlier notifications.
    Equip {
        /// The server connection.
        server: Token,
        /// The client.
        client: Token,
    },
    /// Relay bytes of a client that were read before its server could get them.
    RelayEarly(Token, Early),
    /// Fence the notifications of the client of this server connection, whose channels are settled, and complete the
    /// client's request.
    FinishWithFence(Token),
    /// Complete the request of the client that this server connection is lent to.
    FinishRequest(Token),
    /// Add these to the statistics of a pool.
    Count(PoolId, Box<Stats>),
    /// Count and log new reasons for which a client keeps its server connection.
    CountPins {
        /// The client.
        client: Token,
        /// The server connection.
        server: Token,
        /// The new reasons.
        pins: Pins,
    },
    /// Online restart: pass a notification on for a client that has left for the other process.
    ForwardNotification(Token, Arc<[u8]>),
    /// Online restart: the listener's answer for a client that has left for the other process.
    ForwardedAnswered(Question, bool),
    /// Online restart: the listener of a client that has left for the other process is lost, and why.
    ForwardedLost(Token, Arc<str>),
    /// Online restart: whether a listener now listens for a client that was taken over.
    TakenOverListens(Token, bool),
    /// Online restart: a client that was taken over has received all notifications up to now.
    TakenOverFenced(Token),
    /// Go on cleaning a server connection, to which no cancel request is on its way any more.
    GoOnCleaning(Token),
}

/// Wakes the consoles that wait: what they wait for may have happened.
pub(crate) fn wake_waiting_consoles(directory: &Directory, out: &mut Actions) {
    for (to, console) in directory.operator().waits() {
        let mail = Mail::Awaited(console);
        out.list.push(Action::Mail { to, mail });
    }
}
