//! The series about the limit on servers, and the fleet that shares it.

use pgweir_core::shared::fleet::FleetNodeState;

use super::Source;
use crate::http::exposition::{Exposition, Kind};

pub(super) fn write(source: Source<'_>, text: &mut Exposition) {
    let fleet = &source.metrics.hosts.fleet;
    let is_in_fleet = fleet.floor > 0;
    let help = "The most server connections of this process, by max_server_conn and its fleet; 0 is no limit. With a percentage, the sum over all hosts, where the hosts of a list count once.";
    let of_hosts = source.metrics.hosts.server_limit;
    let limit = match is_in_fleet {
        true => fleet.limit,
        false => of_hosts.unwrap_or_else(|| source.snapshot.config.settings.fleet_share()),
    };
    text.gauge("pgweir_server_connections_limit", help, limit.into());
    let help = "The server connections that this process may have without a lease (fleet_floor).";
    text.gauge("pgweir_fleet_floor", help, fleet.floor.into());
    let help = "Nodes of the fleet by state: this, active, lost, and unknown for sessions that belong to no known node.";
    let mut family = text.family("pgweir_fleet_nodes", Kind::Gauge, help);
    let states = [
        FleetNodeState::This,
        FleetNodeState::Active,
        FleetNodeState::Lost,
        FleetNodeState::Unknown,
    ];
    for state in states {
        let nodes = fleet.nodes.iter().filter(|node| node.state == state);
        family.add(&[("state", state.name())], nodes.count() as u64);
    }
    let help = "Server connections that are reserved for lost nodes and unknown sessions.";
    let is_gone = |state| matches!(state, FleetNodeState::Lost | FleetNodeState::Unknown);
    let gone = fleet.nodes.iter().filter(|node| is_gone(node.state));
    let reserved: u64 = gone.map(|node| u64::from(node.extra)).sum();
    text.gauge("pgweir_fleet_reserved_connections", help, reserved);
    let help = "The time since this process has renewed its lease; none without a lease.";
    let mut family = text.family("pgweir_fleet_lease_age_seconds", Kind::Gauge, help);
    if let Some(age) = fleet.lease_age {
        family.add_micros(&[], age);
    }
    let help = "Requests to etcd that have failed.";
    let mut family = text.family("pgweir_fleet_etcd_errors", Kind::Counter, help);
    family.add(&[], fleet.errors);
    let help = "Console commands for all nodes (ON ALL) that are in progress; at most 8.";
    text.gauge("pgweir_fleet_commands", help, fleet.commands.into());
    let entries = source.directory.fleet().entries();
    let help = "Entries of databases and users in etcd that are in force (config_etcd).";
    text.gauge("pgweir_config_etcd_entries", help, entries.entries);
    let help = "The revision of etcd whose entries were read last.";
    text.gauge("pgweir_config_etcd_revision", help, entries.revision);
    let help = "1 if the entries that were read last are not used, since one of them is wrong.";
    let refused = u64::from(entries.is_refused);
    text.gauge("pgweir_config_etcd_refused", help, refused);
    let help = "1 if etcd answers requests for entries.";
    let connected = u64::from(entries.is_connected);
    text.gauge("pgweir_config_etcd_connected", help, connected);
}
