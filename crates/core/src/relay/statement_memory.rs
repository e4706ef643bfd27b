//! Refuses new statements while `memory_limit` is reached.

use std::sync::Arc;

use pgweir_wire::{Header, tag::frontend};

use super::{buffered_messages::TEXT_MAX, client_to_server::ClientMessages};
use crate::{
    base::{
        fault::Fault,
        memory::{MemoryRefusal, WorkerMemory},
    },
    session::Statement,
};

impl ClientMessages<'_> {
    /// Returns the statement with this definition; `None` if `memory_limit` is reached, and the statement or its name is
    /// new.
    pub(super) fn intern(&self, name: &[u8], definition: &[u8]) -> Option<Arc<Statement>> {
        let WorkerMemory { memory, worker } = self.env.memory();
        if definition.len() > TEXT_MAX {
            // `demand_memory` has announced these bytes. From here on the table of statements counts them, and they
            // must not count twice.
            memory.withdraw(worker, definition.len());
        }
        let statements = self.env.directory.statements();
        let statement = statements.intern_within_limit(definition)?;
        if memory.is_full() && !self.bindings.has(name, &statement) {
            memory.count_refusal(MemoryRefusal::Statement);
            return None;
        }
        Some(statement)
    }

    /// Refuses a long Parse for which `memory_limit` has no room. Shorter ones are refused once they are complete, and do
    /// not end the connection.
    pub(super) fn demand_memory(&self, header: Header) -> Result<(), Fault> {
        let len = header.body_len as usize;
        if header.tag != frontend::PARSE || len <= TEXT_MAX {
            return Ok(());
        }
        let WorkerMemory { memory, worker } = self.env.memory();
        if !memory.allows(len, MemoryRefusal::Statement) {
            return Err(Fault::OutOfMemory);
        }
        memory.announce(worker, len);
        Ok(())
    }
}
