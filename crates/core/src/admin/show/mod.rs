//! The tables behind SHOW, with PgBouncer's columns.

mod bans;
mod catalog;
pub(in crate::admin) mod connections;
mod events;
mod fds;
mod fleet;
mod hosts;
mod internal;
mod listeners;
mod one_worker;
mod peers;
mod pins;
pub(in crate::admin) mod pools;
pub(in crate::admin) mod statements;
pub(in crate::admin) mod stats;
mod times;
pub(in crate::admin) mod users;
mod waiters;
mod workers;

use crate::{
    Time,
    admin::Admin,
    console::{Collection, Show, Table},
};

/// Adds one worker's part.
pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection, now: Time) {
    match collection.show {
        Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets => {
            connections::add(admin, collection, now);
        }
        Show::Fds => fds::add(admin, collection),
        Show::Pins | Show::PinStats => pins::add(admin, collection, now),
        Show::Waiters => waiters::add(admin, collection, now),
        Show::Workers => workers::add(admin, collection),
        Show::Internal => internal::add(admin, collection),
        Show::Statements => statements::add(admin, collection),
        Show::Listeners => listeners::add(admin, collection),
        Show::PeerPools => peers::add(admin, collection),
        Show::Times => {
            times::add(admin, collection);
            add_pools(admin, collection, now);
        }
        Show::Pools
        | Show::Databases
        | Show::Users
        | Show::Lists
        | Show::Mem
        | Show::Stats
        | Show::StatsTotals
        | Show::StatsAverages
        | Show::Totals => add_pools(admin, collection, now),
        _ => {}
    }
}

fn add_pools(admin: &mut Admin<'_>, collection: &mut Collection, now: Time) {
    admin.statistics.turn(&admin.env, admin.pools);
    pools::add(admin, collection, now);
}

/// Adds the counters of pools that workers have removed.
pub(super) fn add_past(admin: &Admin<'_>, collection: &mut Collection) {
    for pool in admin.env.directory.pools() {
        if let Some(count) = collection.pools.get_mut(&pool.key) {
            count.past = pool.past();
        }
    }
}

/// Returns the complete table.
pub(super) fn table(admin: &Admin<'_>, mut collection: Collection, now: Time) -> Table {
    add_past(admin, &mut collection);
    match collection.show {
        Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets => {
            connections::table(collection)
        }
        Show::Fds => fds::table(collection),
        Show::Pins => pins::pins(collection),
        Show::PinStats => pins::stats(&collection),
        Show::Waiters => waiters::table(admin, &collection, now),
        Show::Workers => workers::table(collection),
        Show::Internal => internal::table(admin, collection),
        Show::Statements => statements::table(&collection),
        Show::Listeners => listeners::table(collection),
        Show::Pools => pools::pools(admin, &collection, now),
        Show::Databases => pools::databases(admin, &collection),
        Show::Users => users::users(admin, &collection),
        Show::Lists => users::lists(admin, &collection),
        Show::Mem => users::mem(admin),
        Show::Stats => stats::stats(admin, &collection, now),
        Show::StatsTotals => stats::totals_of_databases(&collection),
        Show::StatsAverages => stats::averages_of_databases(admin, &collection, now),
        Show::Totals => stats::totals(admin, &collection, now),
        Show::Times => times::table(admin, collection),
        Show::Catalog => catalog::catalogs(admin, now),
        Show::Opaque => catalog::opaque(admin),
        Show::Events => events::table(admin),
        Show::Peers => peers::peers(admin),
        Show::PeerPools => peers::peer_pools(admin, &collection),
        Show::State => one_worker::state(admin),
        Show::AuthCache => one_worker::auth_cache(admin, now),
        Show::Bans => bans::table(admin, now),
        Show::Fleet => fleet::table(admin),
        Show::Hosts => hosts::table(admin),
        Show::DnsHosts => one_worker::dns_hosts(&collection, now),
        Show::DnsZones => one_worker::dns_zones(&collection),
        Show::Version => one_worker::version(),
        Show::Config | Show::Help => one_worker::config(admin),
    }
}
