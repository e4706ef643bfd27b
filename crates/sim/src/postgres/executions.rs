//! Records which backend runs each request of a client.

use std::collections::BTreeMap;

use pgweir_wire::tag::frontend;

use crate::checks::{Guarantee, RequestId, Violation};

/// The backend that has begun to run each request.
#[derive(Debug, Default)]
pub(super) struct Executions {
    backends: BTreeMap<RequestId, usize>,
}

impl Executions {
    /// Notes a client's message that a backend handles now. `may_write`: whether the servers can write.
    ///
    /// # Errors
    /// The message runs a request that another backend has run, too, so its effects may be there twice.
    pub(super) fn note(
        &mut self,
        backend: usize,
        (tag, body): (u8, &[u8]),
        may_write: bool,
    ) -> Result<(), Violation> {
        let runs = [frontend::QUERY, frontend::EXECUTE, frontend::FUNCTION_CALL];
        let id = RequestId::of_message(tag, body).filter(|_| may_write && runs.contains(&tag));
        let Some(id) = id else {
            return Ok(());
        };
        match *self.backends.entry(id).or_insert(backend) {
            first if first == backend => Ok(()),
            first => {
                let what = format!("backend {backend} runs request {id} after backend {first}");
                Err(Violation::new(Guarantee::Replies, what))
            }
        }
    }
}
