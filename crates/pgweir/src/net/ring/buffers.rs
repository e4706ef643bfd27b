//! Buffers that io_uring receives into: a ring of their addresses, which the kernel reads, and the buffers.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    io,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::{Submitter, types::BufRingEntry};

/// The size of one buffer in bytes: a message of usual size fits, and larger ones are read without these buffers.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;
/// The group of these buffers, the only one of a ring.
pub(super) const GROUP: u16 = 0;

/// The alignment that the kernel demands of the ring of addresses.
const PAGE: usize = 4096;

/// The buffers of one worker's ring.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: NonNull<u8>,
    /// The number of buffers, a power of two.
    count: u16,
    tail: u16,
}

#[allow(unsafe_code, reason = "a pointer is not Send by itself")]
// SAFETY: the memory belongs to this value alone, and no method of `&self` writes to it.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates `count` buffers, which is a power of two, and gives them to the kernel. The buffers hold the bytes
    /// that arrive between two waits. When all are taken, connections are read as with epoll.
    ///
    /// # Errors
    /// When the kernel knows no such buffers, or memory is short.
    #[allow(
        unsafe_code,
        reason = "the kernel writes into this memory, so it is no plain Vec"
    )]
    pub(super) fn register(submitter: &Submitter<'_>, count: u16) -> io::Result<Self> {
        if !count.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the size of the layout is not zero.
        let memory = unsafe { alloc_zeroed(layout(count)?) };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffers = Self {
            memory,
            count,
            tail: 0,
        };
        // SAFETY: the memory is aligned to a page, has room for this many entries, and lives longer than the ring:
        // `Ring` drops its ring first, and forgets the buffers if the kernel may still write to them.
        unsafe {
            submitter.register_buf_ring_with_flags(memory.as_ptr() as u64, count, GROUP, 0)?;
        }
        for id in 0..count {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// Returns the number of buffers.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the bytes of memory of the buffers and their addresses.
    pub(super) fn bytes(&self) -> usize {
        addresses(self.count) + usize::from(self.count) * BUFFER_BYTES
    }

    /// Passes the first `length` bytes of a filled buffer to `use_bytes`, and gives the buffer back to the kernel.
    #[allow(unsafe_code, reason = "the kernel has written these bytes")]
    pub(super) fn take<T>(
        &mut self,
        id: u16,
        length: usize,
        use_bytes: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let length = length.min(BUFFER_BYTES);
        // SAFETY: a completion has named the buffer, so the kernel does not write to it before it is given back, after
        // the slice's last use. The memory is zeroed or written, and `at` is inside of it.
        let bytes = unsafe { slice::from_raw_parts(self.at(id), length) };
        let result = use_bytes(bytes);
        self.give_back(id);
        result
    }

    /// Gives a buffer (back) to the kernel.
    #[allow(
        unsafe_code,
        reason = "the kernel reads the ring's entries and its tail from shared memory"
    )]
    pub(super) fn give_back(&mut self, id: u16) {
        let address = self.at(id) as u64;
        let entries = self.memory.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the index is below the number of buffers, and the kernel reads an entry only after the tail has passed it. The
        // tail lies in the unused field of the first entry, aligned for u16; only this thread writes to it.
        unsafe {
            let entry = &mut *entries.add(usize::from(self.tail & (self.count - 1)));
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(entries).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    #[allow(unsafe_code, reason = "an address in the memory of the buffers")]
    fn at(&self, id: u16) -> *mut u8 {
        let offset = addresses(self.count) + usize::from(id & (self.count - 1)) * BUFFER_BYTES;
        // SAFETY: the offset is inside of the allocation.
        unsafe { self.memory.as_ptr().add(offset) }
    }
}

impl Drop for Buffers {
    #[allow(unsafe_code, reason = "the counterpart of the allocation")]
    fn drop(&mut self) {
        // SAFETY: `register` allocated the memory with this layout.
        if let Ok(layout) = layout(self.count) {
            unsafe { dealloc(self.memory.as_ptr(), layout) };
        }
    }
}

/// Returns the bytes of the ring of addresses, whole pages.
fn addresses(count: u16) -> usize {
    (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(PAGE)
}

/// Returns the layout of the addresses and the buffers after them.
fn layout(count: u16) -> io::Result<Layout> {
    let bytes = addresses(count) + usize::from(count) * BUFFER_BYTES;
    Layout::from_size_align(bytes, PAGE).map_err(|_| io::ErrorKind::OutOfMemory.into())
}
