//! `max_server_conn` in percent: the groups of hosts that share one limit, and how many servers the limit allows now.
//!
//! A pool of a list decides to open a server before the host is chosen, and after a failover all servers of a list may be
//! on one host. So the hosts of one list form a group, lists with a common host form one group, and all servers of a group
//! count under one limit: the percentage of the smallest host of the group that its entries may use at present.

use std::{collections::BTreeMap, sync::Arc};

use pgweir_config::{Config, Database, ServerLimit, TargetSession};

use super::facts::HostState;
use crate::{
    Endpoint,
    pool::{CapLimits, SERVERS_AT_FIRST},
    shared::pool::ServerRole,
};

/// The facts about a host from which the limit on its servers follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostCapacity {
    /// How many connections the host allows, less its reserved ones.
    pub(super) usable: Option<u32>,
    pub(super) state: HostState,
    pub(super) role: Option<ServerRole>,
    /// The number of connections to the host.
    pub(super) connections: u32,
}

/// The limits on the servers of each group of hosts. Without a percentage in `max_server_conn` there are no groups.
#[derive(Debug, Default)]
pub(super) struct ServerLimits {
    limit: ServerLimit,
    nodes: u32,
    groups: Vec<HostGroup>,
    /// The group of each host, by the host's name.
    by_host: BTreeMap<String, usize>,
}

/// Returns the facts about a host.
type Hosts<'h> = &'h dyn Fn(&Arc<Endpoint>) -> HostCapacity;

/// Hosts that share one limit.
#[derive(Debug, Default)]
struct HostGroup {
    name: Arc<str>,
    hosts: Vec<(Arc<Endpoint>, Vec<TargetSession>)>,
}

impl ServerLimits {
    /// Finds the groups of a configuration's hosts.
    pub(super) fn of(config: &Config) -> Self {
        let settings = &config.settings;
        let mut limits = Self {
            limit: settings.max_server_conn,
            nodes: settings.fleet_nodes,
            ..Self::default()
        };
        if limits.limit.is_percentage() {
            for database in config.databases.values().chain(&config.fallback) {
                limits.add(database);
            }
            limits.name_groups();
        }
        limits
    }

    /// Adds the hosts of an entry to one group, and merges the groups that the hosts have had.
    fn add(&mut self, database: &Database) {
        let names: Vec<String> = Endpoint::all_of(database)
            .map(|one| one.to_string())
            .collect();
        let mut merged = HostGroup::default();
        for name in &names {
            if let Some(&at) = self.by_host.get(name) {
                merged.hosts.append(&mut self.groups[at].hosts);
            }
        }
        for endpoint in Endpoint::all_of(database) {
            let known = merged.hosts.iter_mut().find(|(one, _)| **one == endpoint);
            let target = database.target_session_attrs;
            match known {
                Some((_, targets)) if targets.contains(&target) => {}
                Some((_, targets)) => targets.push(target),
                None => merged.hosts.push((Arc::new(endpoint), vec![target])),
            }
        }
        let at = self.groups.len();
        for (endpoint, _) in &merged.hosts {
            self.by_host.insert(endpoint.to_string(), at);
        }
        self.groups.push(merged);
    }

    /// Names each group after its first host by name, so that the groups of most configurations keep their names at a
    /// RELOAD.
    fn name_groups(&mut self) {
        for group in &mut self.groups {
            let names = group.hosts.iter().map(|(endpoint, _)| endpoint.to_string());
            group.name = names.min().unwrap_or_default().into();
        }
    }

    /// Returns whether `max_server_conn` is a percentage.
    pub(super) fn are_of_hosts(&self) -> bool {
        self.limit.is_percentage()
    }

    /// Returns whether the servers of two entries count under the same limit.
    pub(super) fn are_shared(&self, one: Option<&Database>, other: Option<&Database>) -> bool {
        let group = |entry: Option<&Database>| {
            let host = entry.and_then(|entry| Endpoint::all_of(entry).next());
            host.and_then(|host| self.by_host.get(&host.to_string()))
        };
        group(one) == group(other)
    }

    fn group_at(&self, host: &Endpoint) -> Option<&HostGroup> {
        self.groups.get(*self.by_host.get(&host.to_string())?)
    }

    /// Returns the group whose limit holds for the servers of an entry, and the limit, which may be
    /// [`CapLimits::NOT_KNOWN`]. If the limit holds for the process, the group has an empty name, and the limit is
    /// `of_process`.
    pub(super) fn limit_for(
        &self,
        hosts: Hosts<'_>,
        database: &Database,
        of_process: u32,
    ) -> (Arc<str>, u32) {
        let host = Endpoint::all_of(database).next();
        match host.and_then(|host| self.group_at(&host)) {
            None => (Arc::from(""), of_process),
            Some(group) => {
                let limit = self.known_limit(hosts, group);
                (
                    Arc::clone(&group.name),
                    limit.unwrap_or(CapLimits::NOT_KNOWN),
                )
            }
        }
    }

    /// Returns the largest number of servers of a host's group; `None` if it is not known yet, or not a percentage.
    pub(super) fn limit_at(&self, hosts: Hosts<'_>, host: &Endpoint) -> Option<u32> {
        self.known_limit(hosts, self.group_at(host)?)
    }

