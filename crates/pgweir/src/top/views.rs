//! The views. Each shows certain columns of certain tables.

use super::{
    figures::{Duration, Figures, History, PoolName, databases, pool_name},
    findings::{longest_wait, time_of_day},
    formatting::{count, plot, rate, span},
    sample::Sample,
    section::{Cell, Column, Line, Section, SortValue, Tone},
    table::{Row, Table},
};

/// The width of the plots in a table.
const PLOT_WIDTH: usize = 12;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    Pools,
    Waiters,
    Pins,
    Hosts,
    Events,
    Statements,
    Fleet,
    /// One pool: its clients and servers.
    Pool,
}

/// The views that have a key: in the order of the keys 1 to 7.
pub(super) const VIEWS: [(View, &str); 7] = [
    (View::Pools, "Pools"),
    (View::Waiters, "Waiters"),
    (View::Pins, "Pins"),
    (View::Hosts, "Hosts"),
    (View::Events, "Events"),
    (View::Statements, "Statements"),
    (View::Fleet, "Fleet"),
];

/// The form in which a column of the console is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Long,
    Number,
    /// A number that is a name.
    Id,
    /// A time in microseconds.
    Micros,
    /// A point in time: the time of day.
    Clock,
}

/// A column of the console, and its head here. The number is its rank: see [`Column::rank`].
type Field = (&'static str, &'static str, Form, u8);

use Form::{Clock, Id, Long, Micros, Number, Text};

const WAITERS: &[Field] = &[
    ("database", "database", Text, 1),
    ("user", "user", Text, 3),
    ("client_id", "client", Id, 0),
    ("wait_us", "waits", Micros, 0),
    ("limit", "limit", Text, 2),
    ("holders", "holders", Number, 7),
    ("holder_client_id", "holder", Id, 4),
    ("holder_application_name", "application", Long, 8),
    ("holder_us", "for", Micros, 5),
    ("holder_state", "holder's state", Text, 4),
    ("holder_pin_reason", "pinned by", Text, 8),
    ("statement", "statement", Long, 6),
    ("advice", "what helps", Long, 0),
];
const PINS: &[Field] = &[
    ("database", "database", Text, 2),
    ("user", "user", Text, 3),
    ("client_id", "client", Id, 0),
    ("server_id", "server", Id, 6),
    ("remote_pid", "pid", Id, 7),
    ("reason", "reason", Text, 0),
    ("duration_us", "pinned for", Micros, 0),
    ("idle_us", "idle for", Micros, 4),
    ("statement", "statement", Long, 1),
];
const HOSTS: &[Field] = &[
    ("host", "host", Text, 0),
    ("state", "state", Text, 0),
    ("role", "role", Text, 1),
    ("lag_us", "lag", Micros, 2),
    ("connections", "connections", Number, 1),
    ("databases", "databases", Long, 3),
    ("last_answer", "last login or check", Clock, 4),
    ("last_error_at", "error at", Clock, 5),
    ("last_error", "last error", Long, 0),
];
const EVENTS: &[Field] = &[
    ("time", "time (UTC)", Clock, 0),
    ("last_time", "last", Clock, 4),
    ("count", "times", Number, 1),
    ("severity", "severity", Text, 3),
    ("kind", "kind", Text, 0),
    ("database", "database", Text, 2),
    ("user", "user", Text, 5),
    ("sources", "from", Long, 4),
    ("event", "event", Long, 0),
];
const CLIENTS: &[Field] = &[
    ("id", "client", Id, 0),
    ("state", "state", Text, 0),
    ("activity", "activity", Text, 0),
    ("pin_reason", "pinned by", Text, 3),
    ("mode", "mode", Text, 6),
    ("application_name", "application", Long, 1),
    ("addr", "address", Text, 2),
    ("port", "port", Id, 4),
    ("request_time", "last request", Text, 5),
    ("prepared_statements", "prepared", Number, 8),
    ("remote_pid", "pid", Id, 9),
    ("link", "link", Text, 7),
    ("ptr", "ptr", Text, 10),
];
const SERVERS: &[Field] = &[
    ("id", "server", Id, 0),
    ("state", "state", Text, 0),
    ("addr", "host", Text, 1),
    ("port", "port", Id, 2),
    ("remote_pid", "pid", Id, 0),
    ("pin_reason", "pinned by", Text, 3),
    ("mode", "mode", Text, 6),
    ("connect_time", "connected", Text, 4),
    ("request_time", "last request", Text, 5),
    ("link", "link", Text, 7),
    ("ptr", "ptr", Text, 10),
];
/// Columns that SHOW STATEMENTS may have; it is sorted by the first one of [`STATEMENT_ORDER`].
const STATEMENTS: &[Field] = &[
    ("database", "database", Text, 3),
    ("user", "user", Text, 5),
    ("calls", "calls", Number, 0),
    ("server_us", "server time", Micros, 0),
    ("p95_server_us", "p95", Micros, 2),
    ("max_server_us", "longest", Micros, 1),
    ("wait_us", "wait", Micros, 2),
    ("rows", "rows", Number, 4),
    ("errors", "errors", Number, 3),
    ("pins", "pins", Number, 3),
    ("inspections", "inspections", Number, 6),
    ("statement", "statement", Long, 0),
];
const STATEMENT_ORDER: &str = "server time";
const FLEET: &[Field] = &[
    ("node", "node", Text, 3),
    ("state", "state", Text, 0),
    ("addresses", "addresses", Long, 1),
    ("share", "share", Number, 0),
    ("extra", "above the floor", Number, 4),
    ("wanted", "wanted", Number, 0),
    ("version", "version", Text, 2),
    ("last_contact", "last contact (UTC)", Clock, 1),
];

