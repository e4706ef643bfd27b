//! One connection to PostgreSQL.

use std::sync::Arc;

use super::{
    BackendKey, Downstream, InternalQuery, Loan, Phase, Prepared, Replies, ServerLogin,
    ServerSession, Settling,
};
use crate::{
    Address, Endpoint, Replication, SharedPool, Time, TlsFacts, Token,
    fault::Words,
    listen::{Holder, ListenerKey},
    pool::{PoolId, Waiter},
    session::Tracked,
};

/// What a server is doing, and for whom.
///
/// ```text
/// Login -> Idle -> Lent -> [Cleaning] -> Idle
///      \-> Listening
/// ```
#[derive(Debug)]
pub enum Duty {
    /// It connects or logs in.
    Login(Box<ServerLogin>),
    /// Nobody uses it.
    Idle,
    /// It is lent to a client.
    Lent(Loan),
    /// It listens, for all clients of its pool that do; it is never lent.
    Listening,
    /// Nobody uses it, but replies are outstanding: of a client that left, or of our own cleaning.
    Cleaning {
        /// When patience ends and it is closed.
        until: Time,
        /// ROLLBACK was sent: once is enough.
        rolled_back: bool,
    },
}

impl Duty {
    /// Does it end after a time?
    pub(crate) fn has_deadline(&self) -> bool {
        match self {
            Self::Login(_) | Self::Cleaning { .. } => true,
            Self::Lent(loan) => matches!(loan.phase(), Phase::Checking { .. }),
            Self::Idle | Self::Listening => false,
        }
    }

    /// The phase of the loan, if there is one.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Option<&Phase> {
        match self {
            Self::Lent(loan) => Some(loan.phase()),
            _ => None,
        }
    }
}

/// Whose unnamed statement a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// It has none.
    None,
    /// The client's with this id, as of this version of it; or none.
    Of(u64, u32),
    /// Perhaps somebody's.
    Unknown,
}

/// One connection to PostgreSQL.
#[derive(Debug)]
pub struct Server {
    /// Shown in the console and the log; unique in the process.
    pub id: u64,
    /// Its pool.
    pub shared: Arc<SharedPool>,
    /// The client that it was opened for: it serves nobody else, and is closed with it.
    pub owner: Option<Token>,
    /// It counts in no limit of its pool's.
    pub bypass: bool,
    /// It was opened to listen: see [`crate::listen`].
    pub listens: Option<ListenerKey>,
    /// Whose work it does.
    pub holder: Holder,
    /// What it replicates.
    pub replication: Replication,
    /// What it is doing.
    pub duty: Duty,
    /// Where it is, for cancel requests.
    pub endpoint: Arc<Endpoint>,
    /// The two ends of the connection, once it is open.
    pub addresses: Option<(Address, Address)>,
    /// Its encryption, if there is one.
    pub tls: Option<Box<TlsFacts>>,
    /// Its incoming bytes.
    pub stream: Downstream,
    /// What it owes.
    pub replies: Replies,
    /// The statements that it holds for us.
    pub prepared: Prepared,
    /// A digest of the parameters of the statement whose columns come next.
    pub params: Option<u64>,
    /// Whose unnamed statement it has.
    pub unnamed: Unnamed,
    /// The status in its last ReadyForQuery: `I`, `T` or `E`.
    pub status: u8,
    /// The values of its tracked parameters.
    pub tracked: Tracked,
    /// What its session holds, and how that is known.
    pub session: ServerSession,
    /// Its cancel key.
    pub key: Option<BackendKey>,
    /// When it was opened.
    pub connected_at: Time,
    /// When its client last sent something to it.
    pub heard_at: Time,
    /// When it was lent last.
    pub lent_at: Time,
    /// When it came free last.
    pub freed_at: Time,
    /// `server_reset_query` is to be run before it is lent again.
    pub needs_reset: bool,
    /// Not to be lent again; the reason for the log.
    pub retire: Option<&'static str>,
    /// Another one was asked for that takes its place when it is too old.
    pub has_successor: bool,
    /// Cancel requests for it that are under way. It's not lent before they have ended.
    pub cancels: u32,
    /// Its pool's ledger knows that it is asked what is in the catalog.
    reads: bool,
    /// What it said before it went.
    pub last_words: Option<Words>,
    /// Its socket takes no more at present.
    pub blocked: bool,
    /// When it was opened, in terms of its pool's [`Epochs`](crate::pool::Epochs).
    pub epoch: u32,
    /// What its session began with ([`SharedPool::defaults`]).
    pub defaults: u32,
    /// The client of another worker that it's on its way to.
    pub destined: Option<Waiter>,
}

