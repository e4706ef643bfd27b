//! Online restart: a server connection that leaves with its client.

use std::sync::Arc;

use crate::{Token, shared::pool::SharedPool};

/// A server that leaves this process with its client.
#[derive(Debug)]
pub struct HandedOverServer {
    /// The server's connection.
    pub conn: Token,
    /// The server's pool. The pool's ledger counts the server until the other process has it; then the worker of the
    /// server gets [`TakeoverMail::Gone`](super::TakeoverMail::Gone).
    pub shared: Arc<SharedPool>,
}