/// Returns the sections of a view.
pub(super) fn sections(
    view: View,
    sample: &Sample,
    history: &History,
    pool: Option<&PoolName>,
    is_unicode: bool,
) -> Vec<Section> {
    let table = |name: &str, title, fields, nothing| {
        vec![section(title, fields, sample.table(name), nothing)]
    };
    match view {
        View::Pools => vec![pools(sample, history, is_unicode)],
        View::Waiters => table("WAITERS", "Clients that wait", WAITERS, "Nobody waits."),
        View::Pins => table("PINS", "Pinned clients", PINS, "Nobody is pinned."),
        View::Hosts if sample.table("HOSTS").is_some() => {
            table("HOSTS", "Hosts", HOSTS, "No host has been used yet.")
        }
        View::Hosts => vec![hosts(sample)],
        View::Events => {
            let mut events = table(
                "EVENTS",
                "Events, the latest first",
                EVENTS,
                "No events yet.",
            );
            for section in &mut events {
                section.lines.reverse();
            }
            events
        }
        View::Statements => {
            let mut statements =
                table("STATEMENTS", "Statements", STATEMENTS, "No statements yet.");
            for section in &mut statements {
                let heads = section.columns.iter();
                let at = heads
                    .clone()
                    .position(|column| column.head == STATEMENT_ORDER);
                section.sort(at.unwrap_or_default(), true);
            }
            statements
        }
        View::Fleet => table(
            "FLEET",
            "Nodes that share max_server_conn",
            FLEET,
            "This process shares max_server_conn with no other (fleet_etcd is not set).",
        ),
        View::Pool => pool
            .map(|pool| connections(sample, pool))
            .unwrap_or_default(),
    }
}

/// Makes a section of the columns that a table has.
fn section(title: &str, fields: &[Field], table: Option<&Table>, nothing: &'static str) -> Section {
    let Some(table) = table else {
        return Section {
            title: title.to_owned(),
            nothing: "This console does not have them.",
            ..Section::default()
        };
    };
    section_of(title, fields, table, table.iter(), nothing)
}

fn section_of<'t>(
    title: &str,
    fields: &[Field],
    table: &'t Table,
    rows: impl Iterator<Item = Row<'t>>,
    nothing: &'static str,
) -> Section {
    let fields: Vec<&Field> = fields.iter().filter(|(name, ..)| table.has(name)).collect();
    let columns = fields.iter().map(|&&(_, head, form, rank)| match form {
        Text | Clock => Column::text(head, rank),
        Long => Column::long(head, rank),
        Number | Id | Micros => Column::number(head, rank),
    });
    let line = |row: Row<'_>| Line {
        cells: fields.iter().map(|field| cell(row, field)).collect(),
        order: fields.iter().map(|field| order(row, field)).collect(),
        detail: detail(row),
        client: client(row),
        pool: row
            .get("user")
            .and(row.get("database"))
            .map(|_| pool_name(row)),
    };
    Section {
        title: title.to_owned(),
        columns: columns.collect(),
        lines: rows.map(line).collect(),
        nothing,
    }
}

fn client(row: Row<'_>) -> Option<u64> {
    match row.get("type") {
        Some("C") => row.number("id"),
        Some(_) => None,
        None if row.get("limit").is_some() => row.number("holder_client_id"),
        None => row.number("holder_client_id").or(row.number("client_id")),
    }
}

fn cell(row: Row<'_>, (column, _, form, _): &Field) -> Cell {
    let Some(value) = row.get(column) else {
        return Cell::toned("-", Tone::Soft);
    };
    let number = value.parse::<u64>();
    let text = match (form, number) {
        (Number, Ok(number)) => count(number),
        (Micros, Ok(micros)) => span(micros),
        (Clock, _) => time_of_day(value).to_owned(),
        _ => value.to_owned(),
    };
    let tone = match value {
        "error" | "waiting" | "down" | "lost" => Tone::Bad,
        "warning"
        | "unknown"
        | "refusing"
        | "unavailable"
        | "idle in transaction"
        | "idle and pinned" => Tone::Warning,
        _ => Tone::Plain,
    };
    Cell::toned(text, tone)
}

