//! Finds out which servers of a pool are out of date: those that were opened before the last RECONNECT, or before the
//! last change of the settings under which servers are opened.

use crate::Time;

/// Microseconds for which PostgreSQL waits for other sessions to end before it refuses to drop, rename or copy a
/// database (`CountOtherDBBackends`).
const LEAVING: u64 = 5_000_000;

/// Counts the servers of a pool, connecting ones included, and how many of them are out of date. Used when a server is
/// opened or closed, and by the console.
#[derive(Debug, Default)]
pub struct Epochs {
    present: u32,
    servers: usize,
    outdated: usize,
    /// The time until which PostgreSQL waits for other sessions of the database to end.
    awaited_until: Option<Time>,
}

impl Epochs {
    /// Returns the epoch of servers that are opened now.
    #[must_use]
    pub fn present(&self) -> u32 {
        self.present
    }

    /// Begins a new epoch: all present servers are out of date from now on.
    pub fn renew(&mut self) {
        self.present = self.present.wrapping_add(1);
        self.outdated = self.servers;
    }

    /// Makes all servers leave the database as soon as the pool has no client. Returns `true` if the pool has no client
    /// now.
    pub fn leave(&mut self, now: Time, clients: usize) -> bool {
        self.awaited_until = Some(now.after(LEAVING));
        self.left(now, clients)
    }

    /// Notes that a client has left the pool and `clients` are left. Returns `true` if the servers have to leave the
    /// database now.
    pub fn left(&mut self, now: Time, clients: usize) -> bool {
        let is_awaited = clients == 0 && self.awaited_until.is_some_and(|until| now < until);
        if is_awaited {
            self.renew();
        }
        is_awaited
    }

    /// Counts a server of this epoch that is opened.
    pub fn opened(&mut self, epoch: u32) {
        self.servers += 1;
        self.outdated += usize::from(epoch != self.present);
    }

    /// Counts a server of this epoch that is gone.
    pub fn closed(&mut self, epoch: u32) {
        self.servers -= 1;
        self.outdated -= usize::from(epoch != self.present);
    }

    /// Returns the number of servers of all workers, including those on their way between workers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// Returns the number of servers that are out of date.
    #[must_use]
    pub fn outdated(&self) -> usize {
        self.outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outdated_are_counted_until_they_are_gone() {
        let mut epochs = Epochs::default();
        let first = epochs.present();
        epochs.opened(first);
        epochs.opened(first);
        epochs.renew();
        epochs.opened(epochs.present());
        // A worker that does not know the new epoch yet opens a server of the old one.
        epochs.opened(first);
        assert_eq!((epochs.servers(), epochs.outdated()), (4, 3));
        for _ in 0..3 {
            epochs.closed(first);
        }
        assert_eq!((epochs.servers(), epochs.outdated()), (1, 0));
        epochs.renew();
        assert_eq!(epochs.outdated(), 1);
        epochs.closed(epochs.present().wrapping_sub(1));
        assert_eq!((epochs.servers(), epochs.outdated()), (0, 0));
    }
}
