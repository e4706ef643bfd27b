//! We play the client towards PostgreSQL: login, and the replies that a server owes.

mod login;
mod replies;
mod server;
mod stream;

pub use login::{BackendKey, Credentials, LoginError, Progress, ServerLogin, Welcome};
pub use replies::{Own, Replies, Request};
pub use server::{Duty, Server};
pub use stream::{Downstream, Step, Violation};
