//! What a module of the worker is given with an event, and what it wants done elsewhere.

use crate::{
    Action, Actions, Time, Token, WorkerId,
    directory::{Directory, Snapshot},
    fault::Fault,
    mail::Mail,
};

/// What modules may know of the worker whose event they handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Env<'w> {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// What workers share.
    pub(crate) directory: &'w Directory,
    /// The configuration that the worker has.
    pub(crate) snapshot: &'w Snapshot,
    /// When the event happened.
    pub(crate) now: Time,
}

impl Env<'_> {
    /// Is much to be logged?
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }
}

/// What a module wants another one to do. The worker carries it out when the module has returned.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Close a client's connection, and log the reason.
    Dismiss(Token, &'static str),
    /// Tell a client this, and close its connection.
    Refuse(Token, Fault),
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// End the command that a console client waits for.
    EndConsoleCommand(Token),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
    /// Settle a server connection that is kept with its client, if somebody waits for it: no cancel request is on its way
    /// to it any more.
    Settle(Token),
    /// Go on cleaning a server connection, to which no cancel request is on its way any more.
    GoOnCleaning(Token),
}

/// Something that consoles wait for may have come.
pub(crate) fn wake_waiting_consoles(directory: &Directory, out: &mut Actions) {
    for (to, console) in directory.operator().waits() {
        let mail = Mail::Awaited(console);
        out.list.push(Action::Mail { to, mail });
    }
}
