//! SHOW CLIENTS, SERVERS, SOCKETS and ACTIVE_SOCKETS: the connections of clients and servers.

use pgweir_config::PoolMode;

use crate::{
    Address, Time, Token,
    admin::Admin,
    backend::{Duty, Phase, Server},
    base::tls::shown,
    connections::Conn,
    console::{Cell, Collection, Column, Kind, Show, Table, date},
    exchange::unsettled,
    frontend::{Client, ClientDuty},
    lending,
    loan::pins_of,
    pooling::LocalPool,
};

use Kind::{Int4, Text};

/// Columns of SHOW CLIENTS and SHOW SERVERS.
const PEER_COLUMNS: [Column; 21] = [
    ("type", Text),
    ("user", Text),
    ("database", Text),
    ("replication", Text),
    ("state", Text),
    ("addr", Text),
    ("port", Int4),
    ("local_addr", Text),
    ("local_port", Int4),
    ("connect_time", Text),
    ("request_time", Text),
    ("wait", Int4),
    ("wait_us", Int4),
    ("close_needed", Int4),
    ("ptr", Text),
    ("link", Text),
    ("remote_pid", Int4),
    ("tls", Text),
    ("application_name", Text),
    ("prepared_statements", Int4),
    ("id", Int4),
];

/// Columns that pgweir adds to SHOW CLIENTS and SHOW SERVERS about the mode in which a client is served, or a server
/// serves.
const MODE_COLUMNS: [Column; 4] = [
    ("mode", Text),
    ("pin_reason", Text),
    ("pinned_since", Text),
    ("pipelined", Int4),
];

/// The last column of SHOW CLIENTS: the client's activity, in the terms of `pg_stat_activity`.
const ACTIVITY: Column = ("activity", Text);

/// Further columns of SHOW SOCKETS, about PgBouncer's buffer for each connection. Here a connection has no such
/// buffer, so these are zero.
const BUFFER_COLUMNS: [Column; 7] = [
    ("recv_pos", Int4),
    ("pkt_pos", Int4),
    ("pkt_remain", Int4),
    ("send_pos", Int4),
    ("send_remain", Int4),
    ("pkt_avail", Int4),
    ("send_avail", Int4),
];

pub(super) fn add(admin: &mut Admin<'_>, collection: &mut Collection, now: Time) {
    let (show, check_after) = (
        collection.show,
        lending::check_after(&admin.env.snapshot.config.settings),
    );
    let tokens = admin.connections.tokens(|conn| is_wanted(conn, show));
    for token in tokens {
        let link = linked_id(admin, token);
        let mode = mode_of(admin, token);
        let pipelined = pipelined(admin, token);
        let (id, mut row) = match admin.connections.get_mut(token) {
            Some(Conn::Client(client)) => {
                let row = client_row(client, client_state(client, show), link, now);
                (client.origin.id, row)
            }
            Some(Conn::Server(server)) => {
                let is_stale = server.is_stale(check_after, now);
                let row = server_row(server, server_state(server, is_stale, show), link);
                (server.id(), row)
            }
            _ => continue,
        };
        if with_buffers(show) {
            row.extend([0u32; 7].map(Cell::from));
        } else {
            row.extend(mode);
            row.push(pipelined.into());
            if show == Show::Clients {
                row.push(activity(admin, token).into());
            }
        }
        collection.rows.push((id, row));
    }
}

pub(super) fn table(mut collection: Collection) -> Table {
    collection.rows.sort_by_key(|(id, _)| *id);
    let mut columns = PEER_COLUMNS.to_vec();
    if with_buffers(collection.show) {
        columns.extend(BUFFER_COLUMNS);
    } else {
        columns.extend(MODE_COLUMNS);
        if collection.show == Show::Clients {
            columns.push(ACTIVITY);
        }
    }
    let rows = collection.rows.into_iter().map(|(_, row)| row);
    (columns, rows.collect())
}

fn with_buffers(show: Show) -> bool {
    matches!(show, Show::Sockets | Show::ActiveSockets)
}

fn is_wanted(conn: &Conn, show: Show) -> bool {
    match (show, conn) {
        (Show::Clients, Conn::Client(client)) => !matches!(*client.duty(), ClientDuty::Login(_)),
        (Show::Servers, Conn::Server(_)) => true,
        (Show::Sockets, Conn::Client(client)) => {
            !matches!(*client.duty(), ClientDuty::CancelRequest { .. })
        }
        (Show::Sockets, Conn::Server(_)) => true,
        (Show::ActiveSockets, Conn::Client(client)) => {
            client.socket.is_blocked() || !client.socket.stream.is_at_boundary()
        }
        (Show::ActiveSockets, Conn::Server(server)) => {
            server.link.is_blocked() || !server.stream.is_at_boundary()
        }
        _ => false,
    }
}

