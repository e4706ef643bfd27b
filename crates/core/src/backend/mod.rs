//! We play the client towards PostgreSQL: login, and the replies that a server owes.

mod failure;
mod login;
mod prepared;
mod replies;
mod server;
mod stream;

pub use failure::Failure;
pub use login::{BackendKey, Credentials, LoginError, Progress, ServerLogin, Welcome};
pub use prepared::Prepared;
pub use replies::{Change, Mark, MarkKind, Own, Replies, Request};
pub use server::{Duty, Server, Unnamed};
pub use stream::{Downstream, Expected, Step, Violation};
