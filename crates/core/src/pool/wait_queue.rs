//! The clients that wait for a server of one pool: a queue for each worker, first in, first out.

use std::collections::VecDeque;

use crate::{Time, Token, WorkerId};

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

/// The ticket of an empty queue, higher than any that is given.
const NONE: Ticket = Ticket(u64::MAX);

/// The queues of all workers.
///
/// The tickets of the clients in front are kept beside one another. So the client that has waited longest is found
/// quickly, although there may be 64 workers, and each of them asks with the ledger locked.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    queues: Vec<WaitQueue>,
    /// The ticket in front of each queue.
    fronts: Vec<Ticket>,
    count: usize,
}

impl WaitQueues {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            queues: (0..workers).map(|_| WaitQueue::default()).collect(),
            fronts: vec![NONE; workers],
            count: 0,
        }
    }

    /// Returns the number of clients that wait.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds a client of a worker. Its ticket is higher than all before it.
    pub(crate) fn push(&mut self, worker: WorkerId, waiter: Waiter) {
        self.queues[worker.index()].push(waiter);
        self.count += 1;
        self.note_front(worker);
    }

    /// Removes the client of the worker that has waited longest.
    pub(crate) fn pop(&mut self, worker: WorkerId) -> Option<Waiter> {
        let waiter = self.queues[worker.index()].pop()?;
        self.count -= 1;
        self.note_front(worker);
        Some(waiter)
    }

    /// Removes a client that gave up. Returns `false` if the client does not wait in the worker's queue (any more).
    pub(crate) fn remove(&mut self, worker: WorkerId, ticket: Ticket) -> bool {
        let waited = self.queues[worker.index()].remove(ticket);
        if waited {
            self.count -= 1;
            self.note_front(worker);
        }
        waited
    }

    /// Returns the client of the worker that has waited longest.
    pub(crate) fn front(&self, worker: WorkerId) -> Option<Waiter> {
        self.queues[worker.index()].front()
    }

    /// Returns the client that has waited longest, and its worker.
    pub(crate) fn oldest(&self) -> Option<(WorkerId, Waiter)> {
        let oldest = self.fronts.iter().copied().min()?;
        let index = self.fronts.iter().position(|&front| front == oldest)?;
        let waiter = self.queues[index].front()?;
        Some((WorkerId(index as u8), waiter))
    }

    fn note_front(&mut self, worker: WorkerId) {
        let front = self.queues[worker.index()].front();
        self.fronts[worker.index()] = front.map_or(NONE, |waiter| waiter.ticket);
    }
}

/// A queue, first in, first out. A client that gives up leaves a gap. There are at most as many gaps as waiting
/// clients, plus [`WaitQueue::GAPS`].
#[derive(Debug, Default)]
struct WaitQueue {
    places: VecDeque<(Waiter, bool)>,
    gaps: usize,
}

impl WaitQueue {
    const GAPS: usize = 64;

    fn push(&mut self, waiter: Waiter) {
        self.places.push_back((waiter, true));
    }

    /// Returns the client that has waited longest.
    fn front(&self) -> Option<Waiter> {
        self.places.front().map(|&(waiter, _)| waiter)
    }

    fn pop(&mut self) -> Option<Waiter> {
        let (waiter, _) = self.places.pop_front()?;
        self.drop_gaps_in_front();
        Some(waiter)
    }

    /// Removes a client that gave up. Returns `false` if the client does not wait in this queue (any more).
    fn remove(&mut self, ticket: Ticket) -> bool {
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
    fn the_oldest_of_all_workers() {
        let (a, b) = (WorkerId(0), WorkerId(1));
        let mut queues = WaitQueues::new(2);
        let oldest = |queues: &WaitQueues| {
            let found = queues.oldest();
            found.map(|(worker, waiter)| (worker, waiter.ticket.0))
        };
        assert_eq!(oldest(&queues), None);
        for (worker, n) in [(b, 1), (a, 2), (a, 3), (b, 4)] {
            queues.push(worker, waiter(n));
        }
        assert_eq!((oldest(&queues), queues.count()), (Some((b, 1)), 4));
        assert!(queues.pop(b).is_some());
        assert_eq!(oldest(&queues), Some((a, 2)));
        assert!(queues.remove(a, Ticket(2)) && !queues.remove(a, Ticket(4)));
        assert_eq!(oldest(&queues), Some((a, 3)));
        assert!(queues.remove(a, Ticket(3)));
        assert_eq!((oldest(&queues), queues.count()), (Some((b, 4)), 1));
        assert!(queues.pop(b).is_some() && queues.pop(b).is_none());
        assert_eq!((oldest(&queues), queues.count()), (None, 0));
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
