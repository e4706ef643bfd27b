//! The client side: pgweir acts as a PostgreSQL server, for the login and then for messages.

mod cancel_key;
mod client;
mod discard;
mod login;
mod moved_client;
mod options;
mod request;
mod unnamed_statement;
mod upstream;

pub use cancel_key::ClientKey;
pub(crate) use client::MustSee;
pub use client::{Client, ClientDuty, ClientSocket, Held, Origin, RequestTimes};
pub use discard::{Discard, Discarded, End};
pub use login::{AuthPlan, Login, Proof, Stage};
pub use moved_client::MovedClient;
pub(crate) use moved_client::MovedStatement;
pub use request::{AskedParameters, LoginRequest, StartupTerms};
pub use unnamed_statement::UnnamedStatement;
pub use upstream::{Head, Upstream};
