//! How busy the threads are that do slow work off the event loop: that of logins (LDAP, PAM, SCRAM keys), and the
//! evaluation of catalogs.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The threads of the process, by their work. SHOW INTERNAL shows them.
#[derive(Debug, Default)]
pub struct Occupancies {
    /// Threads that ask LDAP servers, PAM and the system's user database (`auth_threads`, `auth_queue`).
    pub inquiries: Arc<Occupancy>,
    /// Threads that derive SCRAM keys (`scram_threads`, `scram_queue`).
    pub keys: Arc<Occupancy>,
    /// The thread that evaluates the facts of databases.
    pub catalogs: Arc<Occupancy>,
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
    /// How many threads there are.
    pub threads: usize,
    /// How many jobs may wait for them.
    pub places: usize,
    /// Jobs in progress.
    pub active: usize,
    /// Jobs in the queue.
    pub waiting: usize,
    /// Jobs refused because the queue was full, since the process began.
    pub refused: u64,
}

impl Occupancy {
    /// Sets the number of threads, and how many jobs may wait for them.
    pub fn limit(&self, threads: usize, places: usize) {
        self.threads.store(threads, Ordering::Relaxed);
        self.places.store(places, Ordering::Relaxed);
    }

    /// A job is about to be queued.
    pub fn queued(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// The queue was full: the job is refused.
    pub fn refused(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread has taken a job.
    pub fn begun(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread has finished its job.
    pub fn done(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// A copy of the numbers.
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
