//! How busy the threads are that do for clients what takes its time.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The threads of the process, by what they do. Shown by SHOW INTERNAL.
#[derive(Debug, Default)]
pub struct Occupancies {
    /// They ask LDAP servers, PAM and the system (`auth_threads`, `auth_queue`).
    pub inquiries: Arc<Occupancy>,
    /// They derive SCRAM keys (`scram_threads`, `scram_queue`).
    pub keys: Arc<Occupancy>,
}

/// What threads of one kind have to do. Each number may change while the others are read.
#[derive(Debug, Default)]
pub struct Occupancy {
    threads: AtomicUsize,
    places: AtomicUsize,
    active: AtomicUsize,
    waiting: AtomicUsize,
    refused: AtomicU64,
}

/// Numbers of one kind of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// How many threads there are.
    pub threads: usize,
    /// How many jobs may wait for them.
    pub places: usize,
    /// Jobs that are being done.
    pub active: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that found no place, since the process began.
    pub refused: u64,
}

impl Occupancy {
    /// So many threads there are, and so many jobs may wait for them.
    pub fn limit(&self, threads: usize, places: usize) {
        self.threads.store(threads, Ordering::Relaxed);
        self.places.store(places, Ordering::Relaxed);
    }

    /// A job is about to be queued.
    pub fn queued(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// It found no place.
    pub fn refused(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread has taken a job.
    pub fn begun(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// It is done.
    pub fn done(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// The numbers.
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
