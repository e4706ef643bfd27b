//! Cancel requests for clients of another process of the same group: they are passed on.
//!
//! A request for a peer goes through one worker, always the same for a peer, so that the most that
//! may be under way to it (`pool_size`) is one number without a lock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{Conn, Worker};
use crate::{
    Action, Actions, Endpoint, Level, Time, Token, WorkerId,
    cancel::{CancelConnection, CancelKey, Goal, Passage},
    mail::Mail,
};

const EXHAUSTED: &str = "failed to forward cancel request because its TTL was exhausted";
const NO_PEER: &str = "could not find peer to forward request to";

/// Peers to which requests are under way, by number.
pub(crate) type PeerPools = BTreeMap<u32, PeerPool>;

/// The requests for one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerPool {
    under_way: u32,
    /// First come, first served. Some may have ended.
    queue: VecDeque<Token>,
}

impl Worker {
    /// A client wants to cancel a query: finds out whose worker, or process, knows it.
    pub(crate) fn route_cancel(
        &mut self,
        request: Token,
        mut key: CancelKey,
        now: Time,
        out: &mut Actions,
    ) {
        let config = &self.snapshot.config;
        let (own, peer) = (config.settings.peer_id, key.peer());
        let workers = self.directory.workers();
        let from = self.id;
        if own == 0 || own == peer {
            let to = key.worker(workers);
            let mail = Mail::Cancel { from, request, key };
            return out.list.push(Action::Mail { to, mail });
        }
        if !key.take_hop() {
            return self.dismiss(request, EXHAUSTED, now, out);
        }
        if !config.peers.contains_key(&peer) {
            return self.dismiss(request, NO_PEER, now, out);
        }
        if self.is_verbose() {
            let subject = self.table.client(request).map(|client| client.subject());
            let text = format!("forwarding cancellation request to peer {peer}");
            out.log(Level::Debug, subject.unwrap_or_default(), text);
        }
        let to = WorkerId((peer as usize % workers) as u8);
        let mail = Mail::CancelForPeer { from, request, key };
        out.list.push(Action::Mail { to, mail });
    }

    /// A request of some worker for a peer that this one looks after.
    pub(crate) fn pass_on_cancel(
        &mut self,
        from: WorkerId,
        request: Token,
        key: CancelKey,
        now: Time,
        out: &mut Actions,
    ) {
        let peer = key.peer();
        let cancel = CancelConnection {
            goal: Goal::Peer(peer),
            key,
            from: Some((from, request)),
            passage: Passage::Queued,
            tls: None,
            until: self.cancel_deadline(now),
        };
        let conn = self.table.insert(Conn::Cancel(Box::new(cancel)));
        self.timed += 1;
        self.schedule(now);
        self.peers.entry(peer).or_default().queue.push_back(conn);
        self.serve_peer(peer, out);
    }

    /// Opens connections for requests that wait, as far as there may be.
    fn serve_peer(&mut self, peer: u32, out: &mut Actions) {
        let config = &self.snapshot.config;
        let Some(pool) = self.peers.get_mut(&peer) else {
            return;
        };
        // Of a peer that is not in the configuration any more, requests end by their timeout.
        if let Some(entry) = config.peers.get(&peer) {
            let host = entry.host.as_deref().unwrap_or_default();
            let endpoint = Arc::new(Endpoint::of(host, entry.port));
            let size = match entry.pool_size.unwrap_or(config.settings.default_pool_size) {
                0 => u32::MAX,
                size => size,
            };
            while pool.under_way < size {
                let Some(conn) = pool.queue.pop_front() else {
                    break;
                };
                if let Some(Conn::Cancel(cancel)) = self.table.get(conn) {
                    cancel.passage = Passage::Opening;
                    pool.under_way += 1;
                    let endpoint = Arc::clone(&endpoint);
                    out.list.push(Action::Connect { conn, endpoint });
                }
            }
        } else {
            pool.queue.retain(|&conn| self.table.look(conn).is_some());
        }
        if pool.under_way == 0 && pool.queue.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// A request for a peer has ended: the next one may go.
    pub(super) fn left_peer(&mut self, peer: u32, passage: Passage, out: &mut Actions) {
        if let Some(pool) = self.peers.get_mut(&peer) {
            pool.under_way -= u32::from(passage != Passage::Queued);
        }
        self.serve_peer(peer, out);
    }
}
