//! The client side: pgweir acts as a PostgreSQL server, for the login and then for messages.

mod client;
mod discard;
mod login;
mod options;
mod request;
mod upstream;

pub use client::{Client, ClientDuty, Held, Origin};
pub use discard::{Discard, Discarded, End};
pub use login::{AuthPlan, Login, Proof, Stage};
pub use request::{LoginRequest, StartupTerms};
pub use upstream::{Head, Upstream};
