//! SHOW WAITERS: the clients that wait for a server connection, the limit for which they wait, the clients that have
//! the servers under this limit, and advice to the operator.

use std::collections::BTreeMap;

use crate::{
    Time,
    admin::Admin,
    connections::Conn,
    console::{Cell, Collection, Column, Holders, Kind, LongestHolder, Table, WaitingClient, date},
    diagnosis::State,
    frontend::ClientDuty,
    loan::pins_of,
    pool::{PoolKey, Scope, WaitReason},
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 18] = [
    ("database", Text),
    ("user", Text),
    ("client_id", Int8),
    ("waiting_since", Text),
    ("wait_us", Int8),
    ("waiting", Int4),
    ("limit", Text),
    ("holders", Int4),
    ("holder_client_id", Int8),
    ("holder_user", Text),
    ("holder_application_name", Text),
    ("holder_us", Int8),
    ("holder_state", Text),
    ("holder_pin_reason", Text),
    ("fingerprint", Text),
    ("statement", Text),
    ("advice", Text),
    ("holders_alike", Int4),
];

/// The microseconds after which a request is so long that its statement deserves attention.
const LONG: u64 = 1_000_000;

/// Adds one worker's clients.
pub(super) fn add(admin: &Admin<'_>, collection: &mut Collection, now: Time) {
    for (_, conn) in admin.connections.iter() {
        match conn {
            Conn::Client(client) if matches!(*client.duty(), ClientDuty::Waiting { .. }) => {
                let pool = client.pool().and_then(|pool| admin.pools.get(pool));
                let Some(pool) = pool else { continue };
                collection.waiters.push(WaitingClient {
                    pool: pool.shared.key.clone(),
                    user: client.database_and_user().1.into(),
                    id: client.origin.id,
                    since: client.request.sent_at(),
                });
            }
            Conn::Server(server) if !server.purpose().bypasses_limits() => {
                let Some(client) = admin.connections.client_of(server) else {
                    continue;
                };
                let pins = pins_of(client);
                let state = match State::of(server) {
                    State::IdleInSession if pins.is_some() => State::Pinned,
                    state => state,
                };
                let pinned_by = client
                    .context
                    .as_ref()
                    .and_then(|context| context.pinned_by.as_ref())
                    .map(|by| (by.to_string(), by.text.to_string()));
                let latest = admin
                    .pools
                    .statements
                    .text(server.statements.running.latest());
                let latest = latest
                    .map(|(fingerprint, text)| (format!("{fingerprint:016x}"), text.to_string()));
                let holders = collection.holders.entry(server.shared.key.clone());
                holders.or_default().add(LongestHolder {
                    client: client.origin.id,
                    user: client.database_and_user().1.into(),
                    application: String::from_utf8_lossy(client.tracked.application_name()).into(),
                    held: now.since(server.times.lent_at()),
                    state: state.words(),
                    pins: pins.map(|pins| pins.to_string()).unwrap_or_default(),
                    statement: match state {
                        State::Pinned => pinned_by.or(latest),
                        _ => latest.or(pinned_by),
                    },
                });
            }
            _ => {}
        }
    }
}

/// Returns the table; the client that has waited for longest comes first.
pub(super) fn table(admin: &Admin<'_>, collection: &Collection, now: Time) -> Table {
    let reasons: BTreeMap<PoolKey, WaitReason> = admin
        .env
        .directory
        .pools()
        .iter()
        .map(|pool| (pool.key.clone(), pool.ledger.lock().wait_reason(now)))
        .collect();
    let mut waiting = BTreeMap::<&PoolKey, usize>::new();
    for waiter in &collection.waiters {
        *waiting.entry(&waiter.pool).or_default() += 1;
    }
    let mut waiters: Vec<&WaitingClient> = collection.waiters.iter().collect();
    waiters.sort_by_key(|waiter| (waiter.since, waiter.id));
    let row = |waiter: &WaitingClient| {
        let reason = reasons.get(&waiter.pool).copied();
        let reason = reason.unwrap_or(WaitReason::None);
        let shares = |other: &PoolKey| shares_server_limit(admin, &waiter.pool, other);
        let holders = HoldersUnderLimit::of(&collection.holders, &waiter.pool, reason, shares);
        let mut row: Vec<Cell> = vec![
            (*waiter.pool.database).into(),
            (*waiter.user).into(),
            waiter.id.into(),
            date(waiter.since),
            now.since(waiter.since).into(),
            waiting[&waiter.pool].into(),
            reason.name().into(),
            holders.count.into(),
        ];
        row.extend(of_holder(holders.longest));
        row.push(advice(reason, &holders).into());
        row.push(holders.alike.into());
        row
    };
    (COLUMNS.into(), waiters.into_iter().map(row).collect())
}

