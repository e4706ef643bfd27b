//! Lending: clients get servers of their pool, and give them back.
//!
//! This module owns no state of its own: the idle servers of a pool lie in [`LocalPools`], the queue of waiting
//! clients in the pool's ledger, and the loan itself in the two connections. A client that has authenticated joins
//! its pool (`join`). A client with a request gets an idle server or waits (`checkout`); clients of `bypass_users`
//! get an exclusive server (`bypass`). A server that was not used for a while is checked before its loan (`check`).
//! At the end of a transaction the server comes back (`release`), unless it stays with its client (`sharing`). A
//! server whose client has left is cleaned before the next loan (`cleaning`).
//!
//! Input: clients that ask for a server, servers that have become free, and the mails of ledgers. Output: actions for
//! the driver, notes of ledgers (orders to workers, see `pooling/notes.rs`), and effects: give the server the client's
//! session state ([`SessionEffect::Equip`](crate::effect::SessionEffect::Equip)), inspect or clean a session, open or
//! close a server connection, end a login.

mod bypass;
mod check;
mod checkout;
mod cleaning;
mod equip;
mod join;
mod release;
mod repeat;
mod replay;
mod scheduling_log;
mod sharing;

use std::sync::Arc;

pub(crate) use self::check::check_after;
use crate::{
    Actions, SharedPool, Token,
    client_listen::ListeningClients,
    connections::Connections,
    effect::{Effects, Env, PoolEffect},
    pool::{Notes, PoolId},
    pooling::{LocalPool, LocalPools, deliver},
};

/// An event of a client that asks for a server, or of a server that becomes free, and the parts of the worker that it
/// concerns.
#[derive(Debug)]
pub(crate) struct Lending<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    /// The clients of this worker that listen, and the notifications that they have received.
    pub(crate) listening_clients: &'w ListeningClients,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl Lending<'_> {
    /// Returns this worker's part of a pool, and creates it if need be.
    fn open_pool(&mut self, shared: &Arc<SharedPool>) -> &mut LocalPool {
        self.pools.open(&self.env, self.connections, shared)
    }

    /// Carries out a request of another module, or of the ledger, about the servers of a pool.
    pub(crate) fn use_pool(&mut self, id: PoolId, effect: PoolEffect, out: &mut Actions) {
        match effect {
            PoolEffect::ReleaseKept => self.release_kept(id),
            PoolEffect::ReleaseLentServers => self.release_lent(id),
            PoolEffect::ServeHeldClients => self.serve_held_clients(id),
            PoolEffect::FreeKeptServers => self.free_kept(id),
            PoolEffect::UpdateSharing => self.update_sharing(id),
            PoolEffect::AnswerLedger => self.answer_ledger(id, out),
            PoolEffect::OfferKeptServers => self.offer_kept_servers(id),
            other => debug_assert!(false, "{other:?} is for another module"),
        }
    }

    /// Sends the notes of a ledger to the workers.
    fn deliver(&self, notes: &Notes, pool: &Arc<SharedPool>, out: &mut Actions) {
        deliver(&self.env, notes, pool, out);
    }

    /// Returns whether this client's startup parameters still have to be tried on a server.
    fn is_unproven(&mut self, client: Token) -> bool {
        let client = self.connections.client(client);
        let context = client.and_then(|client| client.context.as_ref());
        context.is_some_and(|context| context.unproven)
    }
}
