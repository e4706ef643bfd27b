//! The deadlines of the driver. The core manages its own deadlines.

use std::{cmp::Reverse, collections::BinaryHeap};

use pgweir_core::{Time, Token};

/// The action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Stop waiting for a closing connection, unless its serial number has changed.
    Linger { slot: u32, serial: u32 },
    /// Try to connect again.
    Reconnect(Token),
    /// Read from a server that streams a large result.
    Stream(Token),
    /// Try to accept again after the process was out of file descriptors.
    Accept,
}

/// Deadlines, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Timer)>>,
    serial: u32,
}

impl Timers {
    /// Adds a deadline, which can't be removed: a timer that has become pointless is recognised when it is due.
    pub(crate) fn add(&mut self, due: Time, timer: Timer) {
        self.heap.push(Reverse((due, timer)));
    }

    /// Adds a deadline for a closing connection. Returns a serial number that distinguishes the deadline from earlier
    /// ones.
    pub(crate) fn add_linger(&mut self, due: Time, slot: u32) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.add(
            due,
            Timer::Linger {
                slot,
                serial: self.serial,
            },
        );
        self.serial
    }

    /// Returns the soonest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes and returns one timer that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, timer))| timer)
    }
}
