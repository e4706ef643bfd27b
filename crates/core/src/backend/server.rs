//! One server connection: what it is used for at present ([`Duty`]), the stream of its messages,
//! its outstanding replies, its statements and its session state.

mod link;
mod next_loan;
mod purpose;
mod retirement;
mod statements;
mod times;

use std::sync::{Arc, atomic::Ordering};

pub use self::{
    link::ServerLink,
    next_loan::NextLoan,
    purpose::Purpose,
    retirement::Retirement,
    statements::{AnsweredUnnamed, ServerStatements, Unnamed},
    times::ServerTimes,
};

use super::{
    Downstream, Duty, InternalQuery, Phase, Prepared, Replies, ServerLogin, ServerSession, Settling,
};
use crate::{
    Address, Endpoint, SharedPool, Time, Token,
    listen::Holder,
    pool::PoolId,
    session::Tracked,
    shared::departures::Stream,
    statement_statistics::{RunningStatements, StatementPool},
};

/// The reason for closing servers that were opened before a RECONNECT, or before a change of their database's entry.
pub(crate) const OUTDATED: &str = "database configuration changed";

/// The reason for closing servers that were opened under other session defaults.
pub(crate) const REDEFINED: &str = "session defaults have changed, or types that functions keep";

/// One server connection.
#[derive(Debug)]
pub struct Server {
    /// The id that the console and the log show; unique in the process.
    id: u64,
    /// The server's pool.
    pub(crate) shared: Arc<SharedPool>,
    /// The clients that may use the connection.
    purpose: Purpose,
    /// The client to which the server is lent, or was lent last.
    holder: Holder,
    /// The use of the connection. Only the moves of [`crate::connections`] change it.
    duty: Duty,
    /// The connection to PostgreSQL.
    pub(crate) link: ServerLink,
    /// The incoming bytes.
    pub(crate) stream: Downstream,
    /// The outstanding replies.
    pub(crate) replies: Replies,
    /// The statements that the server has, except those of SQL's PREPARE.
    pub(crate) statements: ServerStatements,
    /// The status in the last ReadyForQuery: `I`, `T` or `E`.
    status: u8,
    /// The values of the tracked parameters.
    pub(crate) tracked: Tracked,
    /// The session state as far as pgweir knows it.
    pub(crate) session: ServerSession,
    /// The times of the connection and its loans.
    pub(crate) times: ServerTimes,
    /// Whether the connection must be replaced.
    pub(crate) retirement: Retirement,
    /// The work that must end before the next loan.
    pub(crate) next_loan: NextLoan,
    /// Whether the pool's ledger expects that this server comes free soon.
    is_announced: bool,
}

impl Server {
    /// Creates a server connection that is being opened.
    #[must_use]
    pub fn new(
        id: u64,
        shared: &Arc<SharedPool>,
        endpoint: Arc<Endpoint>,
        duty: Duty,
        tracked: Tracked,
        retirement: Retirement,
        now: Time,
    ) -> Self {
        Self {
            id,
            shared: Arc::clone(shared),
            purpose: Purpose::Pool,
            holder: Holder::default(),
            duty,
            link: ServerLink::new(endpoint),
            stream: Downstream::default(),
            replies: Replies::default(),
            statements: ServerStatements {
                prepared: Prepared::default(),
                running: RunningStatements::default(),
                params: None,
                unnamed: Unnamed::None,
                answered_unnamed: AnsweredUnnamed::Foreign,
            },
            status: b'I',
            tracked,
            session: ServerSession::default(),
            times: ServerTimes::new(now),
            retirement,
            next_loan: NextLoan::default(),
            is_announced: false,
        }
    }

    /// Notes that the connection streams WAL or changes to its client.
    pub fn begin_stream(&mut self, begun: Stream) {
        if let Purpose::Client { stream, .. } = &mut self.purpose {
            *stream = Some(begun);
        }
    }

    /// Returns the same connection, opened for another purpose than the clients of its pool.
    #[must_use]
    pub fn with_purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Returns the id that the console and the log show; unique in the process.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the client to which the server is lent, or was lent last.
    #[must_use]
    #[inline]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the status in the last ReadyForQuery: `I`, `T` or `E`.
    #[must_use]
    #[inline]
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Notes the status in a ReadyForQuery.
    #[inline]
    pub fn note_ready(&mut self, status: u8) {
        self.status = status;
    }

