//! The driver's own deadlines; the core has its own.

use std::{cmp::Reverse, collections::BinaryHeap};

use pgweir_core::{Time, Token};

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A closing connection has had its time, unless the serial number has moved on.
    Linger { slot: u32, serial: u32 },
    /// Try to connect again.
    Reconnect(Token),
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
    /// Adds a deadline. There is no way to take it back: a timer that has lost its sense is
    /// recognised when it is due.
    pub(crate) fn add(&mut self, due: Time, timer: Timer) {
        self.heap.push(Reverse((due, timer)));
    }

    /// Adds a deadline for a closing connection; its serial number tells it from earlier ones.
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

    /// The soonest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Takes one timer that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, timer))| timer)
    }
}
