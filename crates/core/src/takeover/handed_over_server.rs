//! Online restart: a server connection that leaves with its client.

use std::sync::Arc;

use crate::{Token, shared_pool::SharedPool};

/// A server that leaves this process with its client.
#[derive(Debug)]
pub struct HandedOverServer {
    /// Its connection.
    pub conn: Token,
    /// Its pool, whose ledger counts it until the other process has it: then its worker is to be told
    /// ([`Word::Gone`](super::Word::Gone)).
    pub shared: Arc<SharedPool>,
}
