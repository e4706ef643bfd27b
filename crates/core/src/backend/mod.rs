//! The server side, on which pgweir acts as a client of PostgreSQL: logins to servers, the messages of servers, their
//! outstanding replies, and their session state.

mod client_names;
mod duty;
mod host_race;
mod loan;
mod login;
mod login_failure;
mod login_queries;
mod lookup;
mod mark;
mod prepared;
mod repeatable;
mod replies;
mod request;
mod server;
mod session;
mod stream;
mod unfinished;

pub use client_names::{ClientNames, Naming};
pub use duty::Duty;
pub use host_race::{HostRace, RunningRace};
pub use loan::{Phase, Settling};
pub use login::{BackendKey, Credentials, LoginError, Progress, ServerLogin, TlsAnswer};
pub(crate) use login_queries::USABLE_CONNECTIONS;
pub use lookup::Lookup;
pub use mark::{Change, Mark, MarkKind};
pub use prepared::{Fit, Prepared, SettingsNow, Version};
pub(crate) use repeatable::{LossKind, ends_sessions};
pub use repeatable::{LostHosts, RepeatableRequest};
pub use replies::{Front, Replies};
pub use request::{InternalQuery, Request};
pub use server::{
    AnsweredUnnamed, NextLoan, Purpose, Retirement, Server, ServerLink, ServerStatements,
    ServerTimes, Unnamed,
};
pub(crate) use server::{OUTDATED, REDEFINED};
pub use session::{
    CatalogRows, ExtensionReports, Inspection, InspectionAnswers, InternalAnswer, InternalQueries,
    LastingState, LoanNotes, NextInspection, PoolLists, Rejections, SIGNALS, ServerNotifications,
    ServerSession, ServerSqlStatements, SessionSettings, TransactionState, UnexplainedParameters,
};
pub use stream::{Downstream, Ends, Expected, Step, Violation};
