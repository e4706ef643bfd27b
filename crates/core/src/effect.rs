//! What a module of the worker gets with each event ([`Env`]), and what it asks other modules to do ([`Effect`]).

use std::sync::Arc;

use crate::{
    Action, Actions, Search, SharedPool, Shutdown, Time, Token, WorkerId,
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
    /// Close a client's connection without an error, and log this one as the reason.
    DismissFor(Token, Fault),
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
    /// End a client with this error, and cancel its query.
    EndClient(Token, Fault),
    /// Close the client and the server connection that it keeps, since the client has hung up too long ago.
    EndHungUpClient(Token),
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// Close a server connection, since its client is ended with this error.
    CloseServerFor(Token, Fault),
    /// Do this with a pool.
    Pool(PoolId, PoolEffect),
    /// Close a server connection if it is being cleaned after its client.
    CloseIfCleaning(Token),
    /// Close a server connection that is outdated, if `server_fast_close` allows that before its session ends.
    CloseIfOutdated(Token),
    /// Close a server connection as soon as it is not in use, and log the reason.
    Retire(Token, &'static str),
    /// Close a server connection that was opened under other session defaults, as soon as it is not in use.
    RetireRedefinedServer(Token),
    /// End a server login that took longer than `server_connect_timeout`.
    EndServerLogin(Token),
    /// Close a server connection that has not answered the check before its loan.
    FailCheck(Token),
    /// End a cancel request that took longer than `cancel_wait_timeout`.
    EndCancelRequest(Token),
    /// Lend, keep or close a server that has become free.
    PlaceServer(Token),
    /// Answer a console client that waits, if what it waits for has happened.
    CheckConsole(Token),
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
    /// Do this for the online restart.
    Restart(RestartEffect),
    /// Go on cleaning a server connection, to which no cancel request is on its way any more.
    GoOnCleaning(Token),
}

/// What a module asks another one to do with a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolEffect {
    /// Apply PAUSE or RESUME, whichever is in force, to this pool.
    ApplyOrders,
    /// Apply the configured limits of this pool.
    ApplyLimits,
    /// Place each idle server of a pool again: there may be too many now.
    PlaceIdleAgain,
    /// Close the outdated servers of a pool as soon as they are not in use.
    RetireOutdated,
    /// Close the servers of a pool that were opened under other session defaults, as soon as they are not in use.
    RetireRedefined,
    /// Release the servers of a pool that clients keep without need.
    ReleaseKept,
    /// Open servers for the clients of a pool that bypass its limits and have waited for the end of a pause.
    ServeHeldClients,
    /// Make the servers of a pool available that clients keep without need.
    FreeKeptServers,
    /// Find out anew whether the clients of this pool keep their servers (`share_after`).
    UpdateSharing,
    /// Find out why clients of this worker wait in a pool, to send them the reason.
    Diagnose,
    /// Offer the servers of a pool that clients keep without need to clients that wait.
    OfferKeptServers,
}

/// What a module asks for during an online restart.
#[derive(Debug)]
pub(crate) enum RestartEffect {
    /// Pass a notification on for a client that has left for the other process.
    ForwardNotification(Token, Arc<[u8]>),
    /// The listener's answer for a client that has left for the other process.
    ForwardedAnswered(Question, bool),
    /// The listener of a client that has left for the other process is lost, and why.
    ForwardedLost(Token, Arc<str>),
    /// Whether a listener now listens for a client that was taken over.
    TakenOverListens(Token, bool),
    /// A client that was taken over has received all notifications up to now.
    TakenOverFenced(Token),
    /// Stop the forwarding of notifications for all clients that have left.
    EndForwarding,
    /// Hand over all clients that are at a quiet point.
    HandOverQuietClients,
    /// Hand over this client if it is at a quiet point, with its server if it keeps one.
    HandOverClient(Token),
    /// Close servers that are free and not kept, and report the rest to the new process.
    ReleaseServerPlaces,
    /// Report the servers that are left to the new process.
    ReportServerPlaces,
    /// Ask the new process for places for clients that wait and can't leave.
    RequestServerPlaces,
    /// Find out whether all clients have left.
    CheckEmpty,
    /// Apply the configuration again, since clients are no longer handed over.
    ApplyConfiguration,
    /// Count a client that was taken over in its pool.
    CountPoolClient(Token, Arc<SharedPool>),
    /// Complete the login of a client that was taken over.
    Welcome(Token),
}

/// Wakes the consoles that wait: what they wait for may have happened.
pub(crate) fn wake_waiting_consoles(directory: &Directory, out: &mut Actions) {
    for (to, console) in directory.operator().waits() {
        let mail = Mail::Awaited(console);
        out.list.push(Action::Mail { to, mail });
    }
}
