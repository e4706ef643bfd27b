//! The fleet as this process has read it last, for the console and metrics.

mod entries;
mod rounds;

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use pgweir_config::authority;

pub use self::{
    entries::EntriesView,
    rounds::{FleetCount, FleetCounted, FleetRound},
};
use crate::Time;

/// The fleet as this process has read it last. Empty without `fleet_etcd`.
#[derive(Debug, Default)]
pub struct Fleet {
    view: Mutex<FleetView>,
    peers: Mutex<Arc<FleetPeers>>,
    entries: Mutex<EntriesView>,
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

impl fmt::Display for FleetPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// The fleet, as this process has read it last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetView {
    /// The nodes. Some are lost nodes whose servers are reserved.
    pub nodes: Vec<FleetNode>,
    /// How many servers this process may have now.
    pub limit: u32,
    /// How many servers this process may always have.
    pub floor: u32,
    /// Microseconds since this process has renewed its lease; `None` if it has no lease.
    pub lease_age: Option<u64>,
    /// How many requests to etcd have failed since the start of the process.
    pub errors: u64,
    /// How many console commands for all nodes are in progress.
    pub commands: u32,
}

/// The state of a node, as this process knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FleetNodeState {
    /// The node is this process.
    This,
    /// The node has renewed its lease lately.
    #[default]
    Active,
    /// The lease of the node is over. Its servers stay reserved until PostgreSQL shows that they have ended.
    Lost,
    /// Not a node: an entry that reserves servers for sessions which belong to no known node.
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
    /// The node's number in etcd.
    pub id: u64,
    /// The addresses that the node's servers come from.
    pub addresses: String,
    /// The state of the node.
    pub state: FleetNodeState,
    /// How many servers above the floor the node holds.
    pub extra: u32,
    /// How many servers the node could use.
    pub wanted: u32,
    /// The node's version of pgweir.
    pub version: String,
    /// When this process has read the node's last renewal.
    pub last_contact: Time,
}

impl Fleet {
    /// Returns the fleet as it was published last.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.view.lock().clone()
    }

    /// Publishes the fleet as it was just read.
    pub fn publish(&self, view: FleetView) {
        *self.view.lock() = view;
    }

    /// Returns the nodes that cancel requests can be passed on to. Those in `[peers]` come first.
    #[must_use]
    pub fn peers(&self) -> Arc<FleetPeers> {
        Arc::clone(&self.peers.lock())
    }

    /// Records the state of the entries in etcd.
    pub fn publish_entries(&self, view: EntriesView) {
        *self.entries.lock() = view;
    }

    /// Returns the state of the entries in etcd.
    #[must_use]
    pub fn entries(&self) -> EntriesView {
        *self.entries.lock()
    }

    /// Replaces the nodes that cancel requests can be passed on to.
    pub fn publish_peers(&self, peers: FleetPeers) {
        *self.peers.lock() = Arc::new(peers);
    }
}
