//! SHOW PEERS and SHOW PEER_POOLS: the processes to which this process passes on cancel requests.

use crate::{
    admin::Admin,
    connections::Conn,
    console::{Cell, Collection, Column, Kind, PeerCount, Table},
    shared::cancel::{CancelState, CancelTarget},
};

use Kind::{Int4, Text};

const PEER_COLUMNS: [Column; 5] = [
    ("peer_id", Int4),
    ("host", Text),
    ("port", Int4),
    ("pool_size", Int4),
    ("source", Text),
];

const PEER_POOL_COLUMNS: [Column; 5] = [
    ("peer_id", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active_cancel", Int4),
    ("sv_login", Int4),
];

/// Adds the requests that this worker passes on.
pub(super) fn add(admin: &Admin<'_>, collection: &mut Collection) {
    for (_, conn) in admin.connections.iter() {
        if let Conn::Cancel(cancel) = conn
            && let CancelTarget::Peer(peer) = cancel.goal
        {
            let count = collection.peers.entry(peer).or_default();
            match cancel.state {
                CancelState::Queued => count.queued += 1,
                CancelState::Opening | CancelState::Asked | CancelState::Handshake => {
                    count.opening += 1
                }
                CancelState::Sent => count.sent += 1,
            }
        }
    }
}

pub(super) fn peers(admin: &Admin<'_>) -> Table {
    let rows = admin.env.peers().into_iter().map(|(id, peer)| {
        let source = match peer.is_configured {
            true => "peers",
            false => "fleet_etcd",
        };
        vec![
            id.into(),
            peer.host.into(),
            u32::from(peer.port).into(),
            peer.pool_size.into(),
            source.into(),
        ]
    });
    (PEER_COLUMNS.into(), rows.collect())
}

pub(super) fn peer_pools(admin: &Admin<'_>, collection: &Collection) -> Table {
    let rows = admin.env.peers().into_keys().map(|id| {
        let PeerCount {
            queued,
            opening,
            sent,
        } = collection.peers.get(&id).copied().unwrap_or_default();
        let mut row = vec![Cell::from(id)];
        row.extend([sent, queued + opening, sent, opening].map(Cell::from));
        row
    });
    (PEER_POOL_COLUMNS.into(), rows.collect())
}
