//! What a module of the worker gets with each event ([`Env`]), and what it asks other modules to do ([`Effect`]).

use std::sync::Arc;

use crate::{
    Action, Actions, Search, SharedPool, Shutdown, Time, Token, WorkerId,
    backend::{InternalQuery, Mark, Settling},
    console::WorkerRound,
    directory::{Directory, Snapshot},
    fault::Fault,
    frontend::{Client, Login},
    listen::{ListenerKey, ListenerOpening, Opened, Question},
    loan::{AbandonedSession, Early, Loss},
    mail::Mail,
    pin::Pins,
    pool::PoolId,
    session::ChannelCommand,
    shared_pool::ServerParameters,
    stats::Stats,
    transaction_trace::Sampler,
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
    /// Whether this worker hands its clients over to a new process (online restart).
    pub(crate) hands_clients_over: bool,
    /// Decides which transactions are traced, if any are.
    pub(crate) sampler: Option<&'w Sampler>,
    /// When the event happened.
    pub(crate) now: Time,
}

impl Env<'_> {
    /// Returns whether no server is lent any more, and the process ends when the last lent server was given back.
    #[inline]
    pub(crate) fn waits_for_servers(&self) -> bool {
        self.shutdown == Some(Shutdown::WaitForServers)
    }

    /// Returns whether details are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }
}

/// Effects in the order in which the worker carries them out. One effect allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    first: Option<Effect>,
    others: Vec<Effect>,
}

impl Effects {
    /// Adds an effect behind the others.
    #[inline]
    pub(crate) fn push(&mut self, effect: Effect) {
        match self.first {
            None => self.first = Some(effect),
            Some(_) => self.others.push(effect),
        }
    }

    /// Returns whether there is nothing to do.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds effects behind the others.
    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            self.push(effect);
        }
    }
}

impl FromIterator<Effect> for Effects {
    #[inline]
    fn from_iter<T: IntoIterator<Item = Effect>>(effects: T) -> Self {
        let mut all = Self::default();
        all.extend(effects);
        all
    }
}

