//! The exchange: the loan of a server connection to a client, and the session state that goes with it.
//!
//! A client has its session state on each server that it gets. The exchange gives a server the client's state
//! (`equipping`), reads which state a transaction has left there (`settling`, `inspection`), lets a server stay with
//! its client as long as no other client needs it (`kept`), dedicates a server to a client whose state can't be moved
//! (`pins`), and removes a client's state from a server (`cleaning`).
//!
//! This module owns the time at which the next kept server has to be settled, and the number of
//! servers that were settled lately ([`KeptServers`]).
//!
//! Input: a server that is lent to a client, the answers to pgweir's own queries, the end of each transaction, and the
//! worker's ticks. Output: effects: relay the bytes of a client that were read before its server was ready, release a
//! server, refuse a client, move a client's channels to its listener, settle kept servers for clients that wait.

mod cleaning;
mod compiled_types;
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
    kept::{KeepDecision, KeptServers, KeptWalk, unsettled},
    pins::{count_pins, pin_at_login},
    settling::{before_ready, inspection_due},
};
use crate::{connections::Connections, effect::Env, pooling::LocalPools, session::Bindings};

/// The name, in reports of lost data, of a session that is missing after its inspection.
const INSPECTED: &str = "the session of a client that was inspected";

/// The parts of a worker that the exchange uses.
pub(crate) struct Exchange<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) bindings: &'w mut Bindings,
    pub(crate) kept: &'w mut KeptServers,
}
