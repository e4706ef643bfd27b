//! What a module of the worker gets with each event ([`Env`]), and what it asks other modules to do ([`Effect`]).

use std::sync::Arc;

use crate::{
    Action, Actions, Shutdown, Time, Token, WorkerId,
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
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// End the command that a console client waits for.
    EndConsoleCommand(Token),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
    /// Settle a kept server connection if a client waits for one: no cancel request is on its way to it any more.
    Settle(Token),
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
