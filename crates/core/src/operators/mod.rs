//! Operators' orders on one worker: PAUSE, KILL and the like, SUSPEND, shutdown, and a new configuration.
//!
//! [`Operator`](crate::shared::operator::Operator) has the orders of the whole process.

pub(crate) mod orders;
pub(crate) mod reconfiguration;
pub(crate) mod shutdown;
pub(crate) mod suspension;
