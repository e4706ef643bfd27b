//! The server side: pgweir acts as a client of PostgreSQL. Logins to servers, and the replies that servers owe.

mod exchange;
mod failure;
mod login;
mod lookup;
mod mark;
mod own_names;
mod prepared;
mod replies;
mod request;
mod server;
mod session;
mod stream;

pub use exchange::{Exchange, Phase, Settling};
pub use login::{BackendKey, Credentials, LoginError, Progress, ServerLogin, TlsAnswer};
pub use lookup::Lookup;
pub use mark::{Change, Mark, MarkKind};
pub use own_names::OwnNames;
pub use prepared::{Prepared, Version};
pub use replies::{Front, Replies};
pub use request::{Own, Request};
pub use server::{Duty, Server, Unnamed};
pub use session::{Answers, CatalogRows, Doubted, SIGNALS, Sequences, ServerSession};
pub use stream::{Downstream, Expected, Step, Violation};