/// Returns a client's state. SHOW SOCKETS has other names for the states.
pub(in crate::admin) fn client_state(client: &Client, show: Show) -> &'static str {
    let (state, of_socket) = match *client.duty() {
        ClientDuty::Active(_) => ("active", "cl_active"),
        ClientDuty::Preparing(_) | ClientDuty::Waiting { .. } | ClientDuty::Opening(_) => {
            ("waiting", "cl_waiting")
        }
        ClientDuty::CancelRequest { sent: true } => ("active_cancel_req", "cl_active_cancel_req"),
        ClientDuty::CancelRequest { sent: false } => {
            ("waiting_cancel_req", "cl_waiting_cancel_req")
        }
        ClientDuty::Login(_) => ("login", "cl_login"),
        ClientDuty::Idle
        | ClientDuty::TakenOver
        | ClientDuty::Discarding(_)
        | ClientDuty::Console(_) => ("idle", "cl_active"),
    };
    if with_buffers(show) { of_socket } else { state }
}

fn server_state(server: &Server, is_stale: bool, show: Show) -> &'static str {
    let (state, of_socket) = match server.duty() {
        Duty::Login(_) => ("new", "sv_login"),
        Duty::Idle if is_stale => ("used", "sv_used"),
        Duty::Idle => ("idle", "sv_idle"),
        Duty::Cleaning { .. } if server.next_loan.awaits_cancels() => {
            ("being_canceled", "sv_being_canceled")
        }
        Duty::Lent {
            phase: Phase::Checking { .. },
            ..
        } => ("tested", "sv_tested"),
        Duty::Lent { .. } => ("active", "sv_active"),
        Duty::Listening { .. } => ("listening", "sv_listening"),
        Duty::CheckingHost { .. } => ("checking_host", "sv_checking_host"),
        Duty::Cleaning { .. } => ("tested", "sv_tested"),
    };
    if with_buffers(show) { of_socket } else { state }
}

fn linked_id(admin: &mut Admin<'_>, token: Token) -> Option<u64> {
    let other = match admin.connections.get_mut(token)? {
        Conn::Client(client) => client.server()?,
        Conn::Server(server) => server.client()?,
        Conn::Cancel(_) => return None,
    };
    match admin.connections.get_mut(other)? {
        Conn::Client(client) => Some(client.origin.id),
        Conn::Server(server) => Some(server.id()),
        Conn::Cancel(_) => None,
    }
}

/// Returns a client's mode, the reason for it, and the time of its beginning.
fn mode_of(admin: &Admin<'_>, token: Token) -> [Cell; 3] {
    let (client, server) = match admin.connections.get(token) {
        Some(Conn::Client(client)) => (Some(&**client), None),
        Some(Conn::Server(server)) => (admin.connections.client_of(server), Some(server)),
        _ => (None, None),
    };
    if server.is_some_and(|server| server.purpose().listener_key().is_some()) {
        return ["listener".into(), Cell::Null, Cell::Null];
    }
    if server.is_some_and(|server| server.purpose().checks_host()) {
        return ["host_check".into(), Cell::Null, Cell::Null];
    }
    let is_native = match server {
        Some(server) => server.is_exclusive(),
        None => client.is_some_and(|client| client.is_exclusive()),
    };
    if is_native {
        return ["native".into(), Cell::Null, Cell::Null];
    }
    let pool = client.and_then(|client| admin.pools.get(client.pool()?));
    match (pool, client) {
        (Some(pool), Some(client)) => mode_in(admin, pool, client),
        // Clients of the console, and clients that log in.
        (None, Some(_)) => [Cell::Null, Cell::Null, Cell::Null],
        (_, None) => ["shared".into(), Cell::Null, Cell::Null],
    }
}

/// Returns the number of a client's messages that its server has yet to answer.
fn pipelined(admin: &Admin<'_>, token: Token) -> u32 {
    let server = match admin.connections.get(token) {
        Some(Conn::Client(client)) => client.server().and_then(|own| admin.connections.get(own)),
        other => other,
    };
    match server {
        Some(Conn::Server(server)) => server.replies.outstanding() as u32,
        _ => 0,
    }
}

