//! A search for the idle server that is closed for another pool under the same cap.

use std::sync::Arc;

use super::SharedPool;
use crate::{Time, Token, WorkerId, pool::Scope};

/// A search for the longest-idle server among those that may be closed under a cap.
#[derive(Debug)]
pub struct Search {
    /// The pool that was denied a server.
    pub(crate) pool: Arc<SharedPool>,
    /// The kind of the cap that denied it.
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
