//! The tables behind SHOW, with PgBouncer's columns.

mod catalog;
mod events;
mod fds;
mod few;
mod group;
mod internal;
mod listeners;
pub(in crate::admin) mod peers;
mod pins;
pub(in crate::admin) mod pools;
pub(in crate::admin) mod statements;
pub(in crate::admin) mod stats;
mod times;
pub(in crate::admin) mod users;
mod waiters;

use crate::{
    Time,
    console::{Collection, Show, Table},
    worker::Worker,
};

/// Adds one worker's part.
pub(super) fn add(worker: &mut Worker, collection: &mut Collection, now: Time) {
    match collection.show {
        Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets => {
            peers::add(worker, collection, now);
        }
        Show::Fds => fds::add(worker, collection),
        Show::Pins | Show::PinStats => pins::add(worker, collection, now),
        Show::Waiters => waiters::add(worker, collection, now),
        Show::Internal => internal::add(worker, collection),
        Show::Statements => statements::add(worker, collection),
        Show::Listeners => listeners::add(worker, collection),
        Show::PeerPools => group::add(worker, collection),
        Show::Times => {
            times::add(worker, collection);
            add_pools(worker, collection, now);
        }
        Show::Pools
        | Show::Databases
        | Show::Users
        | Show::Lists
        | Show::Mem
        | Show::Stats
        | Show::StatsTotals
        | Show::StatsAverages
        | Show::Totals => add_pools(worker, collection, now),
        _ => {}
    }
}

fn add_pools(worker: &mut Worker, collection: &mut Collection, now: Time) {
    let parts = worker.parts(now);
    parts.statistics.turn(&parts.env, parts.pools);
    pools::add(worker, collection, now);
}

/// Adds what was counted in pools by workers that have removed them since.
pub(super) fn add_past(worker: &Worker, collection: &mut Collection) {
    for pool in worker.directory.pools() {
        if let Some(count) = collection.pools.get_mut(&pool.key) {
            count.past = *pool.past.lock();
        }
    }
}

/// Returns the complete table.
pub(super) fn table(worker: &Worker, mut collection: Collection, now: Time) -> Table {
    add_past(worker, &mut collection);
    match collection.show {
        Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets => {
            peers::table(collection)
        }
        Show::Fds => fds::table(collection),
        Show::Pins => pins::pins(collection),
        Show::PinStats => pins::stats(&collection),
        Show::Waiters => waiters::table(worker, &collection, now),
        Show::Internal => internal::table(worker, collection),
        Show::Statements => statements::table(&collection),
        Show::Listeners => listeners::table(collection),
        Show::Pools => pools::pools(worker, &collection, now),
        Show::Databases => pools::databases(worker, &collection),
        Show::Users => users::users(worker, &collection),
        Show::Lists => users::lists(worker, &collection),
        Show::Mem => users::mem(worker, &collection),
        Show::Stats => stats::stats(worker, &collection, now),
        Show::StatsTotals => stats::totals_of_databases(&collection),
        Show::StatsAverages => stats::averages_of_databases(worker, &collection, now),
        Show::Totals => stats::totals(worker, &collection, now),
        Show::Times => times::table(worker, collection),
        Show::Catalog => catalog::catalogs(worker, now),
        Show::Opaque => catalog::opaque(worker),
        Show::Events => events::table(worker),
        Show::Peers => group::peers(worker),
        Show::PeerPools => group::peer_pools(worker, &collection),
        Show::State => few::state(worker),
        Show::AuthCache => few::auth_cache(worker, now),
        Show::DnsHosts => few::dns_hosts(&collection, now),
        Show::DnsZones => few::dns_zones(&collection),
        Show::Version => few::version(),
        Show::Config | Show::Help => few::config(worker),
    }
}
