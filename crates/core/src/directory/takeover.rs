//! The state of an online restart that all workers of a process share.

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
    base::time::Time,
    pool::{PoolId, PoolKey},
    shared::pool::SharedPool,
    takeover::{Begin, PoolNote, Retained},
};

/// The state of an online restart that all workers of a process share.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// Whether there is another process: this one takes over from it, or hands over to it.
    has_partner: AtomicBool,
    /// Whether clients are being handed over to the other process.
    departs: AtomicBool,
    retained: Mutex<Retained>,
    /// Pools in which the old process has servers. This map keeps them alive until the old process has none.
    elsewhere: Mutex<HashMap<PoolId, Arc<SharedPool>>>,
}

impl Directory {
    /// Makes this the directory of a process that takes over from another one. `generation` is the number of restarts
    /// before; this process gives no id that the other process has given, or may still give.
    #[must_use]
    pub fn succeeding(mut self, generation: u8, begin: &Begin) -> Self {
        self.process.generation = generation;
        self.next_id = AtomicU64::new(begin.next_id);
        self.statements().start_after(begin.last_statement);
        self.set_partner(true);
        self
    }

    /// Returns whether there is another process that this one takes over from, or hands over to.
    #[must_use]
    pub fn has_partner(&self) -> bool {
        self.takeover.has_partner.load(Ordering::Relaxed)
    }

    /// Returns whether clients are being handed over to another process.
    pub(super) fn hands_clients_over(&self) -> bool {
        self.takeover.departs.load(Ordering::Relaxed)
    }

    /// Notes whether there is another process.
    pub fn set_partner(&self, has: bool) {
        self.takeover.has_partner.store(has, Ordering::Relaxed);
    }

    /// Returns the number of servers that this process keeps in each pool while clients are handed over.
    pub(crate) fn retained(&self) -> MutexGuard<'_, Retained> {
        self.takeover.retained.lock()
    }

    pub(crate) fn remember_old_process_servers(&self, pool: &Arc<SharedPool>, has: bool) {
        let mut elsewhere = self.takeover.elsewhere.lock();
        match has {
            true => drop(elsewhere.insert(pool.id, Arc::clone(pool))),
            false => drop(elsewhere.remove(&pool.id)),
        }
    }

    pub(crate) fn forget_old_process_servers(&self) -> Vec<Arc<SharedPool>> {
        let mut elsewhere = self.takeover.elsewhere.lock();
        elsewhere.drain().map(|(_, pool)| pool).collect()
    }

    /// Notes that a new process takes over: from now on, this process opens no more servers than it has. Returns the
    /// state that the new process needs. The caller then notifies the workers.
    #[must_use]
    pub fn begin_departure(&self) -> Begin {
        self.set_partner(true);
        self.takeover.departs.store(true, Ordering::Relaxed);
        self.retained().begin();
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
            // Clients that connect to this process from now on get ids below this one.
            next_id: self.next_id.load(Ordering::Relaxed) + 1_000_000,
            // Clients of this process may prepare statements until they leave.
            last_statement: self.statements().last_id() + (1 << 24),
            process_key: self.process.key.0,
            is_paused: self.operator.halt() == Halt::Paused,
            paused,
            disabled,
        }
    }

    /// Notes that the restart has failed. The caller then notifies the workers.
    pub fn end_departure(&self) {
        self.set_partner(false);
        self.takeover.departs.store(false, Ordering::Relaxed);
        self.retained().forget();
        // The ledgers are changed here and not by the workers, since no worker may know a pool at present.
        for pool in self.pools() {
            pool.ledger.lock().unrestrict();
        }
    }

    /// Notes the servers that the old process has. No client waits in this process yet.
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
            let _ = ledger.set_old_process_servers(note.held, 0, Time(0));
            drop(ledger);
            // A pool without servers is kept, too, until its clients arrive.
            self.remember_old_process_servers(&pool, true);
        }
    }
}
