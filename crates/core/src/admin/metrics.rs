//! The measurement for `/metrics`: a message that visits each worker, as a console command does, and ends at the
//! control thread.

use std::collections::{BTreeMap, HashMap};

use super::{Admin, show};
use crate::{
    Actions, Control, Endpoint, Halt, Time, WorkerId,
    base::{memory::MemoryRefusal, pin::Pin, stats::Stats},
    connections::Conn,
    console::{Show, VERSION},
    frontend::ClientDuty,
    loan::pins_of,
    mail::Mail,
    metrics::{
        ClientCount, ClientGroup, HostConnectionLimits, HostMetrics, HostRole, LoginMetrics,
        Measurement, MemoryMetrics, Metrics, PoolMetrics, StatementMetrics,
    },
    pool::PoolKey,
    shared::{
        bans::{BanCounts, BanTerms},
        pool::HostCounts,
    },
};

/// The longest `application_name` that is shown, in bytes: PostgreSQL truncates it there.
const NAME_MAX: usize = 63;

impl Measurement {
    fn add_pools(&mut self, admin: &Admin<'_>) {
        for pool in admin.pools.iter() {
            let counts = self.pools.entry(pool.shared.key.clone()).or_default();
            counts.times += pool.times;
            for (pin, count) in pool.pin_counts() {
                counts.pins[pin as usize] += count;
            }
        }
    }

