//! The memory of a worker's driver, and the heap of the process.

use pgweir_core::base::memory::{Memory, MemoryKind, MemoryUsage};

use super::{io::Io, table::Table};

impl Io {
    /// Publishes the memory that the worker's sockets take: bytes that were not sent yet, TLS sessions, and the buffers
    /// of io_uring.
    pub(super) fn publish_memory(&self, memory: &Memory) {
        let (mut unsent, mut tls) = measure(&self.table);
        for (_, lingering) in &self.closing {
            unsent.add_filled(lingering.unsent_bytes());
        }
        tls.bytes += self.encryption.gathered.capacity() + self.encryption.sealed.capacity();
        memory.publish(self.id, MemoryKind::Unsent, unsent);
        memory.publish(self.id, MemoryKind::Tls, tls);
        memory.publish(self.id, MemoryKind::IoUringBuffer, self.ring_memory());
    }

    /// Returns the memory of io_uring: its buffers, and the bytes that it has received before the core wanted them.
    fn ring_memory(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        if let Some(ring) = &self.poller.ring {
            usage.add(ring.bytes());
        }
        for bytes in self.table.early.values() {
            usage.add(bytes.capacity());
        }
        usage
    }
}

fn measure(table: &Table) -> (MemoryUsage, MemoryUsage) {
    let (mut unsent, mut tls) = (MemoryUsage::default(), MemoryUsage::default());
    for connection in table.all_open() {
        if let Some(bytes) = &connection.output.unsent {
            unsent.add(bytes.capacity());
        }
        if let Some(session) = &connection.tls {
            tls.add(session.memory());
        }
    }
    (unsent, tls)
}

/// Returns freed memory to the system. glibc keeps it otherwise, unless it lies at the end of the heap; musl keeps little.
#[cfg_attr(
    target_env = "gnu",
    allow(
        unsafe_code,
        reason = "no crate has this function in a safe form, and memory that is not returned is missing elsewhere"
    )
)]
pub(crate) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointer, and locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}
