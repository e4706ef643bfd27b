//! Maps servers to the clients that use them. A notification names the process that sent it. If that process is one of
//! pgweir's servers, the client gets the pid of the server's client in its place.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

use crate::Endpoint;

/// The pid that was given to the client of a server. This is the client to which the server is lent, or was lent last;
/// 0 if there was none yet.
#[derive(Debug, Clone, Default)]
pub struct Holder(Arc<AtomicU32>);

impl Holder {
    /// Notes that this client has the server from now on.
    #[inline]
    pub fn set(&self, pid: u32) {
        self.0.store(pid, Ordering::Release);
    }

    /// Returns the client that has the server, or had it last.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// All servers of the process that have logged in, by their endpoints and their pids. The map is used when a server
/// logs in or closes, and for each notification that a listener receives.
#[derive(Debug, Default)]
pub struct Holders {
    by_server: Mutex<HashMap<(Arc<Endpoint>, u32), Holder>>,
}

impl Holders {
    /// Adds a server that has logged in.
    pub fn add(&self, endpoint: &Arc<Endpoint>, pid: u32, holder: &Holder) {
        let place = (Arc::clone(endpoint), pid);
        self.by_server.lock().insert(place, holder.clone());
    }

    /// Removes a server that is gone. Another server may have its pid already.
    pub fn remove(&self, endpoint: &Arc<Endpoint>, pid: u32, holder: &Holder) {
        let place = (Arc::clone(endpoint), pid);
        let mut by_server = self.by_server.lock();
        if let Some(known) = by_server.get(&place)
            && Arc::ptr_eq(&known.0, &holder.0)
        {
            by_server.remove(&place);
        }
    }

    /// Returns the pid that was given to the client of the server with this pid; `None` if pgweir has no such server,
    /// or no client has ever had it.
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
