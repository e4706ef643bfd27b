//! A client on its way from one worker to another.

use std::sync::Arc;

use super::Client;
use crate::{
    SharedPool,
    session::{Statement, StatementDescription},
};

/// A client that has left its worker, with the state that the worker held for it. The driver passes it, with its socket,
/// to [`Worker::take_client`](crate::Worker::take_client) of another worker.
#[derive(Debug)]
pub struct MovedClient {
    /// The client, which is idle.
    pub(crate) client: Box<Client>,
    /// The client's pool, which lives at least as long as the client.
    pub(crate) shared: Arc<SharedPool>,
    /// The client's prepared statements, by name.
    pub(crate) statements: Vec<MovedStatement>,
}

/// A prepared statement of a client on its way.
#[derive(Debug)]
pub(crate) struct MovedStatement {
    pub(crate) name: Box<[u8]>,
    pub(crate) statement: Arc<Statement>,
    /// The description of the statement that the client has received.
    pub(crate) description: StatementDescription,
}