    /// Returns the sum of the limits of all groups; 0 if `max_server_conn` is a number.
    pub(super) fn sum(&self, hosts: Hosts<'_>) -> u32 {
        let groups = self.groups.iter().filter(|group| !group.hosts.is_empty());
        let limits = groups.map(|group| self.known_limit(hosts, group).unwrap_or(SERVERS_AT_FIRST));
        limits.fold(0, u32::saturating_add)
    }

    /// Returns whether a group has a host with connections, and no host whose number of connections is known.
    pub(super) fn has_unknown(&self, hosts: Hosts<'_>) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| {
            let mut all = group.hosts.iter();
            self.known_limit(hosts, group).is_none()
                && all.any(|(endpoint, _)| hosts(endpoint).connections > 0)
        })
    }

    fn known_limit(&self, hosts: Hosts<'_>, group: &HostGroup) -> Option<u32> {
        let in_use = group.hosts.iter().filter_map(|(endpoint, targets)| {
            let host = hosts(endpoint);
            let usable = host.usable?;
            let fits = |target: &TargetSession| match target {
                // A primary is the last resort.
                TargetSession::Any | TargetSession::PreferStandby => true,
                target => host.role.is_none_or(|role| role.fits(*target)),
            };
            let is_gone = matches!(host.state, HostState::Down | HostState::Unavailable);
            (targets.iter().any(fits)).then_some((is_gone, usable))
        });
        // Hosts that are down count only while no other host can be used.
        let (_, usable) = in_use.min()?;
        self.limit.share_of_host(usable, self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(databases: &str) -> ServerLimits {
        let text = format!("[databases]\n{databases}\n[pgbouncer]\nmax_server_conn = 80%\n");
        let config = Config::load("x.ini".as_ref(), &mut |_| Ok(text.clone()));
        ServerLimits::of(&config.expect("a right file"))
    }

    /// A host that is up.
    fn host(usable: u32, is_standby: bool) -> HostCapacity {
        HostCapacity {
            usable: Some(usable),
            state: HostState::Up,
            role: Some(ServerRole::new(is_standby, is_standby)),
            connections: 1,
        }
    }

    const UNKNOWN: HostCapacity = HostCapacity {
        usable: None,
        state: HostState::Unknown,
        role: None,
        connections: 0,
    };

    /// The limits at hosts `a`, `b`, ... and their sum.
    fn found<const N: usize>(
        limits: &ServerLimits,
        hosts: [HostCapacity; N],
    ) -> ([Option<u32>; N], u32) {
        let endpoint = |at: usize| Endpoint::of(["a", "b", "c", "d"][at], 5432);
        let known = |wanted: &Arc<Endpoint>| {
            let mut all = (0..N).filter(|at| endpoint(*at) == **wanted);
            all.next().map_or(UNKNOWN, |at| hosts[at])
        };
        let at = std::array::from_fn(|at| limits.limit_at(&known, &endpoint(at)));
        (at, limits.sum(&known))
    }

    #[test]
    fn each_host_has_a_limit_of_its_own() {
        let limits = parse("one = host=a\ntwo = host=b\nthree = host=a dbname=x");
        let (a, b) = (host(100, false), host(50, false));
        let first = SERVERS_AT_FIRST;
        assert_eq!(found(&limits, [a, UNKNOWN]), ([Some(80), None], 80 + first));
        assert_eq!(found(&limits, [a, b]), ([Some(80), Some(40)], 120));
    }

    #[test]
    fn a_list_follows_the_host_that_it_uses() {
        let limits = parse("shop = host=a,b target_session_attrs=read-write");
        let (primary, standby) = (host(100, false), host(50, true));
        let at_both = |limit| ([Some(limit); 2], limit);
        assert_eq!(found(&limits, [primary, standby]), at_both(80));
        // The primary is lost, and the standby is promoted.
        let lost = HostCapacity {
            state: HostState::Down,
            ..primary
        };
        assert_eq!(found(&limits, [lost, standby]), at_both(80));
        assert_eq!(found(&limits, [lost, host(50, false)]), at_both(40));
        assert_eq!(found(&limits, [lost, host(150, false)]), at_both(120));
        let returned = [host(100, true), host(50, false)];
        assert_eq!(found(&limits, returned), at_both(40));
    }

    #[test]
    fn entries_with_a_common_host_share_the_smallest_limit() {
        let text = "w = host=a,b target_session_attrs=primary\n\
                    x = host=d\n\
                    r = host=c,d target_session_attrs=standby\n\
                    all = host=b,c";
        let roles = [(100, false), (90, true), (80, true), (70, false)];
        let hosts = roles.map(|(usable, is_standby)| host(usable, is_standby));
        assert_eq!(found(&parse(text), hosts), ([Some(56); 4], 56));
    }

    #[test]
    fn a_limit_is_not_known_before_a_login() {
        let limits = parse("one = host=a");
        let database = Database {
            host: vec!["a".to_owned()],
            ..Database::default()
        };
        let limit = |host| limits.limit_for(&|_| host, &database, 0).1;
        assert_eq!(limit(UNKNOWN), CapLimits::NOT_KNOWN);
        assert_eq!(limit(host(20, false)), 16);
        let asked = HostCapacity {
            connections: 1,
            ..UNKNOWN
        };
        let has_unknown = |host| limits.has_unknown(&|_| host);
        assert!(has_unknown(asked) && !has_unknown(UNKNOWN) && !has_unknown(host(20, false)));
        let console = limits.limit_for(&|_| UNKNOWN, &Database::default(), 7);
        assert_eq!((&*console.0, console.1), ("", 7));
    }
}