    /// Returns whether no transaction was open at the last ReadyForQuery.
    #[must_use]
    #[inline]
    pub fn is_outside_transaction(&self) -> bool {
        self.status == b'I'
    }

    /// Returns whether a failed transaction was open at the last ReadyForQuery.
    #[must_use]
    #[inline]
    pub fn has_failed_transaction(&self) -> bool {
        self.status == b'E'
    }

    /// Returns the clients that may use the connection.
    #[must_use]
    #[inline]
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Returns the pool for which the server's statements are counted.
    #[inline]
    pub(crate) fn statement_pool(&self) -> StatementPool<'_> {
        StatementPool {
            number: self.shared.number(),
            key: &self.shared.key,
        }
    }

    /// Tells the ledger that this server comes free soon, so that it opens no other one for a client that waits: the server
    /// reads the catalog first, or its client's session is inspected.
    pub fn announce(&mut self, now: Time) {
        if !std::mem::replace(&mut self.is_announced, true) {
            self.shared.ledger.lock().began_reading(now);
        }
    }

    /// Returns whether the ledger expects that this server comes free soon.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Tells the ledger that this server has come free, stays with its client, or is lost. Returns whether it was announced.
    #[inline]
    pub fn end_announcement(&mut self) -> bool {
        let was_announced = std::mem::take(&mut self.is_announced);
        if was_announced {
            self.shared.ledger.lock().ended_reading();
        }
        was_announced
    }

    /// Removes the server from the count of those that pinned clients keep: the server is free or closed. Returns whether
    /// the pool had more servers because of the pinned client than it may have now.
    #[inline]
    pub fn uncount_pinned(&mut self) -> bool {
        if !self.session.lists.uncount() {
            return false;
        }
        let mut ledger = self.shared.ledger.lock();
        ledger.unpin();
        ledger.is_above_size()
    }

    /// Returns the server's name for the log.
    #[must_use]
    pub fn subject(&self) -> String {
        let key = &self.shared.key;
        let at = match self.link.addresses() {
            Some((_, Address::Tcp(remote))) => remote.to_string(),
            _ => self.link.endpoint().to_string(),
        };
        format!("S-{:#x}: {}/{}@{at}", self.id, key.database, key.user)
    }

    /// Returns the id of the pool.
    #[must_use]
    #[inline]
    pub fn pool(&self) -> PoolId {
        self.shared.id
    }

    /// Returns the schema that the server sees.
    #[must_use]
    #[inline]
    pub fn schema(&self) -> u32 {
        let own = self.session.transaction.schema();
        own.unwrap_or_else(|| self.shared.catalog.schema())
    }

    /// Returns whether the server may have plans of functions or statements that were made before the schema was last
    /// changed, so that a name in them may mean another object now. PostgreSQL itself discards a plan only if an object
    /// was changed that the plan uses. From now on, the plans count as made under the present schema.
    #[inline]
    pub fn take_outdated_plans(&mut self) -> bool {
        let schema = self.shared.catalog.schema();
        let before = self.statements.prepared.plans_made_under(schema);
        before.is_some_and(|before| before != schema)
    }

    /// Publishes a possible change of the schema, after the transaction has ended or was lost.
    #[cold]
    pub fn settle_schema(&mut self) {
        self.shared.catalog.schema_changed();
        if self.replies.is_last() || self.replies.is_settled() {
            self.session.transaction.forget_schema();
        }
    }

    /// Returns the use of the connection.
    #[must_use]
    #[inline]
    pub fn duty(&self) -> &Duty {
        &self.duty
    }

    /// Changes the use of the connection, and returns the former one. Only the moves of [`crate::connections`] call this.
    /// If the loan ends, the notes about the client are dropped ([`LoanNotes`](super::LoanNotes)).
    #[inline]
    pub(crate) fn change_duty(&mut self, duty: Duty) -> Duty {
        if duty.phase().is_none() {
            self.session.end_loan();
        }
        std::mem::replace(&mut self.duty, duty)
    }

    /// Returns the login, if the connection is opened or logs in.
    pub(crate) fn login_mut(&mut self) -> Option<&mut ServerLogin> {
        match &mut self.duty {
            Duty::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Notes that pgweir's present query on a server that listens has failed.
    pub(crate) fn note_failed_query(&mut self) {
        if let Duty::Listening { query_failed } = &mut self.duty {
            *query_failed = true;
        }
    }

    /// Notes that pgweir's query on a server that listens has ended. Returns whether it has failed.
    pub(crate) fn end_listener_query(&mut self) -> bool {
        match &mut self.duty {
            Duty::Listening { query_failed } => std::mem::take(query_failed),
            _ => false,
        }
    }

    /// Makes the cleaning end at this time, or earlier.
    pub(crate) fn limit_cleaning(&mut self, until: Time) {
        if let Duty::Cleaning { until: end, .. } = &mut self.duty {
            *end = until.min(*end);
        }
    }

    /// Notes that the cleaning sends ROLLBACK. Returns whether it has sent one before.
    pub(crate) fn rolls_back_again(&mut self) -> bool {
        match &mut self.duty {
            Duty::Cleaning { rolled_back, .. } => std::mem::replace(rolled_back, true),
            _ => false,
        }
    }

    /// Returns the client that the server works for.
    #[must_use]
    #[inline]
    pub fn client(&self) -> Option<Token> {
        self.client_in(|_| true)
    }

    /// Returns the client that the server works for, if the loan is in one of these phases.
    #[inline(always)]
    fn client_in(&self, is_wanted: impl FnOnce(&Phase) -> bool) -> Option<Token> {
        match self.duty {
            Duty::Lent { client, ref phase } if is_wanted(phase) => Some(client),
            _ => None,
        }
    }

    /// Returns the client whose messages are relayed to this server and back.
    #[must_use]
    #[inline]
    pub fn relays_for(&self) -> Option<Token> {
        self.client_in(Phase::relays)
    }

    /// Returns the client whose session state this server is being given.
    #[must_use]
    pub fn equips(&self) -> Option<Token> {
        self.client_in(|phase| matches!(phase, Phase::Equipping))
    }

    /// Returns the client that is held back until this server's session state is known.
    #[must_use]
    #[inline]
    pub fn holds_client(&self) -> Option<Token> {
        self.client_in(Phase::holds_client)
    }

    /// Returns the way in which the session is inspected, in phase Settling.
    #[must_use]
    pub fn settling(&self) -> Option<Settling> {
        match self.duty.phase() {
            Some(Phase::Settling(settling)) => Some(*settling),
            _ => None,
        }
    }

    /// Returns the same, mutable.
    pub fn settling_mut(&mut self) -> Option<&mut Settling> {
        match &mut self.duty {
            Duty::Lent {
                phase: Phase::Settling(settling),
                ..
            } => Some(settling),
            _ => None,
        }
    }

    /// Returns since when the server stays with its client without an inspection.
    #[must_use]
    pub fn unsettled_since(&self) -> Option<Time> {
        self.duty.phase().and_then(Phase::unsettled_since)
    }

    /// Returns whether only one client uses the server: see [`Purpose::Client`].
    #[must_use]
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.purpose.owner().is_some()
    }

    /// Returns whether the server serves any client of its pool.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.purpose, Purpose::Pool)
    }

    /// Makes pgweir close the server when it is free, if it has missed a RECONNECT or a change of the session defaults
    /// on its way from another worker or process.
    pub fn retire_if_outdated(&mut self) {
        if self.retirement.epoch() != self.shared.epochs.lock().present() {
            self.retirement.require(OUTDATED);
        }
        if self.retirement.defaults() != self.shared.defaults.load(Ordering::Acquire)
            && self.is_shared()
        {
            self.retirement.require(REDEFINED);
        }
    }

    /// Returns whether the server is idle or logs in.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        matches!(self.duty, Duty::Idle | Duty::Login(_))
    }

    /// Returns whether the server is cleaned, after a client or for the next one.
    #[must_use]
    pub fn is_cleaning(&self) -> bool {
        matches!(self.duty, Duty::Cleaning { .. })
    }

    /// Returns whether the server must be checked before a loan, since it was last in use so many microseconds ago.
    #[must_use]
    #[inline]
    pub fn is_stale(&self, check_after: u64, now: Time) -> bool {
        // A server that has just logged in needs no check.
        now.since(self.times.freed_at()) >= check_after
            && (check_after > 0 || self.times.was_lent())
    }

    /// Notes an internal query that is about to be sent.
    pub fn ask(&mut self, own: InternalQuery) {
        self.replies.internal_query_sent(own);
        // A simple query drops the unnamed statement.
        self.statements.unnamed = Unnamed::None;
    }
}
