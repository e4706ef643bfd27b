//! What a module of the worker gets with each event ([`Env`]), and what it asks other modules to do ([`Effect`]).

use std::sync::Arc;

use crate::{
    Action, Actions, Search, SharedPool, Time, Token, WorkerId,
    directory::{Directory, Snapshot},
    fault::Fault,
    mail::Mail,
    pool::PoolId,
};

/// What modules may read of the worker whose event they handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Env<'w> {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// The data that workers share.
    pub(crate) directory: &'w Directory,
    /// The worker's configuration.
    pub(crate) snapshot: &'w Snapshot,
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
    /// End a client with this error, and cancel its query.
    EndClient(Token, Fault),
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// Close a server connection if it is being cleaned after its client.
    CloseIfCleaning(Token),
    /// Close a server connection as soon as it is not in use, and log the reason.
    Retire(Token, &'static str),
    /// Close a server connection that was opened under other session defaults, as soon as it is not in use.
    RetireRedefinedServer(Token),
    /// Close a connection that listens, once its replacement has taken over, and log the reason.
    ReplaceListener(Token, &'static str),
    /// Apply PAUSE or RESUME, whichever is in force, to this pool.
    ApplyOrders(PoolId),
    /// Apply the configured limits of this pool.
    ApplyLimits(PoolId),
    /// Find out anew whether the clients of this pool keep their servers (`share_after`).
    UpdateSharing(Arc<SharedPool>),
    /// Place each idle server of a pool again: there may be too many now.
    PlaceIdleAgain(PoolId),
    /// Lend, keep or close a server that has become free.
    PlaceServer(Token),
    /// Close the outdated servers of a pool as soon as they are not in use.
    RetireOutdated(PoolId),
    /// Close the servers of a pool that were opened under other session defaults, as soon as they are not in use.
    RetireRedefined(PoolId),
    /// Release the servers of a pool that clients keep without need.
    ReleaseKept(PoolId),
    /// Open servers for the clients of a pool that bypass its limits and have waited for the end of a pause.
    ServeHeldClients(PoolId),
    /// Answer a console client that waits, if what it waits for has happened.
    CheckConsole(Token),
    /// End the command that a console client waits for.
    EndConsoleCommand(Token),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
    /// Settle a kept server connection if a client waits for one: no cancel request is on its way to it any more.
    Settle(Token),
    /// Make the servers of a pool available that clients keep without need.
    FreeKeptServers(PoolId),
    /// Go on with a search for a server that may be closed for another pool.
    GoOnSearching(Box<Search>),
    /// End a search for a server that may be closed for another pool.
    EndSearch(Box<Search>),
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
