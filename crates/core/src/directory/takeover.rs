//! What an online restart needs to know in the whole process, before or after another one.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use pgweir_auth::scram::ClientKeys;

use super::Directory;
use crate::{
    Halt,
    pool::{PoolId, PoolKey},
    shared_pool::SharedPool,
    takeover::{Begin, PoolNote, Retained},
    time::Time,
};

/// What an online restart needs to know in the whole process.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// There is another process, before or after this one.
    has_partner: AtomicBool,
    /// Clients leave for it.
    departs: AtomicBool,
    keeping: Mutex<Retained>,
    /// Pools of which the process before this one has servers: they live as long.
    elsewhere: Mutex<HashMap<PoolId, Arc<SharedPool>>>,
}

impl Directory {
    /// A directory of a process that takes the place of another: `generation` restarts were before it,
    /// and no id up to `next_id` is given again.
    #[must_use]
    pub fn succeeding(mut self, generation: u8, next_id: u64) -> Self {
        self.generation = generation;
        self.next_id = AtomicU64::new(next_id);
        self.set_partner(true);
        self
    }

    /// Is there another process, that this one takes over from or hands over to?
    #[must_use]
    pub fn has_partner(&self) -> bool {
        self.takeover.has_partner.load(Ordering::Relaxed)
    }

    /// Do clients leave for it?
    pub(super) fn departs(&self) -> bool {
        self.takeover.departs.load(Ordering::Relaxed)
    }

    /// There is one, or none any more.
    pub fn set_partner(&self, has: bool) {
        self.takeover.has_partner.store(has, Ordering::Relaxed);
    }

    /// What is kept of servers while clients leave.
    pub(crate) fn keeping(&self) -> MutexGuard<'_, Retained> {
        self.takeover.keeping.lock()
    }

    pub(crate) fn remember_elsewhere(&self, pool: &Arc<SharedPool>, has: bool) {
        let mut elsewhere = self.takeover.elsewhere.lock();
        match has {
            true => drop(elsewhere.insert(pool.id, Arc::clone(pool))),
            false => drop(elsewhere.remove(&pool.id)),
        }
    }

    pub(crate) fn forget_elsewhere(&self) -> Vec<Arc<SharedPool>> {
        let mut elsewhere = self.takeover.elsewhere.lock();
        elsewhere.drain().map(|(_, pool)| pool).collect()
    }

    /// Another process takes the place of this one: no servers are opened any more beyond what is there.
    /// Workers are then told so. Gives what the other process has to know.
    #[must_use]
    pub fn begin_departure(&self) -> Begin {
        self.set_partner(true);
        self.takeover.departs.store(true, Ordering::Relaxed);
        self.keeping().begin();
        let pools = self.pools().into_iter();
        let notes = pools.map(|pool| {
            let held = {
                let mut ledger = pool.ledger.lock();
                let held = ledger.servers();
                ledger.restrict(held);
                held
            };
            PoolNote {
                database: pool.key.database.to_string(),
                user: pool.key.user.to_string(),
                held,
                lent: 0,
                keys: pool.facts.lock().keys.as_ref().map(ClientKeys::to_bytes),
            }
        });
        let (paused, disabled) = self.operator.names();
        Begin {
            pools: notes.collect(),
            // Ids that clients still get here stay below.
            next_id: self.next_id.load(Ordering::Relaxed) + 1_000_000,
            process_key: self.process_key.0,
            is_paused: self.operator.halt() == Halt::Paused,
            paused,
            disabled,
        }
    }

    /// It has failed. Workers are then told so.
    pub fn end_departure(&self) {
        self.set_partner(false);
        self.takeover.departs.store(false, Ordering::Relaxed);
        self.keeping().forget();
        // Here and not by the workers: a pool may live that none of them knows at present.
        for pool in self.pools() {
            pool.ledger.lock().unrestrict();
        }
    }

    /// What the process before this one has. Nobody waits for anything yet.
    pub fn inherit(&self, pools: &[PoolNote]) {
        let snapshot = self.snapshot();
        for note in pools {
            let Some(database) = snapshot.config.database(&note.database) else {
                continue;
            };
            let key = PoolKey {
                database: note.database.as_str().into(),
                user: note.user.as_str().into(),
            };
            let pool = self.pool(&key, &snapshot.config, database);
            pool.facts.lock().keys = note.keys.map(ClientKeys::of_bytes);
            let mut ledger = pool.ledger.lock();
            let _ = ledger.set_elsewhere(note.held, 0, Time(0));
            drop(ledger);
            // Also without servers: it lives until its clients come.
            self.remember_elsewhere(&pool, true);
        }
    }
}