impl Server {
    /// One about which nothing is known yet.
    #[must_use]
    pub fn new(
        id: u64,
        shared: &Arc<SharedPool>,
        endpoint: Arc<Endpoint>,
        duty: Duty,
        tracked: Tracked,
        epoch: u32,
        now: Time,
    ) -> Self {
        Self {
            id,
            shared: Arc::clone(shared),
            owner: None,
            bypass: false,
            listens: None,
            holder: Holder::default(),
            replication: Replication::None,
            duty,
            endpoint,
            addresses: None,
            tls: None,
            stream: Downstream::default(),
            replies: Replies::default(),
            prepared: Prepared::default(),
            params: None,
            unnamed: Unnamed::None,
            status: b'I',
            tracked,
            session: ServerSession::default(),
            key: None,
            connected_at: now,
            heard_at: now,
            lent_at: now,
            freed_at: now,
            needs_reset: false,
            retire: None,
            has_successor: false,
            cancels: 0,
            reads: false,
            last_words: None,
            blocked: false,
            epoch,
            defaults: 0,
            destined: None,
        }
    }

    /// It is asked what is in the catalog, before anybody gets it.
    pub fn begins_reading(&mut self, now: Time) {
        if !std::mem::replace(&mut self.reads, true) {
            self.shared.ledger.lock().began_reading(now);
        }
    }

    /// Whatever it was asked, it has told, or is gone. `false` if it was asked nothing.
    #[inline]
    pub fn ends_reading(&mut self) -> bool {
        let has_read = std::mem::take(&mut self.reads);
        if has_read {
            self.shared.ledger.lock().ended_reading();
        }
        has_read
    }

    /// Its pool's id.
    #[must_use]
    #[inline]
    pub fn pool(&self) -> PoolId {
        self.shared.id
    }

    /// The schema that it sees.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> u32 {
        let own = self.session.schema;
        own.unwrap_or_else(|| self.shared.catalog.schema())
    }

    /// Its transaction may have changed the schema, and is over, or lost.
    #[cold]
    pub fn settle_schema(&mut self) {
        self.shared.catalog.schema_changed();
        if self.replies.is_last() || self.replies.is_settled() {
            self.session.schema = None;
        }
    }

    /// The client that it works for.
    #[must_use]
    pub fn client(&self) -> Option<Token> {
        match &self.duty {
            Duty::Lent(loan) => Some(loan.client()),
            _ => None,
        }
    }

    /// The client whose messages are passed on to this server, and the other way round.
    #[must_use]
    #[inline]
    pub fn relays_for(&self) -> Option<Token> {
        match &self.duty {
            Duty::Lent(loan) if loan.phase().relays() => Some(loan.client()),
            _ => None,
        }
    }

    /// The client whose session this server is given.
    #[must_use]
    pub fn equips(&self) -> Option<Token> {
        match &self.duty {
            Duty::Lent(loan) if matches!(loan.phase(), Phase::Equipping) => Some(loan.client()),
            _ => None,
        }
    }

    /// The client that is held back until something is known of this server's session.
    #[must_use]
    pub fn holds_client(&self) -> Option<Token> {
        match &self.duty {
            Duty::Lent(loan) if loan.phase().holds_client() => Some(loan.client()),
            _ => None,
        }
    }

    /// How its session is looked at, in phase Settling.
    #[must_use]
    pub fn settling(&self) -> Option<Settling> {
        match self.duty.phase() {
            Some(Phase::Settling(settling)) => Some(*settling),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn settling_mut(&mut self) -> Option<&mut Settling> {
        match &mut self.duty {
            Duty::Lent(loan) => loan.settling_mut(),
            _ => None,
        }
    }

    /// Since when it stays with its client without a look at the session.
    #[must_use]
    pub fn unsettled_since(&self) -> Option<Time> {
        self.duty.phase().and_then(Phase::unsettled_since)
    }

    /// Between two transactions of its client, or at the beginning of one: the client's side of the loan does not change.
    #[inline]
    pub fn enter(&mut self, phase: Phase) {
        let client = self.relays_for();
        debug_assert!(
            client.is_some() && phase.relays(),
            "{phase:?} after {:?}",
            self.duty
        );
        if let Some(client) = client {
            self.duty = Duty::Lent(Loan::new(client, phase));
        }
    }

    /// Does it do nothing for anybody: is it idle, or does it log in?
    #[must_use]
    pub fn is_unused(&self) -> bool {
        matches!(self.duty, Duty::Idle | Duty::Login(_))
    }

    /// Does it clean up, after a client or for the next?
    #[must_use]
    pub fn is_cleaning(&self) -> bool {
        matches!(self.duty, Duty::Cleaning { .. })
    }

    /// Is it to be checked before it is lent, as it was last in use so many microseconds ago?
    #[must_use]
    #[inline]
    pub fn is_stale(&self, check_after: u64, now: Time) -> bool {
        // One that has just logged in is fresh.
        now.since(self.freed_at) >= check_after
            && (check_after > 0 || self.lent_at > self.connected_at)
    }

    /// Notes a query of our own, which is about to be sent.
    pub fn ask(&mut self, own: InternalQuery) {
        self.replies.internal_query_sent(own);
        // A simple query ends the unnamed statement.
        self.unnamed = Unnamed::None;
    }
}
