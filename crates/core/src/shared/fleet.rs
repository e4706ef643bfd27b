//! What this process knows of its fleet, for the console and metrics.

mod rounds;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

pub use self::rounds::{FleetCount, FleetCounted, FleetRound};
use crate::Time;

/// What the process knows of its fleet; empty without `fleet_etcd`.
#[derive(Debug, Default)]
pub struct Fleet {
    view: Mutex<FleetView>,
    peers: Mutex<Arc<FleetPeers>>,
}

/// The nodes that cancel requests can be passed on to, by `peer_id`.
pub type FleetPeers = BTreeMap<u32, FleetPeer>;

/// Where cancel requests for a node's clients are passed on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPeer {
    /// The node's host name or address.
    pub host: String,
    /// The node's port.
    pub port: u16,
}

/// The fleet, as this process has read it last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetView {
    /// The nodes. Some are lost nodes whose servers are reserved.
    pub nodes: Vec<FleetNode>,
    /// The servers that this process may have now, and those that it may always have.
    pub limit: u32,
    /// See [`limit`](Self::limit).
    pub floor: u32,
    /// Microseconds since this process has renewed its lease; `None` without one.
    pub lease_age: Option<u64>,
    /// Requests to etcd that have failed since the start of the process.
    pub errors: u64,
}

/// What is known of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FleetNodeState {
    /// The node is this process.
    This,
    /// The node has renewed its lease lately.
    #[default]
    Active,
    /// The lease of the node is over. Its servers stay reserved until PostgreSQL says that they have gone.
    Lost,
    /// No node: servers are reserved for sessions that belong to no known node.
    Unknown,
}

impl FleetNodeState {
    /// The name in SHOW FLEET.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::This => "this",
            Self::Active => "active",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// A node of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetNode {
    /// Its number in etcd.
    pub id: u64,
    /// The addresses that its servers come from.
    pub addresses: String,
    /// What is known of it.
    pub state: FleetNodeState,
    /// The servers above the floor that it holds.
    pub extra: u32,
    /// The servers that it could use.
    pub wanted: u32,
    /// Its version of pgweir.
    pub version: String,
    /// When this process has seen its last renewal.
    pub last_contact: Time,
}

impl Fleet {
    /// Returns what is known.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.view.lock().clone()
    }

    /// Replaces what is known.
    pub fn publish(&self, view: FleetView) {
        *self.view.lock() = view;
    }

    /// Returns the nodes that cancel requests can be passed on to. Those in `[peers]` come first.
    #[must_use]
    pub fn peers(&self) -> Arc<FleetPeers> {
        Arc::clone(&self.peers.lock())
    }

    /// Replaces the nodes that cancel requests can be passed on to.
    pub fn publish_peers(&self, peers: FleetPeers) {
        *self.peers.lock() = Arc::new(peers);
    }
}
