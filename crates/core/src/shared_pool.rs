//! A pool as all workers see it: its ledger, and what is known of its servers.

mod eviction;
mod failure;
mod welcome;

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize},
};

use parking_lot::Mutex;
use pgweir_auth::{scram::ClientKeys, userlist::Secret};

pub(crate) use self::eviction::Found;
pub use self::{eviction::Search, failure::Failure, welcome::Welcome};
use crate::{
    catalog::Catalog,
    pool::{Epochs, Ledger, PoolId, PoolKey},
    session::{Baseline, Customs, SequenceReaders, Startups},
    stats::{Stats, Times},
};

/// A pool as all workers see it.
#[derive(Debug)]
pub struct SharedPool {
    /// Its id, while it lives.
    pub id: PoolId,
    /// Its database and user.
    pub key: PoolKey,
    /// Its servers, counted, and its queue of waiting clients.
    pub ledger: Mutex<Ledger>,
    /// What is known of its servers.
    pub facts: Mutex<Facts>,
    /// Custom parameters that its clients use.
    pub customs: Mutex<Customs>,
    /// What is certified of its database.
    pub catalog: Arc<Catalog>,
    /// The values that servers have made of clients' startup parameters.
    pub startups: Mutex<Startups>,
    /// Which of its applications ask for sequence values in a later transaction than the one that made them.
    pub sequence_readers: SequenceReaders,
    /// Which of its servers are out of date.
    pub epochs: Mutex<Epochs>,
    /// Counts changes of what its sessions begin with (ALTER ROLE SET and the like).
    pub defaults: AtomicU32,
    /// What workers counted here that have forgotten the pool since.
    pub past: Mutex<Stats>,
    /// The histograms of those workers.
    pub past_times: Mutex<Times>,
    /// Clients that take its servers in turn.
    pub clients: AtomicUsize,
    /// Counts up to where the next server is opened, in a list of hosts.
    pub hosts: AtomicUsize,
    pub(crate) free_ids: Arc<Mutex<FreeIds>>,
}

impl SharedPool {
    /// Is that its servers' encoding?
    pub(crate) fn is_utf8(&self) -> bool {
        let facts = self.facts.lock();
        let welcome = facts.welcome.as_ref();
        welcome.and_then(|welcome| welcome.parameter(b"server_encoding")) == Some(b"UTF8")
    }
}

/// What is known of the servers of a pool.
#[derive(Debug, Default)]
pub struct Facts {
    /// Their parameters; `None` while none has logged in.
    pub welcome: Option<Arc<Welcome>>,
    /// The epoch of the server that said so, and that of what its session began with.
    pub epoch: u32,
    /// See [`SharedPool::defaults`].
    pub defaults: u32,
    /// Why the last login failed; `None` once one succeeds.
    pub failure: Option<Failure>,
    /// How many have failed one after another.
    pub failures: usize,
    /// The secret that a client has proven, of a user who is not in `auth_file`.
    pub secret: Option<Arc<Secret>>,
    /// LDAP or PAM has checked it: then it comes before one in `auth_file`.
    pub is_checked: bool,
    /// SCRAM keys of a client, which are good for the server too if it has the same secret.
    pub keys: Option<ClientKeys>,
    /// The values of a clean session's parameters, as a server told them last.
    pub baseline: Option<Arc<Baseline>>,
}

impl Facts {
    /// A login has come to nothing.
    pub fn has_failed(&mut self, why: Failure) {
        let before = if self.failure.is_some() {
            self.failures
        } else {
            0
        };
        self.failures = before.saturating_add(1);
        self.failure = Some(why);
    }

    /// The secret for servers, where `auth_file` has `listed` for their user.
    #[must_use]
    pub fn secret<'s>(&'s self, listed: Option<&'s Arc<Secret>>) -> Option<&'s Arc<Secret>> {
        let proven = self.secret.as_ref();
        match self.is_checked {
            true => proven.or(listed),
            false => listed.or(proven),
        }
    }
}

/// Ids of pools that may be given to new ones.
#[derive(Debug, Default)]
pub(crate) struct FreeIds {
    free: Vec<u32>,
    next: u32,
}

impl FreeIds {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        // Before somebody else gets the id.
        self.ledger.get_mut().part();
        self.free_ids.lock().free.push(self.id.0);
    }
}
