//! The series about the hosts of servers.

use std::collections::BTreeMap;

use pgweir_core::shared::pool::{HostCounts, HostLogin};

use super::{
    Source,
    rows::{LabelledNames, OTHER},
};
use crate::http::exposition::{Exposition, Kind};

/// Writes the results of logins to each host. A database without series of its own adds to those of the same host under
/// (other).
pub(super) fn write_logins(
    source: Source<'_>,
    kept: &LabelledNames<String>,
    text: &mut Exposition,
) {
    let mut hosts = BTreeMap::<[&str; 2], HostCounts>::new();
    for (database, endpoint, counts) in &source.metrics.hosts.logins {
        let name = kept.name(database);
        let endpoint = if name == OTHER { OTHER } else { endpoint };
        hosts
            .entry([name, endpoint])
            .and_modify(|sum| sum.add(counts))
            .or_insert(*counts);
    }
    let help = "1 if the last login to a host has succeeded, or the host has refused it; 0 if the host could not be reached, was starting or stopping, or had sent nothing when another host was ready.";
    let mut family = text.family("pgweir_server_host_up", Kind::Gauge, help);
    for ([database, endpoint], counts) in &hosts {
        let is_up = !matches!(
            counts.last(),
            HostLogin::Unreachable | HostLogin::Unavailable | HostLogin::Overtaken
        );
        let labels = [("database", *database), ("endpoint", endpoint)];
        family.add(&labels, is_up.into());
    }
    let help = "Logins to each host, by their result: ok, refused, unavailable (the server starts, stops or recovers), unreachable, wrong_role, or overtaken (another host was faster).";
    let mut family = text.family("pgweir_server_host_logins", Kind::Counter, help);
    for ([database, endpoint], counts) in &hosts {
        for (login, count) in counts.counts() {
            let labels = [
                ("database", *database),
                ("endpoint", endpoint),
                ("result", login.name()),
            ];
            family.add(&labels, count);
        }
    }
}

/// Writes how many connections each host allows, and how many of them `max_server_conn` in percent allows.
pub(super) fn write_connections(source: Source<'_>, text: &mut Exposition) {
    let hosts = &source.metrics.hosts.connections;
    let help = "The connections that a host allows: its max_connections less its reserved ones.";
    let mut family = text.family("pgweir_host_usable_connections", Kind::Gauge, help);
    for host in hosts {
        family.add(&[("endpoint", &host.endpoint)], host.usable.into());
    }
    let help = "The most server connections to a host and the other hosts of its lists, by max_server_conn in percent; none if it is a number.";
    let mut family = text.family("pgweir_host_server_connections_limit", Kind::Gauge, help);
    for host in hosts {
        if let Some(limit) = host.limit {
            family.add(&[("endpoint", &host.endpoint)], limit.into());
        }
    }
}

/// Writes the requests to Patroni's REST API.
pub(super) fn write_patroni(source: Source<'_>, text: &mut Exposition) {
    let help = "Requests to Patroni's REST API by result: ok, or failed (no answer that can be used; the next member is asked).";
    let mut family = text.family("pgweir_patroni_requests", Kind::Counter, help);
    let (answered, failed) = source.directory.hosts().patroni_requests().counts();
    family.add(&[("result", "ok")], answered);
    family.add(&[("result", "failed")], failed);
}

/// Writes the role of each host, and the lag of each standby.
pub(super) fn write_roles(source: Source<'_>, text: &mut Exposition) {
    let roles = &source.metrics.hosts.roles;
    let help = "1 if a host is a primary, 0 if it is a standby (role of SHOW HOSTS).";
    let mut family = text.family("pgweir_host_primary", Kind::Gauge, help);
    for host in roles {
        family.add(&[("endpoint", &host.endpoint)], host.is_primary.into());
    }
    let help = "How far a standby is behind its primary, as the last check has found it.";
    let mut family = text.family("pgweir_host_lag_seconds", Kind::Gauge, help);
    for host in roles {
        if let Some(lag) = host.lag {
            family.add_micros(&[("endpoint", &host.endpoint)], lag);
        }
    }
    let help =
        "How often a host went from up to down, or to starting, shutting down or recovering.";
    let mut family = text.family("pgweir_host_failures", Kind::Counter, help);
    for host in roles {
        family.add(&[("endpoint", &host.endpoint)], host.failures);
    }
}
