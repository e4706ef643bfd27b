//! Connections of clients between login and their end, apart from their queries: timeouts, notices to those that wait,
//! signals from one client to another, and the end of a connection.

pub(crate) mod disconnect;
pub(crate) mod early_answers;
pub(crate) mod signals;
pub(crate) mod stuck_messages;
pub(crate) mod timeouts;
pub(crate) mod wait_notices;
pub(crate) mod worker_moves;
