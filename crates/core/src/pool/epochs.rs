//! Which servers of a pool are out of date: opened before the last RECONNECT, or before the last
//! change of where and how its servers are opened.

use crate::Time;

/// Microseconds for which PostgreSQL waits for the others to leave a database that is to be dropped,
/// renamed or copied (`CountOtherDBBackends`), before it refuses.
const LEAVING: u64 = 5_000_000;

/// Servers of a pool that are connected or connect, counted by whether they are out of date. Touched
/// when one is opened or closed, and by the console.
#[derive(Debug, Default)]
pub struct Epochs {
    present: u32,
    servers: usize,
    outdated: usize,
    /// Until then PostgreSQL waits for all to leave the database.
    awaited_until: Option<Time>,
}

impl Epochs {
    /// The epoch that servers belong to which are opened now.
    #[must_use]
    pub fn present(&self) -> u32 {
        self.present
    }

    /// All servers that there are belong to the past from here on.
    pub fn renew(&mut self) {
        self.present = self.present.wrapping_add(1);
        self.outdated = self.servers;
    }

    /// All are to leave the database: at once if no client is there, or when the last one leaves.
    pub fn leave(&mut self, now: Time, clients: usize) -> bool {
        self.awaited_until = Some(now.after(LEAVING));
        self.left(now, clients)
    }

    /// So many clients are left: does that send the servers away?
    pub fn left(&mut self, now: Time, clients: usize) -> bool {
        let is_awaited = clients == 0 && self.awaited_until.is_some_and(|until| now < until);
        if is_awaited {
            self.renew();
        }
        is_awaited
    }

    /// A server of this epoch is opened.
    pub fn opened(&mut self, epoch: u32) {
        self.servers += 1;
        self.outdated += usize::from(epoch != self.present);
    }

    /// A server of this epoch is gone.
    pub fn closed(&mut self, epoch: u32) {
        self.servers -= 1;
        self.outdated -= usize::from(epoch != self.present);
    }

    /// All servers, of all workers, those on the way from one to another included.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// Those of the past.
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
        // A worker that has not heard of it yet opens one as before.
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
