//! The clients of one worker that wait for a server of one pool: first in, first out.

use std::collections::VecDeque;

use crate::{Time, Token};

/// A place in the queue of a pool. Each client that begins to wait, on any worker, gets a higher ticket than all before
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A client that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// The client's ticket.
    pub ticket: Ticket,
    /// The client, on the worker that the queue belongs to.
    pub client: Token,
    /// When the client began to wait.
    pub since: Time,
}

/// A queue, first in, first out. A client that gives up leaves a gap. There are at most as many gaps as waiting
/// clients, plus [`WaitQueue::GAPS`].
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    places: VecDeque<(Waiter, bool)>,
    gaps: usize,
}

impl WaitQueue {
    const GAPS: usize = 64;

    pub(crate) fn push(&mut self, waiter: Waiter) {
        self.places.push_back((waiter, true));
    }

    /// Returns the client that has waited longest.
    pub(crate) fn front(&self) -> Option<Waiter> {
        self.places.front().map(|&(waiter, _)| waiter)
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let (waiter, _) = self.places.pop_front()?;
        self.drop_gaps_in_front();
        Some(waiter)
    }

    /// Removes a client that gave up. Returns `false` if the client does not wait in this queue (any more).
    pub(crate) fn remove(&mut self, ticket: Ticket) -> bool {
        let Ok(at) = self
            .places
            .binary_search_by_key(&ticket, |(waiter, _)| waiter.ticket)
        else {
            return false;
        };
        if !std::mem::replace(&mut self.places[at].1, false) {
            return false;
        }
        self.gaps += 1;
        self.drop_gaps_in_front();
        if self.gaps > self.places.len() / 2 + Self::GAPS {
            self.places.retain(|&(_, waits)| waits);
            self.gaps = 0;
        }
        true
    }

    fn drop_gaps_in_front(&mut self) {
        while let Some(&(_, false)) = self.places.front() {
            self.places.pop_front();
            self.gaps -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(n: u64) -> Waiter {
        Waiter {
            ticket: Ticket(n),
            client: Token {
                slot: n as u32,
                generation: 0,
            },
            since: Time(n),
        }
    }

    #[test]
    fn order_and_gaps() {
        let mut queue = WaitQueue::default();
        for n in 0..1000 {
            queue.push(waiter(n));
        }
        for n in (0..1000).filter(|n| n % 10 != 5) {
            assert!(queue.remove(Ticket(n)));
            assert!(!queue.remove(Ticket(n)), "twice");
        }
        assert!(
            queue.places.len() <= 100 + 2 * WaitQueue::GAPS + 2,
            "gaps are bounded: {}",
            queue.places.len()
        );
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop())
            .map(|waiter| waiter.ticket.0)
            .collect();
        assert_eq!(order, (0..100).map(|n| n * 10 + 5).collect::<Vec<_>>());
        assert_eq!((queue.places.len(), queue.gaps), (0, 0));
    }
}
