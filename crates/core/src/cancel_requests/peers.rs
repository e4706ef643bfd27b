//! Passes on cancel requests for clients of another process of the same group.
//!
//! All requests for a peer go through one worker. So this worker alone counts the requests in
//! progress, which `pool_size` limits, and needs no lock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::CancelRequests;
use crate::{
    Action, Actions, Endpoint, Level, Token, WorkerId,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env},
    mail::Mail,
    shared::cancel::{CancelConnection, CancelKey, CancelState, CancelTarget},
};

const EXHAUSTED: &str = "failed to forward cancel request because its TTL was exhausted";
const NO_PEER: &str = "could not find peer to forward request to";

/// Peers to which requests are under way, by number.
pub(super) type PeerPools = BTreeMap<u32, PeerPool>;

/// The requests for one peer.
#[derive(Debug, Default)]
pub(super) struct PeerPool {
    under_way: u32,
    /// First in, first out. Some may have ended.
    queue: VecDeque<Token>,
}

/// A peer, by the configuration or by etcd.
pub(crate) struct KnownPeer {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The largest number of requests that are being sent to the peer; 0 is no limit.
    pub(crate) pool_size: u32,
    /// Whether an entry of `[peers]` names the peer.
    pub(crate) is_configured: bool,
}

/// Routes a cancel request: finds the worker, or the peer, that has the client with this key.
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
        out.mail(to, mail);
        return None;
    }
    if !key.take_hop() {
        return Some(Effect::Client(ClientEffect::Dismiss(request, EXHAUSTED)));
    }
    if env.peer(peer).is_none() {
        return Some(Effect::Client(ClientEffect::Dismiss(request, NO_PEER)));
    }
    if env.is_verbose() {
        let subject = connections.client(request).map(|client| client.subject());
        let text = format!("forwarding cancellation request to peer {peer}");
        out.log(Level::Debug, subject.unwrap_or_default(), text);
    }
    let to = WorkerId((peer as usize % workers) as u8);
    let mail = Mail::CancelForPeer { from, request, key };
    out.mail(to, mail);
    None
}

impl CancelRequests {
    /// Queues a request of any worker for a peer whose requests this worker sends.
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
            goal: CancelTarget::Peer(peer),
            key,
            from: Some((from, request)),
            state: CancelState::Queued,
            tls: None,
            until: env.cancel_deadline(),
        };
        let conn = connections.insert(Conn::Cancel(Box::new(cancel)), env.now);
        self.peers.entry(peer).or_default().queue.push_back(conn);
        self.serve_peer(env, connections, peer, out);
    }

    /// Opens connections for requests that wait, up to the limit.
    fn serve_peer(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        peer: u32,
        out: &mut Actions,
    ) {
        let Some(pool) = self.peers.get_mut(&peer) else {
            return;
        };
        // Requests for a peer that is no longer known end by their timeout.
        if let Some(peer) = env.peer(peer) {
            let endpoint = Arc::new(Endpoint::of(&peer.host, peer.port));
            let size = match peer.pool_size {
                0 => u32::MAX,
                size => size,
            };
            while pool.under_way < size {
                let Some(conn) = pool.queue.pop_front() else {
                    break;
                };
                if let Some(Conn::Cancel(cancel)) = connections.get_mut(conn) {
                    cancel.state = CancelState::Opening;
                    pool.under_way += 1;
                    let endpoint = Arc::clone(&endpoint);
                    out.list.push(Action::Connect { conn, endpoint });
                }
            }
        } else {
            pool.queue.retain(|&conn| connections.get(conn).is_some());
        }
        if pool.under_way == 0 && pool.queue.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// Notes that a request for a peer has ended: the next one may go.
    pub(super) fn left_peer(
        &mut self,
        env: &Env<'_>,
        connections: &mut Connections,
        peer: u32,
        state: CancelState,
        out: &mut Actions,
    ) {
        if let Some(pool) = self.peers.get_mut(&peer) {
            pool.under_way -= u32::from(state != CancelState::Queued);
        }
        self.serve_peer(env, connections, peer, out);
    }
}

impl Env<'_> {
    /// Returns the peer with this number: its entry of `[peers]`, or else what it has written into etcd itself.
    fn peer(&self, id: u32) -> Option<KnownPeer> {
        let config = &self.snapshot.config;
        let default_size = config.settings.default_pool_size;
        if let Some(entry) = config.peers.get(&id) {
            return Some(KnownPeer {
                host: entry.host.clone().unwrap_or_default(),
                port: entry.port,
                pool_size: entry.pool_size.unwrap_or(default_size),
                is_configured: true,
            });
        }
        let peers = self.directory.fleet().peers();
        peers.get(&id).map(|peer| KnownPeer {
            host: peer.host.clone(),
            port: peer.port,
            pool_size: default_size,
            is_configured: false,
        })
    }

    /// Returns all peers by number.
    pub(crate) fn peers(&self) -> BTreeMap<u32, KnownPeer> {
        let fleet = self.directory.fleet().peers();
        let ids = self.snapshot.config.peers.keys().chain(fleet.keys());
        ids.filter_map(|&id| Some((id, self.peer(id)?))).collect()
    }
}
