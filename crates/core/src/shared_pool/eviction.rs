//! A search for the idle server that another pool under the same cap can do without.

use std::sync::Arc;

use super::SharedPool;
use crate::{Time, Token, WorkerId, pool::Scope};

/// A look for the server that has been idle longest, among those that a cap can do without.
#[derive(Debug)]
pub struct Search {
    /// The pool that was denied a server.
    pub(crate) pool: Arc<SharedPool>,
    /// By its cap of this kind.
    pub(crate) scope: Scope,
    pub(crate) visited: usize,
    pub(crate) found: Option<Found>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) worker: WorkerId,
    pub(crate) conn: Token,
    pub(crate) idle_since: Time,
}
