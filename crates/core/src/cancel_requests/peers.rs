//! Cancel requests for clients of another process of the same group: they are passed on.
//!
//! A request for a peer goes through one worker, always the same for a peer, so that the most that
//! may be under way to it (`pool_size`) is one number without a lock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::CancelRequests;
use crate::{
    Action, Actions, Endpoint, Level, Token, WorkerId,
    cancel::{CancelConnection, CancelKey, Goal, Passage},
    connections::{Conn, Connections},
    effect::{Effect, Env},
    mail::Mail,
};

const EXHAUSTED: &str = "failed to forward cancel request because its TTL was exhausted";
const NO_PEER: &str = "could not find peer to forward request to";

/// Peers to which requests are under way, by number.
pub(super) type PeerPools = BTreeMap<u32, PeerPool>;

/// The requests for one peer.
#[derive(Debug, Default)]
pub(super) struct PeerPool {
    under_way: u32,
    /// First come, first served. Some may have ended.
    queue: VecDeque<Token>,
}

/// A client wants to cancel a query: finds out whose worker, or process, knows it.
pub(crate) fn route(
    env: &Env<'_>,
    connections: &mut Connections,
    request: Token,
    mut key: CancelKey,
    out: &mut Actions,
) -> Option<Effect> {
    let config = &env.snapshot.config;
    let (own, peer) = (config.settings.peer_id, key.peer());
    let workers = env.directory.workers();
    let from = env.worker;
    if own == 0 || own == peer {
        let to = key.worker(workers);
        let mail = Mail::Cancel { from, request, key };
        out.list.push(Action::Mail { to, mail });
        return None;
    }
    if !key.take_hop() {
        return Some(Effect::Dismiss(request, EXHAUSTED));
    }
    if !config.peers.contains_key(&peer) {
        return Some(Effect::Dismiss(request, NO_PEER));
    }
    if env.is_verbose() {
        let subject = connections.client(request).map(|client| client.subject());
        let text = format!("forwarding cancellation request to peer {peer}");
        out.log(Level::Debug, subject.unwrap_or_default(), text);
    }
    let to = WorkerId((peer as usize % workers) as u8);
    let mail = Mail::CancelForPeer { from, request, key };
    out.list.push(Action::Mail { to, mail });
    None
}

impl CancelRequests {
    /// A request of some worker for a peer that this worker looks after.
    pub(crate) fn pass_on(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        from: WorkerId,
        request: Token,
        key: CancelKey,
        out: &mut Actions,
    ) {
        let peer = key.peer();
        let cancel = CancelConnection {
            goal: Goal::Peer(peer),
            key,
            from: Some((from, request)),
            passage: Passage::Queued,
            tls: None,
            until: env.cancel_deadline(),
        };
        let conn = connections.insert(Conn::Cancel(Box::new(cancel)));
        connections.schedule(env.now);
        self.peers.entry(peer).or_default().queue.push_back(conn);
        self.serve_peer(env, connections, peer, out);
    }

    /// Opens connections for requests that wait, as far as there may be.
    fn serve_peer(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        peer: u32,
        out: &mut Actions,
    ) {
        let config = &env.snapshot.config;
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
                if let Some(Conn::Cancel(cancel)) = connections.get(conn) {
                    cancel.passage = Passage::Opening;
                    pool.under_way += 1;
                    let endpoint = Arc::clone(&endpoint);
                    out.list.push(Action::Connect { conn, endpoint });
                }
            }
        } else {
            pool.queue.retain(|&conn| connections.look(conn).is_some());
        }
        if pool.under_way == 0 && pool.queue.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// A request for a peer has ended: the next one may go.
    pub(super) fn left_peer(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        peer: u32,
        passage: Passage,
        out: &mut Actions,
    ) {
        if let Some(pool) = self.peers.get_mut(&peer) {
            pool.under_way -= u32::from(passage != Passage::Queued);
        }
        self.serve_peer(env, connections, peer, out);
    }
}
