//! The crate from outside, as the pooler uses it.

mod exchange;
mod hba;
mod malformed;
mod passwords;
mod postgres;
mod userlist;