/// Returns the client's mode. `kept`: the server stays with the client until another client waits for one, and its
/// session was not inspected yet. `settling`: the inspection runs. `dedicated`: session state pins the client.
fn mode_in(admin: &Admin<'_>, pool: &LocalPool, client: &Client) -> [Cell; 3] {
    if pool.terms.mode == PoolMode::Session && client.server().is_some() {
        return ["dedicated".into(), "pool_mode".into(), Cell::Null];
    }
    let server = client
        .server()
        .and_then(|server| admin.connections.get(server));
    let unsettled = match server {
        Some(Conn::Server(server)) => unsettled(server),
        _ => None,
    };
    let Some(pins) = pins_of(client) else {
        return [unsettled.unwrap_or("shared").into(), Cell::Null, Cell::Null];
    };
    let context = client.context.as_ref();
    let since = context.and_then(|context| context.pinned_at);
    let since = since.map_or(Cell::Null, date);
    let mode = unsettled.unwrap_or("dedicated");
    [mode.into(), pins.to_string().into(), since]
}

/// Returns a client's activity.
fn activity(admin: &Admin<'_>, token: Token) -> &'static str {
    let Some(Conn::Client(client)) = admin.connections.get(token) else {
        return "idle";
    };
    match *client.duty() {
        ClientDuty::Waiting { .. } | ClientDuty::Preparing(_) | ClientDuty::Opening(_) => "waiting",
        ClientDuty::Active(server) => match admin.connections.get(server) {
            Some(Conn::Server(server)) if !server.replies.is_settled() => "active",
            Some(Conn::Server(server)) if server.status() == b'T' => "idle in transaction",
            Some(Conn::Server(server)) if server.has_failed_transaction() => {
                "idle in transaction (aborted)"
            }
            _ => "idle",
        },
        _ => "idle",
    }
}

fn client_row(client: &Client, state: &'static str, link: Option<u64>, now: Time) -> Vec<Cell> {
    let waits = matches!(
        *client.duty(),
        ClientDuty::Waiting { .. } | ClientDuty::Preparing(_) | ClientDuty::Opening(_)
    );
    let wait = if waits {
        now.since(client.request.sent_at())
    } else {
        0
    };
    let (database, user) = client.names().map_or(("(nodb)", "(nouser)"), |names| {
        (&names.database, &names.user)
    });
    let mut row: Vec<Cell> = vec![
        "C".into(),
        user.into(),
        database.into(),
        client.replication().name().into(),
        state.into(),
    ];
    row.extend(end(client.origin.remote, client.origin.port));
    row.extend(end(client.origin.local, client.origin.port));
    row.extend([
        date(client.origin.connected_at),
        date(client.request.sent_at()),
    ]);
    row.extend([
        Cell::Int(wait / 1_000_000),
        Cell::Int(wait % 1_000_000),
        Cell::Int(0),
    ]);
    row.extend([
        pointer(client.origin.id),
        link.map_or_else(|| "".into(), pointer),
        client.origin.pid.into(),
        shown(client.tls()).into(),
    ]);
    let name = String::from_utf8_lossy(client.tracked.application_name()).into_owned();
    row.extend([
        name.into(),
        client.statements.len().into(),
        client.origin.id.into(),
    ]);
    row
}

fn server_row(server: &Server, state: &'static str, link: Option<u64>) -> Vec<Cell> {
    let key = &server.shared.key;
    let mut row: Vec<Cell> = vec![
        "S".into(),
        (*key.user).into(),
        (*key.database).into(),
        server.purpose().replication().name().into(),
        state.into(),
    ];
    let (local, remote) = server
        .link
        .addresses()
        .unwrap_or((Address::Unix, Address::Unix));
    let port = match &**server.link.endpoint() {
        crate::Endpoint::Tcp { port, .. } => *port,
        crate::Endpoint::Unix(path) => path
            .rsplit('.')
            .next()
            .and_then(|port| port.parse().ok())
            .unwrap_or(0),
    };
    row.extend(end(remote, port));
    row.extend(end(local, port));
    row.extend([
        date(server.times.connected_at()),
        date(server.times.lent_at()),
        Cell::Int(0),
        Cell::Int(0),
    ]);
    row.extend([
        server.retirement.is_required().into(),
        pointer(server.id()),
        link.map_or_else(|| "".into(), pointer),
    ]);
    row.extend([server.link.pid().into(), shown(server.link.tls()).into()]);
    let name = String::from_utf8_lossy(server.tracked.application_name()).into_owned();
    row.extend([
        name.into(),
        server.statements.prepared.len().into(),
        server.id().into(),
    ]);
    row
}

pub(super) fn end(address: Address, port: u16) -> [Cell; 2] {
    match address {
        Address::Unix => ["unix".into(), u32::from(port).into()],
        Address::Tcp(socket) => [
            socket.ip().to_string().into(),
            u32::from(socket.port()).into(),
        ],
    }
}

fn pointer(id: u64) -> Cell {
    format!("{id:#x}").into()
}
