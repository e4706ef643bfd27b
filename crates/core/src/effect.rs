//! The context of an event ([`Env`]), which a module gets with each event, and the effects ([`Effect`]) that it asks
//! other modules to carry out.

use std::sync::Arc;

use crate::{
    Actions, Endpoint, Search, SharedPool, Shutdown, Time, Token, WorkerId,
    backend::{InternalQuery, Mark, RepeatableRequest, Settling},
    base::{fault::Fault, memory::WorkerMemory, pin::Pins, stats::Stats},
    console::{NodeOutcome, WorkerRound},
    directory::{Directory, Snapshot},
    frontend::{AskedParameters, Client, Login},
    listen::{ListenerKey, ListenerOpening, Opened, PendingRequest},
    loan::{AbandonedSession, Early, Loss},
    mail::Mail,
    pool::PoolId,
    session::ChannelCommand,
    shared::pool::ServerParameters,
    transaction_trace::Sampler,
};

/// The data that modules may read while they handle an event of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Env<'w> {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// The data that workers share.
    pub(crate) directory: &'w Directory,
    /// The worker's configuration.
    pub(crate) snapshot: &'w Arc<Snapshot>,
    /// The way in which the process has to end, once that was ordered.
    pub(crate) shutdown: Option<Shutdown>,
    /// Whether this worker hands its clients over to a new process (online restart).
    pub(crate) hands_clients_over: bool,
    /// Decides which transactions are traced, if any are.
    pub(crate) sampler: Option<&'w Sampler>,
    /// The time of the event.
    pub(crate) now: Time,
}

impl Env<'_> {
    /// Returns whether the process lends no more servers, and ends when the last lent server has come back.
    #[inline]
    pub(crate) fn waits_for_servers(&self) -> bool {
        self.shutdown == Some(Shutdown::WaitForServers)
    }

    /// Returns the memory of all clients and servers, for this worker to take a part of it.
    #[inline]
    pub(crate) fn memory(&self) -> WorkerMemory<'_> {
        WorkerMemory {
            memory: self.directory.memory(),
            worker: self.worker,
        }
    }

    /// Returns whether details are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.snapshot.config.settings.verbose > 0
    }
}

/// A list of effects, in the order in which the worker carries them out. A list of one effect allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    first: Option<Effect>,
    others: Vec<Effect>,
}

impl Effects {
    /// Adds an effect after the others.
    #[inline]
    pub(crate) fn push(&mut self, effect: Effect) {
        match self.first {
            None => self.first = Some(effect),
            Some(_) => self.others.push(effect),
        }
    }

    /// Returns whether the list is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds effects after the others.
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
    /// Splits a list into its first effect and the others.
    #[inline]
    pub(crate) fn into_parts(self) -> (Option<Effect>, Vec<Effect>) {
        (self.first, self.others)
    }
}

/// An effect that a module asks another one to carry out. The worker passes it on when the module has returned. Effects
/// are moved several times in each transaction, so rare effects with much data have it in a box.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Do this for a client: its login, its wait for a server, its end.
    Client(ClientEffect),
    /// Do this with a server connection: its next use, its end.
    Server(ServerEffect),
    /// Do this for the console.
    Console(ConsoleEffect),
    /// Report to a client that its server connection is lost.
    ReportServerLoss(Token, Box<Loss>),
    /// Repeat the request of a client whose server connection is lost for this reason.
    RepeatRequest(Token, Box<(RepeatableRequest, Fault)>),
    /// Undo the changes of these messages, which a server that is lost has not answered.
    UndoMarks(Token, Vec<Mark>),
    /// Do this with the session on a server connection.
    Session(Token, SessionEffect),
    /// Continue a request on this server connection that signals other clients: the signals are sent.
    GoOnAfterSignals(Token),
    /// Freeze a new connection as soon as it is quiet, if the worker is suspended.
    FreezeIfSuspended(Token),
    /// Do this with a pool.
    Pool(PoolId, PoolEffect),
    /// End a cancel request that took longer than `cancel_wait_timeout`.
    EndCancelRequest(Token),
    /// Inform the owner of a connection that listens about the connection.
    Listener(ListenerEffect),
    /// Settle or release a server connection that its client may not need any longer.
    Settle(Token),
    /// Move the channels that a session listens to to the client's listener, and complete the client's request.
    MoveChannels(Token),
    /// Handle a LISTEN or UNLISTEN that the client of this server connection has sent.
    ChannelCommand(Token, Box<ChannelCommand>),
    /// Ask a server connection for the privileges by which its client signals other clients.
    AskForPrivileges(Token),
    /// Send the signals that a client has asked for, since its privileges are known.
    PrivilegesAnswered(Token),
    /// Continue a search for a server that may be closed for another pool.
    GoOnSearching(Box<Search>),
    /// End a search for a server that may be closed for another pool.
    EndSearch(Box<Search>),
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
}

const _: () = assert!(size_of::<Effect>() <= 40);

