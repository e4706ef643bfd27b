//! Password checks, SCRAM exchanges (both sides) and the userlist, as pure values.

pub mod scram;
pub mod userlist;
