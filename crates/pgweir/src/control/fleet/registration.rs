//! Registers this process in etcd as a peer, so that other nodes can pass on cancel requests for its clients.
//!
//! The key `peer/PEER_ID` has the address of the node. The node renews the key's lease in etcd, and etcd removes the key when the
//! lease ends. If the key has another address, another node has the same `peer_id`, and keeps the key. The new process of an
//! online restart has the address of the old one, so it takes the key over.

use pgweir_core::shared::fleet::FleetPeers;
use pgweir_fleet::NodeId;
use pgweir_formats::fleet_values::PeerValue;

use super::store::{EtcdLease, Store, StoreError};

/// How many times a lease is renewed while it lasts.
const RENEWALS_PER_LEASE: u64 = 3;

/// The key of this process.
#[derive(Default)]
pub(super) struct Registration {
    held: Option<Held>,
    /// A later process with the same address has taken the key over, so this process leaves it.
    is_succeeded: bool,
}

/// A key that this process has written.
struct Held {
    id: u32,
    value: PeerValue,
    lease: EtcdLease,
    /// When the lease was renewed last, in microseconds.
    renewed: u64,
}

/// The result of an attempt to register this process, or to renew its registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The process has no `peer_id`, or its successor is registered.
    Nothing,
    /// The key was written now.
    Registered,
    /// The key is this process's, as before.
    Kept,
    /// Another node has the `peer_id`, at this address.
    Taken(String),
    /// Another node has changed the key since it was read, or the lease has ended. The next read shows the key as it is.
    Outdated,
}

impl Registration {
    /// Registers the process under this `peer_id`, or renews the registration. `seconds` is the time until the registration ends
    /// if this process does not renew it. The store must have been read since the last call.
    ///
    /// # Errors
    /// etcd can't be asked. The registration lasts until its lease ends.
    pub(super) async fn keep(
        &mut self,
        store: &mut Store,
        wanted: Option<(u32, PeerValue)>,
        seconds: i64,
        now: u64,
    ) -> Result<Outcome, StoreError> {
        let is_wanted = |held: &Held| {
            (wanted.as_ref()).is_some_and(|(id, value)| *id == held.id && *value == held.value)
        };
        if self.held.as_ref().is_some_and(|held| !is_wanted(held)) {
            self.is_succeeded = false;
            self.release(store).await;
        }
        let Some((id, value)) = wanted else {
            return Ok(Outcome::Nothing);
        };
        let known = store.peers().by_id.get(&id).map(|(known, _)| known.clone());
        let is_own = known.as_ref().is_some_and(|it| it.node == value.node);
        if let Some(held) = &mut self.held {
            if !is_own {
                // The lease has ended, somebody has deleted the key, or this process has a successor.
                self.is_succeeded = known.is_some_and(|it| it.address == value.address);
                self.release(store).await;
                return Ok(Outcome::Outdated);
            }
            let pause = held.lease.seconds * 1_000_000 / RENEWALS_PER_LEASE;
            if now.saturating_sub(held.renewed) >= pause {
                if store.renew_lease(held.lease).await? {
                    held.renewed = now;
                } else {
                    self.held = None;
                    return Ok(Outcome::Outdated);
                }
            }
            return Ok(Outcome::Kept);
        }
        if let Some(other) = known.filter(|_| !is_own) {
            match other.address == value.address {
                false => return Ok(Outcome::Taken(other.address.to_string())),
                true if self.is_succeeded => return Ok(Outcome::Nothing),
                true => {}
            }
        }
        self.register(store, (id, value), seconds, now).await
    }

    async fn register(
        &mut self,
        store: &mut Store,
        (id, value): (u32, PeerValue),
        seconds: i64,
        now: u64,
    ) -> Result<Outcome, StoreError> {
        let lease = store.grant_lease(seconds).await?;
        if !store.put_peer(id, &value, lease).await? {
            store.revoke_lease(lease).await?;
            return Ok(Outcome::Outdated);
        }
        self.is_succeeded = false;
        self.held = Some(Held {
            id,
            value,
            lease,
            renewed: now,
        });
        Ok(Outcome::Registered)
    }

    /// Removes the key of this process.
    async fn release(&mut self, store: &mut Store) {
        if let Some(held) = self.held.take() {
            // If this fails, etcd removes the key when the lease ends.
            let _ = store.revoke_lease(held.lease).await;
        }
    }
}

/// Returns the other nodes that are registered.
pub(super) fn others(store: &Store, own: NodeId) -> FleetPeers {
    let peers = store.peers().by_id.iter();
    let others = peers.filter(|(_, (value, _))| value.node != own);
    others
        .map(|(&id, (value, _))| (id, value.address.clone()))
        .collect()
}
