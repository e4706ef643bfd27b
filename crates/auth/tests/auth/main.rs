//! Tests of the crate's public interface.

mod exchange;
mod hba;
mod malformed;
mod passwords;
mod postgres;
mod userlist;
