//! The order that all clients leave (`pgweir drain`): when each of them may be disconnected, and how fast.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::Time;

/// The time for which clients leave only between two requests that are some time apart, in microseconds. After this time
/// they also leave directly after a transaction.
const LEAVE_WHEN_IDLE_US: u64 = 2_000_000;

/// The time without a request after which a client leaves, in microseconds. It keeps pgweir from closing a connection
/// between two requests that follow each other at once.
const QUIET_US: u64 = 100_000;

/// The time without a request after which an idle replication client leaves, in microseconds. pg_basebackup has an idle
/// connection at the end of a backup, while its other one receives the last WAL.
const QUIET_REPLICATION_US: u64 = 2_000_000;

/// The time between two checks of a worker, in microseconds: the clients of so much time may leave at once.
const CHECK_INTERVAL_US: u64 = 333_000;

/// The order that all clients leave, for all workers.
#[derive(Debug)]
pub struct Departures {
    /// When the clients were ordered to leave, in microseconds; `u64::MAX` without this order.
    since: AtomicU64,
    /// How many clients may leave in a second.
    rate: AtomicU64,
    /// How many clients have left by this order.
    departed: AtomicU64,
    /// The server connections that stream WAL or changes to a client.
    streams: Arc<AtomicUsize>,
}

/// A server connection that streams WAL or changes to a client. It is counted as long as this value exists.
#[derive(Debug)]
pub struct Stream(Arc<AtomicUsize>);

impl Default for Departures {
    fn default() -> Self {
        Self {
            since: AtomicU64::new(u64::MAX),
            rate: AtomicU64::new(0),
            departed: AtomicU64::new(0),
            streams: Arc::default(),
        }
    }
}

impl Departures {
    /// Orders all clients to leave between two of their transactions. The order lasts until the process ends. `rate`:
    /// how many clients may leave in a second; 0: any number. A further order can only raise the rate. Returns whether
    /// the order is new.
    pub fn order(&self, now: Time, rate: u32) -> bool {
        let rate = match rate {
            0 => u64::MAX,
            rate => rate.into(),
        };
        self.rate.fetch_max(rate, Relaxed);
        let first = self
            .since
            .compare_exchange(u64::MAX, now.0, Relaxed, Relaxed);
        first.is_ok()
    }

    /// Returns whether clients were ordered to leave.
    #[inline]
    #[must_use]
    pub fn are_ordered(&self) -> bool {
        self.since.load(Relaxed) != u64::MAX
    }

    /// Returns how many clients have left by this order.
    #[must_use]
    pub fn departed(&self) -> u64 {
        self.departed.load(Relaxed)
    }

    /// Returns whether a client leaves now that is outside of a transaction, and has sent its last request at this time.
    /// If so, the caller ends the client.
    #[must_use]
    pub fn leaves_when_idle(&self, sent_at: Time, now: Time) -> bool {
        self.are_ordered() && now.since(sent_at) >= QUIET_US && self.take_turn(now)
    }

    /// Returns whether a client leaves directly after a transaction, since it hardly ever pauses. If so, the caller ends
    /// the client.
    #[inline]
    #[must_use]
    pub fn leaves_after_transaction(&self, now: Time) -> bool {
        self.no_longer_wait_for_pauses(now) && self.take_turn(now)
    }

    /// Returns whether clients leave not only when they pause, but also directly after a transaction.
    #[inline]
    #[must_use]
    pub fn no_longer_wait_for_pauses(&self, now: Time) -> bool {
        self.are_ordered() && now.since(Time(self.since.load(Relaxed))) >= LEAVE_WHEN_IDLE_US
    }

    /// Does the same as [`leaves_when_idle`](Self::leaves_when_idle), for a replication client.
    #[must_use]
    pub fn replication_client_leaves(&self, sent_at: Time, now: Time) -> bool {
        self.are_ordered() && now.since(sent_at) >= QUIET_REPLICATION_US && self.take_turn(now)
    }

    /// Returns whether the client of a stream leaves now: if the process has no other clients than those of streams.
    /// `clients`: the number of all clients. A base backup is no stream, but needs one, which so outlives it. If so,
    /// the caller ends the client.
    #[must_use]
    pub fn stream_leaves(&self, clients: usize, now: Time) -> bool {
        self.are_ordered() && clients <= self.streams.load(Relaxed) && self.take_turn(now)
    }

    /// Counts a stream.
    #[must_use]
    pub fn count_stream(&self) -> Stream {
        self.streams.fetch_add(1, Relaxed);
        Stream(Arc::clone(&self.streams))
    }

    /// Counts a client that leaves, if the rate allows one more.
    #[cold]
    fn take_turn(&self, now: Time) -> bool {
        let elapsed = now.since(Time(self.since.load(Relaxed))) + CHECK_INTERVAL_US;
        let rate = self.rate.load(Relaxed);
        let allowed = u128::from(elapsed) * u128::from(rate) / 1_000_000;
        let leaves = |departed| (u128::from(departed) < allowed).then(|| departed + 1);
        self.departed.fetch_update(Relaxed, Relaxed, leaves).is_ok()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(7_000_000);

    #[test]
    fn clients_leave_when_they_pause_and_later_after_a_transaction() {
        let departures = Departures::default();
        let (idle, soon) = (START.after(QUIET_US), START.after(QUIET_US - 1));
        assert!(!departures.are_ordered() && !departures.leaves_when_idle(START, idle));
        assert!(!departures.leaves_after_transaction(Time(u64::MAX)));
        assert!(departures.order(START, 0));
        assert!(!departures.order(idle, 0), "the first order counts");
        assert!(departures.leaves_when_idle(START, idle));
        assert!(!departures.leaves_when_idle(START, soon));
        let late = START.after(LEAVE_WHEN_IDLE_US);
        assert!(!departures.leaves_after_transaction(idle));
        assert!(
            !departures.no_longer_wait_for_pauses(idle)
                && departures.no_longer_wait_for_pauses(late)
        );
        assert!(departures.leaves_after_transaction(late));
        assert_eq!(departures.departed(), 2);
    }

    #[test]
    fn the_rate_is_kept_and_can_be_raised() {
        let departures = Departures::default();
        assert!(departures.order(START, 30));
        let leave = |now: Time| {
            let leaves = |_: &u32| departures.leaves_when_idle(Time(0), now);
            (0..1_000).take_while(leaves).count()
        };
        assert_eq!(leave(START), 9, "those of the first interval");
        assert_eq!(leave(START), 0);
        assert_eq!(leave(START.after(1_000_000)), 30);
        assert_eq!(leave(START.after(2_000_000)), 30);
        assert!(!departures.order(START, 20));
        assert_eq!(leave(START.after(3_000_000)), 30);
        assert!(!departures.order(START, 100));
        assert_eq!(leave(START.after(4_000_000)), 433 - 99);
        assert_eq!(departures.departed(), 433);
    }

    #[test]
    fn streams_leave_last() {
        let departures = Departures::default();
        let stream = departures.count_stream();
        assert!(!departures.stream_leaves(1, START));
        departures.order(START, 0);
        assert!(!departures.stream_leaves(2, START));
        assert!(departures.stream_leaves(1, START));
        drop(stream);
        assert!(!departures.stream_leaves(1, START));
        assert!(!departures.replication_client_leaves(START, START.after(QUIET_US)));
        let late = START.after(QUIET_REPLICATION_US);
        assert!(departures.replication_client_leaves(START, late));
    }
}