fn order(row: Row<'_>, (column, _, form, _): &Field) -> SortValue {
    match (row.get(column), form) {
        (None, _) => SortValue::Nothing,
        (Some(value), Number | Id | Micros) => {
            value.parse().map_or(SortValue::Nothing, SortValue::Number)
        }
        (Some(value), _) => SortValue::Text(value.to_owned()),
    }
}

/// Returns all values of a row, times with their units.
fn detail(row: Row<'_>) -> Vec<(String, String)> {
    let pairs = row.pairs().filter(|(_, value)| !value.is_empty());
    pairs
        .map(
            |(name, value)| match (name.strip_suffix("_us"), value.parse()) {
                (Some(name), Ok(micros)) => (name.replace('_', " "), span(micros)),
                _ => (name.replace('_', " "), value.to_owned()),
            },
        )
        .collect()
}

const POOL_COLUMNS: [Column; 13] = [
    Column::text("database / user", 0),
    Column::number("waiting", 0),
    Column::number("longest", 1),
    Column::number("clients", 3),
    Column::number("in use", 1),
    Column::number("idle", 4),
    Column::number("pinned", 2),
    Column::number("tx/s", 1),
    Column::text("tx/s lately", 8),
    Column::number("wait p50 p95 p99", 5),
    Column::number("transaction p50 p95 p99", 6),
    Column::text("waits for", 7),
    Column::text("mode", 9),
];

