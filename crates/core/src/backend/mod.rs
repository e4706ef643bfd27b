//! We play the client towards PostgreSQL.
/// One server connection.
#[derive(Debug)]
pub struct Server;
