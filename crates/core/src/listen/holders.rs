//! Whose work a server does: a notification names the process that sent it, and if that is a server
//! of ours, its client is meant.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

use crate::Endpoint;

/// The pid, as its client was told, of whom a server works or worked for last; 0 for nobody yet.
#[derive(Debug, Clone, Default)]
pub struct Holder(Arc<AtomicU32>);

impl Holder {
    /// This client has the server from here on.
    #[inline]
    pub fn set(&self, pid: u32) {
        self.0.store(pid, Ordering::Release);
    }

    /// Who has it, or had it last.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// All servers of the process that have logged in, by where they are and their own pids. Touched
/// when one logs in or goes, and for each notification that a listener hears.
#[derive(Debug, Default)]
pub struct Holders {
    by_server: Mutex<HashMap<(Arc<Endpoint>, u32), Holder>>,
}

impl Holders {
    /// A server has logged in.
    pub fn add(&self, endpoint: &Arc<Endpoint>, pid: u32, holder: &Holder) {
        let place = (Arc::clone(endpoint), pid);
        self.by_server.lock().insert(place, holder.clone());
    }

    /// It is gone. Another one may have its pid already.
    pub fn remove(&self, endpoint: &Arc<Endpoint>, pid: u32, holder: &Holder) {
        let place = (Arc::clone(endpoint), pid);
        let mut by_server = self.by_server.lock();
        if let Some(known) = by_server.get(&place)
            && Arc::ptr_eq(&known.0, &holder.0)
        {
            by_server.remove(&place);
        }
    }

    /// The pid that clients know for whoever works with the server of this pid; `None` if it is no
    /// server of ours, or nobody has ever had it.
    #[must_use]
    pub fn find(&self, endpoint: &Arc<Endpoint>, pid: u32) -> Option<u32> {
        let place = (Arc::clone(endpoint), pid);
        let holder = self.by_server.lock().get(&place)?.get();
        (holder != 0).then_some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_place_and_pid() {
        let here = Arc::new(Endpoint::Unix("/tmp/a".into()));
        let there = Arc::new(Endpoint::Unix("/tmp/b".into()));
        let (holders, first, second) = (Holders::default(), Holder::default(), Holder::default());
        holders.add(&here, 7, &first);
        assert_eq!(holders.find(&here, 7), None, "nobody had it");
        first.set(3);
        assert_eq!(holders.find(&here, 7), Some(3));
        assert_eq!(holders.find(&there, 7), None);
        holders.add(&here, 7, &second);
        second.set(4);
        holders.remove(&here, 7, &first);
        assert_eq!(holders.find(&here, 7), Some(4), "the successor stays");
        holders.remove(&here, 7, &second);
        assert_eq!(holders.find(&here, 7), None);
    }
}
