//! Cancel keys: the pid that a client was given, and the secret that proves the right to cancel its query.
//!
//! The bits of a pid, from the highest: 0 (drivers and `pg_basebackup` fail with negative pids), the worker (6 bits),
//! the number of online restarts before this process (5 bits), a number (20 bits).
//!
//! With peers the key has the form of PgBouncer 1.21 and later: the second and third byte are the number of the peer,
//! low byte first, and the lowest two bits of the secret's fourth byte have the number of times that a request may
//! still be passed on. The rest of the first byte names the worker.
//!
//! No pid is below 2^22, the highest that Linux gives to a process: so a client's pid is never a process of a server.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::WorkerId;

/// Bits of a pid below the worker's.
const WORKER_SHIFT: u32 = 25;
/// Bits for the number.
const NUMBER_BITS: u32 = 20;
/// The number of the first generation, so that no pid is below 2^22.
const GENERATIONS_FROM: u32 = 4;
/// The number of generations.
const GENERATIONS: u32 = (1 << (WORKER_SHIFT - NUMBER_BITS)) - GENERATIONS_FROM;
/// The bit that keeps pids above 2^22 among peers.
const ABOVE_PROCESSES: u32 = 1 << 24;
/// The position in the secret of the byte whose lowest bits have the number of times that a request may be passed on.
const HOPS_AT: usize = 3;

/// The cancel key of a client.
// `==` is for tests only: `fits` compares in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct CancelKey {
    /// The pid that the client was given.
    pub pid: u32,
    /// The secret that the client was given.
    pub secret: Box<[u8]>,
}

impl CancelKey {
    /// The bits of the secret's fourth byte with the number of times that a request may be passed on.
    pub const HOPS: u8 = 3;

    /// The lowest pid of a client. PostgreSQL's processes have lower ones.
    pub const FIRST_PID: u32 = GENERATIONS_FROM << NUMBER_BITS;

    /// The number of pids that a worker can give.
    pub const PIDS: u32 = 1 << NUMBER_BITS;
    /// The number of pids that a worker can give among peers. If there are more clients, several have the same pid.
    pub const PIDS_AMONG_PEERS: u32 = 1 << 8;

    /// Returns the pid of a client. If `number` is unique in the worker, the pid is unique in the process, and among
    /// the clients that live through an online restart.
    #[must_use]
    pub fn pid(worker: WorkerId, generation: u8, number: u32) -> u32 {
        let generation = GENERATIONS_FROM + u32::from(generation) % GENERATIONS;
        let number = number & (Self::PIDS - 1);
        u32::from(worker.0) << WORKER_SHIFT | generation << NUMBER_BITS | number
    }

    /// Returns the pid of a client whose process has peers.
    #[must_use]
    pub fn pid_among_peers(worker: WorkerId, peer: u32, number: u32) -> u32 {
        let peer = (peer & 0xff) << 16 | (peer & 0xff00);
        let number = number & (Self::PIDS_AMONG_PEERS - 1);
        u32::from(worker.0) << WORKER_SHIFT | ABOVE_PROCESSES | peer | number
    }

    /// Returns the worker in the pid, of `workers`.
    #[must_use]
    pub fn worker(&self, workers: usize) -> WorkerId {
        worker_of_pid(self.pid, workers)
    }

    /// Returns the number of the peer in the pid.
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.pid >> 16 & 0xff | self.pid & 0xff00
    }

    /// Counts one more time that the request is passed on. Returns `false` if the request may not be passed on any
    /// more.
    #[must_use]
    pub fn take_hop(&mut self) -> bool {
        let hops = self.secret.get_mut(HOPS_AT);
        let left = hops.filter(|byte| **byte & Self::HOPS != 0);
        left.map(|byte| *byte -= 1).is_some()
    }

    /// Returns the number under which a worker stores the key: all bits of a short key, except the count of times that
    /// it may be passed on.
    #[must_use]
    pub fn place(&self) -> u64 {
        place(self.pid, &self.secret)
    }

    /// Returns whether `asked` is this key. Compares in constant time. With `any_hops`, the bits for passing on may
    /// differ.
    #[must_use]
    pub fn fits(&self, asked: &Self, any_hops: bool) -> bool {
        let normal = |key: &Self| {
            let mut secret = key.secret.clone();
            if let Some(byte) = secret.get_mut(HOPS_AT).filter(|_| any_hops) {
                *byte |= Self::HOPS;
            }
            secret
        };
        let (own, asked_secret) = (normal(self), normal(asked));
        self.pid == asked.pid
            && own.len() == asked_secret.len()
            && bool::from(own.ct_eq(&asked_secret))
    }
}

/// Returns the worker that a client's pid names, of `workers`.
pub(crate) fn worker_of_pid(pid: u32, workers: usize) -> WorkerId {
    // A client that lived through a restart may have a pid of a worker that this process does not have.
    let named = (pid >> WORKER_SHIFT & 63) as usize;
    WorkerId((named % workers) as u8)
}

/// Returns the number under which a worker stores the key with this pid and secret: see [`CancelKey::place`].
pub(crate) fn place(pid: u32, secret: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&pid.to_be_bytes());
    for (byte, own) in bytes[4..].iter_mut().zip(secret) {
        *byte = *own;
    }
    bytes[4 + HOPS_AT] |= CancelKey::HOPS;
    u64::from_be_bytes(bytes)
}

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32, secret: &[u8]) -> CancelKey {
        CancelKey {
            pid,
            secret: secret.into(),
        }
    }

    #[test]
    fn a_pid_names_worker_and_peer_and_is_positive() {
        // Above the pids of processes, and positive.
        let pids = 1 << 22..1 << 31;
        for (worker, number) in [(0, 0), (1, CancelKey::PIDS - 1), (63, u32::MAX)] {
            for generation in [0, 27, 28, 255] {
                let own = key(CancelKey::pid(WorkerId(worker), generation, number), b"");
                assert_eq!(own.worker(64), WorkerId(worker));
                assert!(pids.contains(&own.pid));
            }
            for peer in [1, 255, 256, 0x1234, 16_383] {
                let pid = CancelKey::pid_among_peers(WorkerId(worker), peer, number);
                let key = key(pid, b"");
                assert_eq!((key.worker(64), key.peer()), (WorkerId(worker), peer));
                assert!(pids.contains(&pid));
            }
        }
        assert_eq!(key(5 << 25, b"").worker(2), WorkerId(1));
        // As PgBouncer writes peer 0x1234: the second byte is 0x34, the third 0x12.
        let pid = CancelKey::pid_among_peers(WorkerId(0), 0x1234, 0);
        assert_eq!(pid.to_be_bytes(), [1, 0x34, 0x12, 0]);
    }

    #[test]
    fn hops_are_counted_down_and_do_not_change_the_owner() {
        let given = key(7, &[1, 2, 3, 4 | CancelKey::HOPS]);
        let mut passed_on = given.clone();
        for _ in 0..3 {
            assert!(passed_on.take_hop());
            assert!(given.fits(&passed_on, true) && !given.fits(&passed_on, false));
            assert_eq!(given.place(), passed_on.place());
        }
        assert!(!passed_on.take_hop() && !key(7, b"abc").take_hop());
        assert!(!given.fits(&key(8, &given.secret), true));
        assert!(!given.fits(&key(7, &[1, 2, 3]), true));
        assert!(!given.fits(&key(7, &[1, 2, 3, 8]), true));
    }
}