    /// Adds this worker's connections. The keys are borrowed while clients are counted, and copied once for each group:
    /// there are many clients and few groups.
    fn add_connections(&mut self, admin: &Admin<'_>) {
        let mut clients = HashMap::<(&PoolKey, &[u8], &'static str), u64>::new();
        let mut servers = HashMap::<(&str, &Endpoint), u64>::new();
        for (_, conn) in admin.connections.iter() {
            match conn {
                Conn::Client(client) => {
                    let Some(names) = client.names().map(|names| &**names) else {
                        continue;
                    };
                    if matches!(*client.duty(), ClientDuty::Login(_)) {
                        continue;
                    }
                    let name = client.tracked.application_name();
                    let state = show::connections::client_state(client, Show::Clients);
                    *clients.entry((names, name, state)).or_default() += 1;
                }
                Conn::Server(server) => {
                    let database = &*server.shared.key.database;
                    *servers
                        .entry((database, server.link.endpoint()))
                        .or_default() += 1;
                    let client = admin.connections.client_of(server);
                    if client.and_then(pins_of).is_some() {
                        let key = server.shared.key.clone();
                        self.pools.entry(key).or_default().pinned += 1;
                    }
                }
                Conn::Cancel(_) => {}
            }
        }
        for ((names, application_name, state), count) in clients {
            let group = ClientGroup {
                database: (*names.database).into(),
                user: (*names.user).into(),
                application_name: cut(application_name),
                state,
            };
            *self.clients.entry(group).or_default() += count;
        }
        for ((database, endpoint), count) in servers {
            let key = (database.into(), endpoint.to_string());
            *self.servers.entry(key).or_default() += count;
        }
    }

    fn finish(mut self, admin: &Admin<'_>, now: Time) -> Metrics {
        show::add_past(admin, &mut self.collection);
        for pool in admin.env.directory.pools() {
            if let Some(counts) = self.pools.get_mut(&pool.key) {
                counts.times += pool.past_times();
            }
        }
        let collection = &self.collection;
        let pool_metrics = self.pools.iter().map(|(key, counts)| {
            let count = collection.pools.get(key);
            let mut stats = Stats::default();
            if let Some(count) = count {
                stats += count.stats.total;
                stats += count.past;
            }
            let pins = Pin::ALL.iter().zip(counts.pins);
            PoolMetrics {
                database: (*key.database).into(),
                user: (*key.user).into(),
                stats,
                times: counts.times,
                pinned: counts.pinned,
                pins: pins
                    .filter(|(_, count)| *count > 0)
                    .map(|(pin, count)| (pin.name(), count))
                    .collect(),
            }
        });
        let halt = admin.env.directory.operator().halt();
        let most = admin.env.snapshot.config.settings.metrics_max_statements as usize;
        let (slowest, folded) = collection.statements.slowest(most);
        Metrics {
            version: VERSION,
            databases: show::pools::databases(admin, collection),
            pools: show::pools::pools(admin, collection, now),
            stats: show::stats::totals_of_databases(collection),
            lists: show::users::lists(admin, collection),
            memory: memory(admin),
            pool_metrics: pool_metrics.collect(),
            clients: self
                .clients
                .into_iter()
                .map(|(group, count)| ClientCount {
                    database: group.database,
                    user: group.user,
                    application_name: group.application_name,
                    state: group.state,
                    count,
                })
                .collect(),
            servers: self
                .servers
                .into_iter()
                .map(|((database, endpoint), count)| (database, endpoint, count))
                .collect(),
            hosts: HostMetrics {
                logins: host_logins(admin),
                roles: host_roles(admin),
                connections: host_connections(admin),
                server_limit: admin.env.directory.hosts().sum_of_server_limits(),
                fleet: admin.env.directory.fleet().view(),
            },
            logins: LoginMetrics {
                results: self.logins,
                bans: ban_counts(admin),
            },
            statements: StatementMetrics {
                slowest,
                folded,
                entries: collection.statements.entries,
                evicted: collection.statements.evicted,
                slow_transactions: self.slow_transactions,
            },
            workers: admin.env.directory.workers(),
            events: admin.env.directory.events().counts(),
            is_paused: halt == Halt::Paused,
            is_suspended: halt == Halt::Suspended,
        }
    }
}

fn memory(admin: &Admin<'_>) -> MemoryMetrics {
    let memory = admin.env.directory.memory();
    MemoryMetrics {
        table: show::users::mem(admin),
        limit: memory.limit(),
        is_full: memory.is_full(),
        refusals: MemoryRefusal::ALL.map(|step| memory.refusals(step)),
    }
}

/// Returns the figures of SHOW BANS.
fn ban_counts(admin: &Admin<'_>) -> BanCounts {
    let terms = BanTerms::of(&admin.env.snapshot.config.settings);
    let bans = admin.env.directory.bans();
    bans.counts(terms.as_ref(), admin.env.now)
}

/// Returns the results of logins to servers, by database and endpoint.
fn host_logins(admin: &Admin<'_>) -> Vec<(Box<str>, String, HostCounts)> {
    let mut hosts = BTreeMap::<(Box<str>, String), HostCounts>::new();
    for pool in admin.env.directory.pools() {
        let facts = pool.facts.lock();
        for (endpoint, counts) in facts.logins.iter() {
            let key = (pool.key.database.clone(), endpoint.to_string());
            hosts
                .entry(key)
                .and_modify(|sum| sum.add(counts))
                .or_insert(*counts);
        }
    }
    let rows = hosts.into_iter();
    rows.map(|((database, endpoint), counts)| (database, endpoint, counts))
        .collect()
}

/// Returns the hosts whose role is known.
fn host_roles(admin: &Admin<'_>) -> Vec<HostRole> {
    let hosts = admin.env.directory.hosts().all().into_iter();
    let known = hosts.filter_map(|host| {
        let facts = host.facts();
        Some(HostRole {
            endpoint: host.endpoint.to_string(),
            is_primary: !facts.role?.is_standby(),
            lag: facts.lag,
            failures: facts.failures,
        })
    });
    known.collect()
}

/// Returns the hosts whose number of connections is known.
fn host_connections(admin: &Admin<'_>) -> Vec<HostConnectionLimits> {
    let hosts = admin.env.directory.hosts();
    let known = hosts.all().into_iter().filter_map(|host| {
        Some(HostConnectionLimits {
            endpoint: host.endpoint.to_string(),
            usable: host.usable_connections()?,
            limit: hosts.server_limit_at(&host.endpoint),
        })
    });
    known.collect()
}

/// Returns the name as text, truncated at the end of a character.
fn cut(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let end = (0..=NAME_MAX.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or_default()].to_owned()
}

impl Admin<'_> {
    /// Adds this worker's counts, and passes the measurement on, or its result to the control thread.
    pub(crate) fn measure(&mut self, mut measurement: Measurement, out: &mut Actions) {
        measurement.visited += 1;
        show::add(self, &mut measurement.collection, self.env.now);
        measurement.add_pools(self);
        measurement.add_connections(self);
        measurement.logins += self.logins.results();
        measurement.slow_transactions += self.pools.statements.slow.total();
        if self.env.snapshot.config.settings.metrics_max_statements > 0 {
            show::statements::add(self, &mut measurement.collection);
        }
        let workers = self.env.directory.workers();
        if measurement.visited < workers {
            let to = WorkerId(((self.env.worker.index() + 1) % workers) as u8);
            let mail = Mail::Measure(Box::new(measurement));
            return out.mail(to, mail);
        }
        let metrics = Box::new(measurement.finish(self, self.env.now));
        out.control(Control::Measured(metrics));
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(cut(b"psql"), "psql");
        assert_eq!(cut("x".repeat(100).as_bytes()).len(), 63);
        let long = "é".repeat(40);
        assert_eq!(cut(long.as_bytes()), "é".repeat(31));
        assert_eq!(cut(b"a\xffb"), "a\u{fffd}b");
    }
}