/// Returns whether the servers of two pools count under the same `max_server_conn`.
fn shares_server_limit(admin: &Admin<'_>, one: &PoolKey, other: &PoolKey) -> bool {
    let hosts = admin.env.directory.hosts();
    let entry = |key: &PoolKey| admin.env.snapshot.config.database(&key.database);
    hosts.share_server_limit(entry(one), entry(other))
}

/// The clients that have the servers under the limit for which clients of a pool wait.
#[derive(Debug, Default)]
struct HoldersUnderLimit<'h> {
    count: usize,
    /// The client that has had its server for longest.
    longest: Option<&'h LongestHolder>,
    /// The number of clients with the user, `application_name` and state of that client.
    alike: usize,
}

impl<'h> HoldersUnderLimit<'h> {
    /// `shares`: whether the servers of another pool count under the same `max_server_conn`.
    fn of(
        all: &'h BTreeMap<PoolKey, Holders>,
        pool: &PoolKey,
        reason: WaitReason,
        shares: impl Fn(&PoolKey) -> bool,
    ) -> Self {
        let is_under_limit = |key: &PoolKey| match reason {
            WaitReason::Cap { by, .. } => match by {
                Scope::Process => shares(key),
                Scope::Database => key.database == pool.database,
                Scope::User => key.user == pool.user,
            },
            _ => key == pool,
        };
        let pools = || all.iter().filter(|(key, _)| is_under_limit(key));
        let groups = || pools().flat_map(|(_, holders)| holders.groups.values());
        let longest = groups().map(|group| &group.longest);
        let longest = longest.max_by_key(|holder| holder.held);
        let group = longest.map(LongestHolder::group);
        let alike = pools().filter_map(|(_, holders)| holders.groups.get(group.as_ref()?));
        Self {
            count: groups().map(|group| group.count).sum(),
            longest,
            alike: alike.map(|group| group.count).sum(),
        }
    }
}

fn of_holder(holder: Option<&LongestHolder>) -> [Cell; 8] {
    let Some(holder) = holder else {
        return [const { Cell::Null }; 8];
    };
    let (fingerprint, statement) = holder.statement.clone().unzip();
    let pins = (!holder.pins.is_empty()).then(|| holder.pins.clone());
    let application = (!holder.application.is_empty()).then(|| holder.application.to_string());
    [
        holder.client.into(),
        (*holder.user).into(),
        application.into(),
        holder.held.into(),
        holder.state.into(),
        pins.into(),
        fingerprint.into(),
        statement.into(),
    ]
}

