//! The load of the threads that do slow work outside of the event loops (checks of logins by LDAP and PAM, derivation
//! of SCRAM keys, evaluation of catalogs), and of the kernel's rings of io_uring.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The threads for slow work, and the rings of io_uring. SHOW INTERNAL shows the threads.
#[derive(Debug, Default)]
pub struct Occupancies {
    /// Threads that ask LDAP servers, PAM and the system's user database (`auth_threads`, `auth_queue`).
    pub inquiries: Arc<Occupancy>,
    /// Threads that derive SCRAM keys (`scram_threads`, `scram_queue`).
    pub keys: Arc<Occupancy>,
    /// The thread that evaluates the facts of databases.
    pub catalogs: Arc<Occupancy>,
    /// The rings of workers that use io_uring.
    pub rings: Arc<RingCounts>,
}

/// The counters of all rings. Each number may change while the others are read.
#[derive(Debug, Default)]
pub struct RingCounts {
    rings: AtomicUsize,
    buffers: AtomicUsize,
    shortages: AtomicU64,
    failures: AtomicU64,
}

/// A copy of the numbers of [`RingCounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingNumbers {
    /// The number of workers that use io_uring at present.
    pub rings: usize,
    /// The number of buffers of all these workers (`io_uring_buffers`).
    pub buffers: usize,
    /// The number of times that a server's bytes found no free buffer, since the process began.
    pub shortages: u64,
    /// The number of workers that have gone on with epoll, since the process began.
    pub failures: u64,
}

/// The load of the threads of one kind. Each number may change while the others are read.
#[derive(Debug, Default)]
pub struct Occupancy {
    threads: AtomicUsize,
    places: AtomicUsize,
    active: AtomicUsize,
    waiting: AtomicUsize,
    refused: AtomicU64,
}

/// A copy of the numbers of [`Occupancy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// The number of threads.
    pub threads: usize,
    /// The number of jobs that may wait.
    pub places: usize,
    /// Jobs in progress.
    pub active: usize,
    /// Jobs in the queue.
    pub waiting: usize,
    /// Jobs refused because the queue was full, since the process began.
    pub refused: u64,
}

impl RingCounts {
    /// A worker has a new ring with so many buffers.
    pub fn begun(&self, buffers: u16) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.buffers.fetch_add(buffers.into(), Ordering::Relaxed);
    }

    /// The ring of a worker, with so many buffers, has ended.
    pub fn ended(&self, buffers: u16) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
        self.buffers.fetch_sub(buffers.into(), Ordering::Relaxed);
    }

    /// Bytes of a server found no free buffer.
    pub fn note_missing_buffer(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    /// A ring has failed: its worker goes on with epoll.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of the numbers.
    #[must_use]
    pub fn read(&self) -> RingNumbers {
        RingNumbers {
            rings: self.rings.load(Ordering::Relaxed),
            buffers: self.buffers.load(Ordering::Relaxed),
            shortages: self.shortages.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

impl Occupancy {
    /// Sets the number of threads, and the number of jobs that may wait.
    pub fn limit(&self, threads: usize, places: usize) {
        self.threads.store(threads, Ordering::Relaxed);
        self.places.store(places, Ordering::Relaxed);
    }

    /// Notes that a job is about to be queued.
    pub fn queued(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a job was refused, since the queue was full.
    pub fn refused(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a thread has taken a job.
    pub fn begun(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a thread has finished its job.
    pub fn done(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns a copy of the numbers.
    #[must_use]
    pub fn read(&self) -> Occupied {
        Occupied {
            threads: self.threads.load(Ordering::Relaxed),
            places: self.places.load(Ordering::Relaxed),
            active: self.active.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}