fn pools(sample: &Sample, history: &History, is_unicode: bool) -> Section {
    let consoles = ["pgbouncer", "pgweir"];
    let is_pool = |row: &Row<'_>| !consoles.contains(&row.text("database"));
    let rows = sample.rows("POOLS").filter(is_pool);
    let mut lines: Vec<Line> = rows
        .map(|row| pool_line(row, history, is_unicode))
        .collect();
    // Pools with waiting clients come first, then the busiest.
    lines.sort_by(|one, other| {
        let rank = |line: &Line| [1, 7].map(|at| number(&line.order[at]));
        rank(other)
            .partial_cmp(&rank(one))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    Section {
        title: format!("Pools ({})", lines.len()),
        columns: POOL_COLUMNS.to_vec(),
        lines,
        nothing: "No client has come yet.",
    }
}

fn number(order: &SortValue) -> f64 {
    match order {
        SortValue::Number(number) => *number,
        _ => -1.0,
    }
}

fn pool_line(row: Row<'_>, history: &History, is_unicode: bool) -> Line {
    let name = pool_name(row);
    let figures = history.latest(&name);
    let waiting = row.count("cl_waiting");
    let alarm = if waiting > 0 { Tone::Bad } else { Tone::Plain };
    let idle = row.count("sv_idle") + row.count("sv_used");
    let pinned = figures.map_or(0, |figures| figures.pinned);
    let values = history.values_over_time(&name, |figures| figures.rate);
    let rate_now = figures.and_then(|figures| figures.rate);
    let high = |of: fn(&Figures) -> Duration| figures.and_then(|figures| of(figures).high());
    let times =
        |of: fn(&Figures) -> Duration| figures.map_or_else(String::new, |one| times(of(one)));
    let wait = longest_wait(row);
    let longest = if waiting > 0 {
        span(wait)
    } else {
        "-".to_owned()
    };
    let whole = |number: u64| SortValue::Number(number as f64);
    let optional = |number: Option<f64>| number.map_or(SortValue::Nothing, SortValue::Number);
    let reason = row
        .get("wait_reason")
        .or(row.get("last_error"))
        .unwrap_or("-");
    Line {
        cells: vec![
            Cell::toned(format!("{} / {}", name.0, name.1), alarm),
            Cell::toned(count(waiting), alarm),
            Cell::toned(longest, alarm),
            Cell::new(count(row.count("cl_active") + waiting)),
            Cell::new(count(row.count("sv_active"))),
            Cell::new(count(idle)),
            Cell::new(count(pinned)),
            Cell::new(rate_now.map_or_else(|| "-".to_owned(), rate)),
            Cell::toned(plot(&values, PLOT_WIDTH, is_unicode), Tone::Good),
            Cell::new(times(|figures| figures.wait)),
            Cell::new(times(|figures| figures.transaction)),
            Cell::toned(reason.chars().take(40).collect::<String>(), alarm),
            Cell::toned(row.text("pool_mode"), Tone::Soft),
        ],
        order: vec![
            SortValue::Text(format!("{} / {}", name.0, name.1)),
            whole(waiting),
            whole(wait),
            whole(row.count("cl_active") + waiting),
            whole(row.count("sv_active")),
            whole(idle),
            whole(pinned),
            optional(rate_now),
            optional(rate_now),
            optional(high(|figures| figures.wait).map(|micros| micros as f64)),
            optional(high(|figures| figures.transaction).map(|micros| micros as f64)),
            SortValue::Text(reason.to_owned()),
            SortValue::Text(row.text("pool_mode").to_owned()),
        ],
        pool: Some(name),
        ..Line::default()
    }
}

/// Returns a duration in words: three percentiles, or the mean.
pub(super) fn times(duration: Duration) -> String {
    match duration {
        Duration::Unknown => "-".to_owned(),
        Duration::Mean(mean) => format!("mean {}", span(mean)),
        Duration::Percentiles(percentiles) => percentiles.map(span).join("  "),
    }
}

/// The clients and servers of one pool: first those with a server, or with a client.
fn connections(sample: &Sample, pool: &PoolName) -> Vec<Section> {
    let of = |name: &'static str, title: &str, fields, nothing| {
        let Some(table) = sample.table(name) else {
            return section(title, fields, None, nothing);
        };
        let mut rows: Vec<Row<'_>> = sample.rows_of(name, (&pool.0, &pool.1)).collect();
        rows.sort_by_key(|row| (importance(*row), row.text("request_time").to_owned()));
        let title = format!("{title} ({})", rows.len());
        section_of(&title, fields, table, rows.into_iter(), nothing)
    };
    vec![
        of("CLIENTS", "Clients", CLIENTS, "No clients."),
        of("SERVERS", "Servers", SERVERS, "No servers."),
    ]
}

/// Returns how early a connection is shown: 0 comes first.
fn importance(row: Row<'_>) -> u8 {
    let is_linked = row.get("link").is_some_and(|link| !link.is_empty());
    match (row.text("activity"), row.text("state")) {
        ("idle in transaction" | "idle in transaction (aborted)", _) => 0,
        _ if row
            .get("pin_reason")
            .is_some_and(|reason| !reason.is_empty()) =>
        {
            1
        }
        _ if is_linked => 2,
        (_, "waiting") => 3,
        _ => 4,
    }
}

const HOST_COLUMNS: [Column; 6] = [
    Column::text("host", 0),
    Column::number("port", 1),
    Column::text("database", 0),
    Column::number("connections", 0),
    Column::number("in use", 2),
    Column::long("trouble", 0),
];

/// The hosts of each database, with their connections, for consoles without SHOW HOSTS.
fn hosts(sample: &Sample) -> Section {
    let mut rows: Vec<(&str, &str, &str, u64, u64)> = Vec::new();
    for row in sample.rows("SERVERS") {
        let key = (row.text("addr"), row.text("port"), row.text("database"));
        let in_use = u64::from(row.text("state") == "active");
        match rows.iter_mut().find(|row| (row.0, row.1, row.2) == key) {
            Some(found) => {
                found.3 += 1;
                found.4 += in_use;
            }
            None => rows.push((key.0, key.1, key.2, 1, in_use)),
        }
    }
    // Databases without a server connection still have hosts.
    let connected = sample.table("SERVERS").map(databases).unwrap_or_default();
    let entries = sample.rows("DATABASES");
    let silent =
        entries.filter(|row| row.get("host").is_some() && !connected.contains(row.text("name")));
    rows.extend(silent.map(|row| (row.text("host"), row.text("port"), row.text("name"), 0, 0)));
    let line = |&(host, port, database, connections, in_use): &(&str, &str, &str, u64, u64)| {
        let of_database = |row: &Row<'_>| row.text("database") == database;
        let mut pools = sample.rows("POOLS").filter(of_database);
        let trouble = pools.find_map(|row| row.get("last_error").filter(|error| !error.is_empty()));
        let texts = [host, port, database];
        let numbers = [connections, in_use];
        let mut cells: Vec<Cell> = texts.map(Cell::new).into();
        cells.extend(numbers.map(|number| Cell::new(count(number))));
        cells.push(Cell::toned(
            trouble.unwrap_or("-"),
            trouble.map_or(Tone::Soft, |_| Tone::Bad),
        ));
        let mut order: Vec<SortValue> = texts.map(|text| SortValue::Text(text.to_owned())).into();
        order.extend(numbers.map(|number| SortValue::Number(number as f64)));
        order.push(trouble.map_or(SortValue::Nothing, |text| SortValue::Text(text.to_owned())));
        Line {
            cells,
            order,
            ..Line::default()
        }
    };
    Section {
        title: "Hosts".to_owned(),
        columns: HOST_COLUMNS.to_vec(),
        lines: rows.iter().map(line).collect(),
        nothing: "No hosts.",
    }
}
