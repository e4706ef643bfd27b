//! The exchange: the loan of a server connection to a client, and the session state that goes with it.
//!
//! A client finds its session state on each server that it gets. The exchange gives a server the client's state
//! (`equipping`), finds out which state a transaction has left there (`settling`, `inspection`), lets a server stay
//! with its client as long as nobody else needs it (`kept`), dedicates a server to a client whose state can't be moved
//! (`pins`), and takes a client's state away again (`cleaning`).
//!
//! This module owns when the next kept server has to be settled, and how many were settled lately ([`KeptServers`]).
//!
//! In come a server that is lent to a client, the answers to pgweir's own queries, the end of each transaction, and the
//! tick. Out go effects: relay the bytes of a client that were read before its server was ready, release a server,
//! refuse a client, move a client's channels to its listener, settle kept servers for clients that wait.

mod cleaning;
mod defaults;
mod equipping;
mod found_state;
mod inspection;
mod internal_queries;
mod kept;
mod pins;
mod settling;
mod sql_statements;
mod startup;

pub(crate) use self::{
    inspection::take_answer,
    internal_queries::internal_query_failed,
    kept::{Kept, KeptServers, unsettled},
    pins::{count_pins, pin_at_login},
    settling::{before_ready, inspection_due},
};
use crate::{connections::Connections, effect::Env, pooling::LocalPools, session::Bindings};

/// A server and its client are missing in the table of connections.
const NO_LOAN: &str = "a server connection and the client that it is lent to";

/// The pieces of a worker that the exchange uses.
pub(crate) struct Exchange<'w> {
    env: Env<'w>,
    connections: &'w mut Connections,
    pools: &'w mut LocalPools,
    bindings: &'w mut Bindings,
    kept: &'w mut KeptServers,
}

impl<'w> Exchange<'w> {
    #[inline]
    pub(crate) fn new(
        env: Env<'w>,
        connections: &'w mut Connections,
        pools: &'w mut LocalPools,
        bindings: &'w mut Bindings,
        kept: &'w mut KeptServers,
    ) -> Self {
        Self {
            env,
            connections,
            pools,
            bindings,
            kept,
        }
    }
}