impl From<Effect> for Effects {
    #[inline]
    fn from(effect: Effect) -> Self {
        Self {
            first: Some(effect),
            others: Vec::new(),
        }
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Effect>, std::vec::IntoIter<Effect>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

impl Effects {
    /// Takes the effects apart: the first one, and those that follow it.
    #[inline]
    pub(crate) fn into_parts(self) -> (Option<Effect>, Vec<Effect>) {
        (self.first, self.others)
    }
}

/// What a module asks another one to do. The worker carries it out when the module has returned. Effects are copied on the
/// way of each transaction, so large data that is rare lies in a box.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Close a client's connection, and log the reason.
    Dismiss(Token, &'static str),
    /// Close a client's connection without an error, and log this one as the reason.
    DismissFor(Token, Box<Fault>),
    /// Send a client this error, and close its connection.
    Refuse(Token, Box<Fault>),
    /// Let a client that has authenticated share the servers of its pool. If its session moves between servers, the
    /// parameters of its startup packet are given.
    JoinPool(Token, Option<Vec<(Vec<u8>, Vec<u8>)>>),
    /// Welcome a client that has joined its pool, or let it wait for the pool's first server.
    EnterPool(Token),
    /// Let a client wait for a server of this pool.
    Wait {
        /// The client.
        client: Token,
        /// The pool.
        pool: PoolId,
        /// Whether the client logs in.
        at_login: bool,
    },
    /// Add a client to the queue of this pool, whose kept servers were announced.
    JoinQueue {
        /// The client.
        client: Token,
        /// The pool.
        pool: PoolId,
        /// Whether the client logs in.
        at_login: bool,
    },
    /// Give a client a server for the request that it has sent.
    CheckOut(Token),
    /// Give a client another server, since its server was lost before any of the client's bytes were read.
    CheckOutAgain(Token),
    /// Open an exclusive server for a client that is exempt from the limits.
    OpenForClient(Token, Arc<SharedPool>),
    /// Let an idle server look up the user of a client that logs in.
    ServeLookup {
        /// The server connection.
        server: Token,
        /// The client.
        client: Token,
        /// The client's login.
        login: Box<Login>,
    },
    /// End the login of a client: send it the parameters that servers of its pool have reported.
    Welcome(Token),
    /// End the login of a client: send it these parameters of its exclusive server.
    Greet(Token, Box<ServerParameters>),
    /// Relay between a client and the server that is certain now.
    BeginRelaying {
        /// The client.
        client: Token,
        /// The server connection.
        server: Token,
    },
    /// Do this for the console.
    Console(ConsoleEffect),
    /// End a client with this error, and cancel its query.
    EndClient(Token, Box<Fault>),
    /// Close the client and the server connection that it keeps, since the client has hung up too long ago.
    EndHungUpClient(Token),
    /// Close a server connection, and log the reason.
    CloseServer(Token, &'static str),
    /// Close a server connection, since its client is ended with this error.
    CloseServerFor(Token, Box<Fault>),
    /// Remove a server connection that is lost, and log the reason.
    DropServer(Token, String),
    /// Report to a client that its server connection is lost.
    ReportServerLoss(Token, Box<Loss>),
    /// Undo the changes of these messages, which a server that is lost has not answered.
    UndoMarks(Token, Vec<Mark>),
    /// Begin the session of a client, which has asked for these parameters.
    BeginSession(Token, Vec<(Vec<u8>, Vec<u8>)>),
    /// Do this with the session on a server connection.
    Session(Token, SessionEffect),
    /// Clean or close the server connection of a client that has left, and has left this session state.
    CleanAbandonedServer(Token, AbandonedSession),
    /// Release what modules hold of a client that has gone.
    ReleaseClient(Token, Box<Client>),
    /// Count a client that has left this pool.
    PoolClientLeft(Arc<SharedPool>),
    /// Go on with a request on this server connection that signals other clients, once the signals are sent.
    GoOnAfterSignals(Token),
    /// Freeze a new connection as soon as it is quiet, if the worker is suspended.
    FreezeIfSuspended(Token),
    /// Do this with a pool.
    Pool(PoolId, PoolEffect),
    /// Close a server connection if it is being cleaned after its client.
    CloseIfCleaning(Token),
    /// Close a server connection that is outdated, if `server_fast_close` allows that before its session ends.
    CloseIfOutdated(Token),
    /// Close a server connection that has been idle for too long, unless its pool needs the server.
    EndIdleServer(Token),
    /// Open a successor of a server connection that will soon be too old.
    OpenSuccessor(Token),
    /// Close a server connection as soon as it is not in use, and log the reason.
    Retire(Token, &'static str),
    /// Close a server connection that was opened under other session defaults, as soon as it is not in use.
    RetireRedefinedServer(Token),
    /// End a server login that took longer than `server_connect_timeout`.
    EndServerLogin(Token),
    /// Close a server connection that can't be lent to the client that it was checked or cleaned for, and log the
    /// reason. The client gets another one.
    FailCheck(Token, &'static str),
    /// End a cancel request that took longer than `cancel_wait_timeout`.
    EndCancelRequest(Token),
    /// Lend, keep or close a server that has become free.
    PlaceServer(Token),
    /// Close a server connection that violates the protocol; how.
    ServerFault(Token, String),
    /// Open a connection that listens: [`Listeners::opened`](crate::listeners::Listeners::opened) gets the outcome.
    OpenListener(Box<ListenerOpening>),
    /// Tell the owner of a connection that listens what has become of it.
    Listener(ListenerEffect),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
    /// Settle or release a server connection that its client may need no longer.
    Settle(Token),
    /// Do the same if the server connection is still lent to this client.
    SettleFor {
        /// The server connection.
        server: Token,
        /// The client.
        client: Token,
    },
    /// Move the channels that a session listens to to the client's listener, and complete the client's request.
    MoveChannels(Token),
    /// Handle a LISTEN or UNLISTEN that the client of this server connection has sent.
    ChannelCommand(Token, Box<ChannelCommand>),
    /// Lend a server connection that has answered `server_check_query`.
    Checked(Token),
    /// Ask a server connection for the privileges by which its client signals other clients.
    AskForPrivileges(Token),
    /// Send the signals that a client has asked for, since its privileges are known.
    PrivilegesAnswered(Token),
    /// Go on with the login for which a server connection has run `auth_query`.
    LookupAnswered(Token),
    /// Note that a server connection has run `server_reset_query`.
    WasReset(Token),
    /// Clean a server connection that no client has, and lend it again.
    BeginCleaning(Token),
    /// End the COPY that a server connection reads for a client that has left.
    EndCopy(Token),
    /// Clean a server connection if needed, and pass it on.
    GiveBack(Token),
    /// Close an idle server connection that has sent a fatal error.
    EndFailedServer(Token),
    /// Close a server connection that can't be used any more, and send its client this error.
    LoseServer(Token, Box<Fault>),
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
    /// Do this for an online restart.
    Restart(RestartEffect),
    /// Go on cleaning a server connection, to which no cancel request is on its way any more.
    GoOnCleaning(Token),
}

const _: () = assert!(size_of::<Effect>() <= 40);

/// What a module asks for the session on a server connection.
#[derive(Debug)]
pub(crate) enum SessionEffect {
    /// Give the server the session state of a client to which it is lent.
    Equip {
        /// The client.
        client: Token,
    },
    /// Try the startup parameters of this client, which logs in.
    TryStartup(Token),
    /// Inspect the session after the client has received its ReadyForQuery.
    Inspect(Settling),
    /// Inspect the session before the client gets its ReadyForQuery, which is held back.
    InspectHeld,
    /// Decide whether the server stays with its client, though its session state allows no other client in it. If it
    /// does not stay, release the server.
    KeepOrRelease {
        /// Whether the client is pinned.
        is_pinned: bool,
        /// Whether the client keeps its server in any case.
        is_kept: bool,
    },
    /// Process the end of the server's answer to one of pgweir's own queries.
    Answered(InternalQuery),
    /// Fence the notifications of the client, whose channels are settled, and complete the client's request.
    FinishWithFence,
    /// Complete the client's request.
    FinishRequest,
    /// Withdraw the announcement of a kept server that was to be settled for waiters, if its client still has it.
    WithdrawIfPinned,
    /// Count a server that a pinned client keeps.
    CountPinned,
    /// Clean the session.
    Clean,
    /// Read the catalog of the server's database, if no other server does, and otherwise lend the server.
    ReadCatalogOrLend,
}

/// What a module, or the console itself, asks of the console.
#[derive(Debug)]
pub(crate) enum ConsoleEffect {
    /// Serve a client that has sent these bytes together with the end of its login.
    Serve(Token, Vec<u8>),
    /// Read this client's next commands.
    GoOn(Token),
    /// Pass a round on to the next worker, or end it here.
    PassOn(Box<WorkerRound>),
    /// Answer a client that waits, if what it waits for has happened.
    Check(Token),
    /// End the command that a client waits for.
    EndCommand(Token),
    /// Forget a client that has gone.
    Left(Token),
}

/// What has become of a connection that listens.
#[derive(Debug)]
pub(crate) enum ListenerEffect {
    /// The attempt to open the connection has this outcome.
    Opened(Box<ListenerOpening>, Opened),
    /// This connection has logged in.
    LoggedIn(Token),
    /// The connection is lost.
    Lost(Box<LostListener>),
}

/// A connection that listened, or was to listen, and is lost.
#[derive(Debug)]
pub(crate) struct LostListener {
    pub(crate) conn: Token,
    pub(crate) key: ListenerKey,
    pub(crate) shared: Arc<SharedPool>,
    /// The reason.
    pub(crate) why: String,
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
    /// Offer the servers of a pool to clients that wait, if any may.
    OfferWhileClientsWait,
    /// Open servers for a pool that has too few, or remove a pool that has been unused for too long.
    FillOrRemove,
    /// Offer the idle servers of a pool to clients that wait on any worker.
    OfferIdleServers,
    /// Inform the ledger of a pool that this worker has offered all of its servers.
    AnswerLedger,
    /// Announce the kept servers of a pool that are about to be settled for a client that begins to wait.
    AnnounceKeptServers,
    /// Settle as many kept servers of a pool as clients wait for.
    SettleForWaiters,
    /// Settle all kept servers of a pool.
    SettleKeptServers,
    /// Release each server of a pool that is lent, and that its client no longer needs.
    ReleaseLentServers,
}

/// What a module asks for during an online restart.
#[derive(Debug)]
pub(crate) enum RestartEffect {
    /// Ask the other process for the place of one more server connection in this pool, in which a client waits.
    AskForServerPlace(Arc<SharedPool>),
    /// Hand over this client, which has its answer, if it can leave now.
    RequestDone(Token),
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
    CountPoolClient(Arc<SharedPool>),
}

/// Wakes the consoles that wait: what they wait for may have happened.
pub(crate) fn wake_waiting_consoles(directory: &Directory, out: &mut Actions) {
    for (to, console) in directory.operator().waits() {
        let mail = Mail::Awaited(console);
        out.list.push(Action::Mail { to, mail });
    }
}