/// Returns the advice that helps most. If several clients of one program are in the same state, the advice names the
/// program instead of one client, since ending one client frees only one server.
fn advice(reason: WaitReason, holders: &HoldersUnderLimit<'_>) -> String {
    let limit = match reason {
        WaitReason::Paused => return "give RESUME: an operator has paused the pool".to_owned(),
        WaitReason::Failed(_) => {
            return "repair the connection to the server: see last_error in SHOW POOLS".to_owned();
        }
        WaitReason::Connecting => return "wait: a server connection is logging in".to_owned(),
        WaitReason::None => return "wait: the next free server is this pool's".to_owned(),
        WaitReason::Size | WaitReason::Cap { .. } => reason.name().unwrap_or_default(),
    };
    let raise = format!("raise {limit}: short requests keep all servers busy");
    let Some(holder) = holders.longest.filter(|holder| holder.held >= LONG) else {
        return raise;
    };
    let (client, alike) = (holder.client, holders.alike);
    let program = match &*holder.application {
        "" => format!("user {}", holder.user),
        application => format!("application {application}"),
    };
    let kill = format!("KILL_CLIENT {client}");
    match (holder.state, alike) {
        ("idle in transaction", ..=1) => format!(
            "end the idle transaction of client {client} ({kill}), and set idle_transaction_timeout"
        ),
        ("idle in transaction", _) => format!(
            "make {program} end its {alike} idle transactions, and set idle_transaction_timeout, which ends them"
        ),
        ("idle and pinned", ..=1) => {
            format!("end the session of client {client} ({kill}), and set pin_timeout")
        }
        ("idle and pinned", _) => format!(
            "make {program} end its {alike} pinned sessions, and set pin_timeout, which ends them"
        ),
        ("idle in session", ..=1) => format!(
            "end the idle session of client {client} ({kill}), or use pool_mode = transaction"
        ),
        ("idle in session", _) => format!(
            "make {program} close its {alike} idle sessions, or use pool_mode = transaction"
        ),
        ("busy", ..=1) => {
            format!("make the long request of client {client} faster, or end it ({kill})")
        }
        ("busy", _) => {
            format!("make the {alike} long requests of {program} faster, or raise {limit}")
        }
        _ => raise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(client: u64, state: State, held: u64) -> LongestHolder {
        LongestHolder {
            client,
            user: "ann".into(),
            application: "".into(),
            held,
            state: state.words(),
            pins: String::new(),
            statement: None,
        }
    }

    fn key(database: &str, user: &str) -> PoolKey {
        PoolKey {
            database: database.into(),
            user: user.into(),
        }
    }

    #[test]
    fn the_one_thing_to_do() {
        let check = |state, held, expect: &str| {
            let holder = holder(7, state, held);
            let advice = |alike| {
                let holders = HoldersUnderLimit {
                    count: 10,
                    longest: Some(&holder),
                    alike,
                };
                advice(WaitReason::Size, &holders)
            };
            let (one, several) = (advice(1), advice(10));
            assert!(one.starts_with(expect), "{one}");
            if held >= LONG {
                assert!(
                    several.contains("10") && !several.contains("client 7"),
                    "{several}"
                );
            }
        };
        check(
            State::IdleInTransaction,
            5 * LONG,
            "end the idle transaction of client 7",
        );
        check(State::Pinned, 5 * LONG, "end the session of client 7");
        check(
            State::Busy,
            5 * LONG,
            "make the long request of client 7 faster",
        );
        check(State::IdleInTransaction, 5, "raise pool_size");
        check(State::Busy, 5, "raise pool_size");
        let by = Scope::Database;
        let cap = WaitReason::Cap { by, limit: 3 };
        let none = HoldersUnderLimit::default();
        assert!(advice(cap, &none).starts_with("raise max_db_connections"));
        assert!(advice(WaitReason::Paused, &none).starts_with("give RESUME"));
        assert!(advice(WaitReason::Failed(Time(0)), &none).starts_with("repair the connection"));
    }

    #[test]
    fn holders_under_the_limit() {
        let mut all = BTreeMap::new();
        for (database, user, client, held) in [
            ("a", "ann", 1, 10),
            ("a", "bob", 2, 20),
            ("b", "ann", 3, 30),
        ] {
            let mut holders = Holders::default();
            holders.add(holder(client, State::Busy, held));
            holders.add(holder(9, State::Busy, 1));
            all.insert(key(database, user), holders);
        }
        let check = |reason, expect| {
            let found = HoldersUnderLimit::of(&all, &key("a", "ann"), reason, |_| true);
            let longest = found.longest.map(|holder| holder.client);
            assert_eq!((found.count, longest, found.alike), expect);
        };
        let cap = |by| WaitReason::Cap { by, limit: 1 };
        check(WaitReason::Size, (2, Some(1), 2));
        check(cap(Scope::Database), (4, Some(2), 4));
        check(cap(Scope::User), (4, Some(3), 4));
        check(cap(Scope::Process), (6, Some(3), 6));
    }
}