impl Effect {
    /// Creates the effect that closes a server connection, and logs the reason.
    #[inline]
    pub(crate) fn close(server: Token, why: &'static str) -> Self {
        Self::Server(ServerEffect::Close(server, why))
    }

    /// Creates the effect that opens a connection that listens:
    /// [`Listeners::opened`](crate::listeners::Listeners::opened) gets the outcome.
    pub(crate) fn open_listener(opening: ListenerOpening) -> Self {
        Self::Server(ServerEffect::OpenOwn(OwnConnection::Listener(Box::new(
            opening,
        ))))
    }

    /// Creates the effect that sends a client this error and closes its connection.
    pub(crate) fn refuse(client: Token, fault: Fault) -> Self {
        Self::Client(ClientEffect::Refuse(client, Box::new(fault)))
    }

    /// Creates the effect that closes a server connection, whose client gets this error.
    pub(crate) fn lose(server: Token, fault: Fault) -> Self {
        Self::Server(ServerEffect::Lose(server, Box::new(fault)))
    }

    /// Creates the effect that closes a server connection for this violation of the protocol.
    pub(crate) fn fault(server: Token, how: &str) -> Self {
        Self::Server(ServerEffect::Fault(server, how.into()))
    }
}

/// An effect on a client: on its login, its wait for a server, or its end.
#[derive(Debug)]
pub(crate) enum ClientEffect {
    /// Close a client's connection, and log the reason.
    Dismiss(Token, &'static str),
    /// Close a client's connection without sending an error, and log this error as the reason.
    DismissFor(Token, Box<Fault>),
    /// Send a client this error, and close its connection.
    Refuse(Token, Box<Fault>),
    /// Let a client that has authenticated share the servers of its pool. If the client's session state is carried
    /// between servers, the effect has the parameters of its startup packet.
    JoinPool(Token, Option<AskedParameters>),
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
    /// Serve a client whose request must see earlier writes, or let it wait until a host has replayed them.
    ReadAfterWrite(Token),
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
    /// Assign a client that has logged in to a pool in session mode to a worker: it can't move later.
    AssignWorker(Token),
    /// End the login of a client: send it these parameters of its exclusive server.
    Greet(Token, Box<ServerParameters>),
    /// Begin to relay between a client and a server that has passed its checks.
    BeginRelaying {
        /// The client.
        client: Token,
        /// The server connection.
        server: Token,
    },
    /// End a client with this error, and cancel its query.
    EndClient(Token, Box<Fault>),
    /// Close the client and the server connection that it keeps, since the client has hung up too long ago.
    EndHungUpClient(Token),
    /// Begin the session of a client, which has asked for these parameters.
    BeginSession(Token, AskedParameters),
    /// Release the parts of other modules' state that belong to a client that has gone.
    ReleaseClient(Token, Box<Client>),
    /// Count a client that has left this pool.
    PoolClientLeft(Arc<SharedPool>),
    /// Take a client's request out of the queue, and answer it with an error.
    DiscardRequest(Token),
}

/// The purpose of a connection that pgweir opens for itself, under the caps: no client gets it.
#[derive(Debug)]
pub(crate) enum OwnConnection {
    /// A connection that listens: [`Listeners::opened`](crate::listeners::Listeners::opened) gets the outcome.
    Listener(Box<ListenerOpening>),
    /// A connection that checks this host, with the user of this pool.
    HostCheck(Arc<SharedPool>, Arc<Endpoint>),
}

/// An effect on a server connection: on its next use, or its end.
#[derive(Debug)]
pub(crate) enum ServerEffect {
    /// Close a server connection, and log the reason.
    Close(Token, &'static str),
    /// Close a server connection, since its client is ended with this error.
    CloseFor(Token, Box<Fault>),
    /// Remove a server connection that is lost, and log the reason.
    Drop(Token, Box<str>),
    /// Clean or close the server connection of a client that has left this session state on it.
    CleanAbandoned(Token, AbandonedSession),
    /// Close a server connection if it is being cleaned after its client.
    CloseIfCleaning(Token),
    /// Close a server connection that is outdated, if `server_fast_close` allows that before its session ends.
    CloseIfOutdated(Token),
    /// Close a server connection that has been idle for too long, unless its pool needs the server.
    EndIdle(Token),
    /// Open a successor of a server connection that will soon be too old.
    OpenSuccessor(Token),
    /// Close a server connection as soon as it is not in use, and log the reason.
    Retire(Token, &'static str),
    /// Close a server connection that was opened under other session defaults, as soon as it is not in use.
    RetireRedefined(Token),
    /// End a server login that took longer than `server_connect_timeout`.
    EndLogin(Token),
    /// Open a connection to another host beside this one, whose host does not answer.
    BeginRace(Token),
    /// Close a server connection that can't be lent to the client that it was checked or cleaned for, and log the
    /// reason. The client gets another one.
    FailCheck(Token, &'static str),
    /// Lend, keep or close a server that has become free.
    Place(Token),
    /// Close a server connection for this violation of the protocol.
    Fault(Token, Box<str>),
    /// Open a connection for pgweir itself.
    OpenOwn(OwnConnection),
    /// Settle a server connection if it is still lent to this client.
    SettleFor {
        /// The server connection.
        server: Token,
        /// The client.
        client: Token,
    },
    /// Lend a server connection that has answered `server_check_query`.
    Checked(Token),
    /// Continue the login for which a server connection has run `auth_query`.
    LookupAnswered(Token),
    /// Note that a server connection has run `server_reset_query`.
    WasReset(Token),
    /// Clean a server connection that no client has, and lend it again.
    BeginCleaning(Token),
    /// End the COPY that a server connection reads for a client that has left.
    EndCopy(Token),
    /// Clean a server connection if needed, and make it available to others.
    GiveBack(Token),
    /// Close an idle server connection that has sent a fatal error.
    EndFailed(Token),
    /// Close a server connection that can't be used any more, and send its client this error.
    Lose(Token, Box<Fault>),
    /// Give a server connection the session state of this client, which has received all earlier notifications.
    Equip {
        /// The server connection.
        server: Token,
        /// The client.
        client: Token,
    },
    /// Continue to clean a server connection, since no cancel request is on its way to it any more.
    GoOnCleaning(Token),
}

/// An effect on the session on a server connection.
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

/// An effect on the console, which the console itself may ask for.
#[derive(Debug)]
pub(crate) enum ConsoleEffect {
    /// Serve a client that has sent these bytes together with the end of its login.
    Serve(Token, Vec<u8>),
    /// Read this client's next commands.
    GoOn(Token),
    /// Pass a round on to the next worker, or end it here.
    PassOn(Box<WorkerRound>),
    /// Check whether the event that this console client waits for has happened, and answer the client then.
    Check(Token),
    /// End the command of this client.
    EndCommand(Token),
    /// Remove a client that has gone.
    Left(Token),
    /// Answer a command with `ON ALL` of this client: what the nodes have answered, or why no node got it.
    AnswerOnAll(Token, Box<Result<Vec<NodeOutcome>, Fault>>),
}

/// The state of a connection that listens, for its owner.
#[derive(Debug)]
pub(crate) enum ListenerEffect {
    /// The attempt to open the connection has this outcome.
    Opened(Box<ListenerOpening>, Opened),
    /// This connection has logged in.
    LoggedIn(Token),
    /// The connection is lost.
    Lost(Box<LostListener>),
}

/// A connection that listened, or was to listen, and was lost.
#[derive(Debug)]
pub(crate) struct LostListener {
    pub(crate) conn: Token,
    pub(crate) key: ListenerKey,
    pub(crate) shared: Arc<SharedPool>,
    /// The reason.
    pub(crate) why: String,
}

/// An effect on a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolEffect {
    /// Apply PAUSE or RESUME, whichever is in force, to this pool.
    ApplyOrders,
    /// Apply the configured limits of this pool.
    ApplyLimits,
    /// Place each idle server of a pool again, after a change that may leave the pool with too many.
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
    /// Check again whether the clients of this pool keep their servers (`share_after`).
    UpdateSharing,
    /// Find the reason why clients of this worker wait in a pool, to send it to them.
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

/// An effect of an online restart.
#[derive(Debug)]
pub(crate) enum RestartEffect {
    /// Ask the other process for a place for one more server connection in this pool, in which a client waits.
    AskForServerPlace(Arc<SharedPool>),
    /// Hand over this client, which has received its answer, if it can leave now.
    RequestDone(Token),
    /// Forward a notification for a client that has left for the other process.
    ForwardNotification(Token, Arc<[u8]>),
    /// Handle the listener's answer about a client that has left for the other process.
    ForwardedAnswered(PendingRequest, bool),
    /// Handle the loss of the listener of a client that has left for the other process, with the reason.
    ForwardedLost(Token, Arc<str>),
    /// Handle the listener's answer about a client that was taken over: whether the listener listens.
    TakenOverListens(Token, bool),
    /// Note that a client that was taken over has received all notifications up to now.
    TakenOverFenced(Token),
    /// Stop the forwarding of notifications for all clients that have left.
    EndForwarding,
    /// Hand over all clients that are at a quiet point.
    HandOverQuietClients,
    /// Hand over this client if it is at a quiet point, with its server if it keeps one.
    HandOverClient(Token),
    /// Close servers that are free and not kept, and report the number of the others to the new process.
    ReleaseServerPlaces,
    /// Report the number of servers that are left to the new process.
    ReportServerPlaces,
    /// Ask the new process for places for clients that wait and can't leave.
    RequestServerPlaces,
    /// Check whether all clients have left.
    CheckEmpty,
    /// Apply the configuration again, since clients are no longer handed over.
    ApplyConfiguration,
    /// Count a client that was taken over in its pool.
    CountPoolClient(Arc<SharedPool>),
}

/// Makes the consoles that wait check whether the event that they wait for has happened.
pub(crate) fn wake_waiting_consoles(directory: &Directory, out: &mut Actions) {
    for (to, console) in directory.operator().waits() {
        let mail = Mail::Awaited(console);
        out.mail(to, mail);
    }
}
