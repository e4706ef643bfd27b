//! Problems that an operator should look at, each in a sentence with its cause and a remedy.

use std::collections::BTreeMap;

use super::{
    figures::{Duration, History, pool_name},
    formatting::{count, count_of, span},
    sample::Sample,
    section::Tone,
    table::Row,
};

/// An event is mentioned for so many seconds after it happened last.
const RECENT: i64 = 120;
/// From this 95th percentile on, in microseconds, the length of transactions is mentioned.
const LONG: u64 = 1_000_000;
/// The largest number of bytes of a statement in a sentence.
const STATEMENT_MAX: usize = 120;

/// Shorter waits, in microseconds, are usual in a pool that is well used.
const BRIEF: u64 = 100_000;
/// The largest number of pools or hosts that a sentence names.
const POOLS_MAX: usize = 3;

/// A sentence about a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) tone: Tone,
    pub(super) text: String,
}

fn bad(text: String) -> Finding {
    Finding {
        tone: Tone::Bad,
        text,
    }
}

fn warning(text: String) -> Finding {
    Finding {
        tone: Tone::Warning,
        text,
    }
}

/// Returns the problems that a sample shows, the worst kinds first.
pub(super) fn findings(sample: &Sample, history: &History) -> Vec<Finding> {
    let mut found = Vec::new();
    for row in sample
        .rows("STATE")
        .filter(|row| row.text("value") == "yes")
    {
        match row.text("key") {
            "paused" => found.push(bad(
                "all databases are paused: clients wait until RESUME".into()
            )),
            "suspended" => {
                found.push(bad("pgweir is suspended: nothing moves until RESUME".into()))
            }
            _ => {}
        }
    }
    let pools = || sample.rows("POOLS");
    found.extend(outages(sample));
    let other_waits = pools().filter(|pool| !waits_for_login(*pool));
    found.extend(other_waits.filter_map(|pool| waiting(sample, pool)));
    found.extend(logins(sample));
    found.extend(lost_servers(sample));
    found.extend(pools().filter_map(|pool| pins(sample, pool)));
    let has_statements = sample.table("STATEMENTS").is_some();
    found.extend(pools().filter_map(|pool| slow(pool, history, has_statements)));
    for row in sample.rows("DATABASES") {
        let name = row.text("name");
        let has_waiters =
            |pool: Row<'_>| pool.text("database") == name && pool.text("wait_reason") == "paused";
        if row.count("paused") > 0 && !pools().any(has_waiters) {
            found.push(warning(format!(
                "database {name} is paused: RESUME {name} ends it"
            )));
        }
        if row.count("disabled") > 0 {
            found.push(warning(format!(
                "database {name} is disabled: new clients are refused"
            )));
        }
    }
    found
}

fn name(pool: Row<'_>) -> String {
    format!("{} / {}", pool.text("database"), pool.text("user"))
}

/// Returns why the last login of a pool to its server failed, if it did.
fn login_error(pool: Row<'_>) -> Option<&str> {
    pool.get("last_error").filter(|error| !error.is_empty())
}

/// Returns whether clients of a pool wait for a server that can't be reached.
fn waits_for_login(pool: Row<'_>) -> bool {
    let reasons = [None, Some("server_login_retry"), Some("connecting")];
    pool.count("cl_waiting") > 0
        && login_error(pool).is_some()
        && reasons.contains(&pool.get("wait_reason").filter(|reason| !reason.is_empty()))
}

/// Returns a sentence for each error of logins to servers, with the pools that have it, the clients that wait for the
/// server, and the servers that were lost.
fn outages(sample: &Sample) -> Vec<Finding> {
    let mut by_error = BTreeMap::<&str, Vec<Row<'_>>>::new();
    for pool in sample.rows("POOLS") {
        if let Some(error) = login_error(pool) {
            by_error.entry(error).or_default().push(pool);
        }
    }
    let sentence = |(error, pools): (&str, Vec<Row<'_>>)| {
        let at = hosts(sample, &pools, error);
        let mut text = format!("{}: no login to the server{at}: {error}", names(&pools));
        if let Some(seconds) = pools
            .iter()
            .filter_map(|pool| pool.number("retry_in"))
            .min()
        {
            text.push_str(&format!("; next try in {seconds} s"));
        }
        let waiting = || pools.iter().filter(|pool| waits_for_login(**pool));
        let clients: u64 = waiting().map(|pool| pool.count("cl_waiting")).sum();
        if clients > 0 {
            let verb = if clients == 1 { "waits" } else { "wait" };
            let longest = waiting().map(|pool| longest_wait(*pool)).max();
            let longest = span(longest.unwrap_or_default());
            let clients = count_of(clients, "client");
            text.push_str(&format!("; {clients} {verb}, the longest for {longest}"));
        }
        let is_of_these = |row: &Row<'_>| {
            let database = row.text("database");
            pools.iter().any(|pool| pool.text("database") == database)
        };
        if let Some(lost) = recent(sample, "server_lost").filter(is_of_these).last() {
            let at = time_of_day(lost.text("last_time"));
            text.push_str(&format!("; servers were lost, the last one at {at} UTC"));
        }
        text.push_str(
            ". What helps: repair the server or the network; pgweir connects again by itself",
        );
        bad(text)
    };
    by_error.into_iter().map(sentence).collect()
}

/// Returns which hosts of these pools are not up, unless the error names them.
fn hosts(sample: &Sample, pools: &[Row<'_>], error: &str) -> String {
    let is_theirs = |row: &Row<'_>| {
        let mut databases = row.text("databases").split(", ");
        databases.any(|name| pools.iter().any(|pool| pool.text("database") == name))
    };
    let rows = sample.rows("HOSTS").filter(is_theirs);
    let rows = rows.filter(|row| row.text("state") != "up");
    let hosts: Vec<&str> = rows.map(|row| row.text("host")).take(POOLS_MAX).collect();
    match hosts.iter().any(|host| error.contains(host)) || hosts.is_empty() {
        true => String::new(),
        false => format!(" at {}", hosts.join(", ")),
    }
}

/// Returns the names of the first pools.
fn names(pools: &[Row<'_>]) -> String {
    let shown: Vec<String> = pools.iter().take(POOLS_MAX).copied().map(name).collect();
    let shown = shown.join(", ");
    match pools.len().checked_sub(POOLS_MAX) {
        Some(more @ 1..) => format!("{shown} and {more} more pools"),
        _ => shown,
    }
}

/// Returns for how long the client has waited that has waited for longest, in microseconds.
pub(super) fn longest_wait(pool: Row<'_>) -> u64 {
    pool.count("maxwait") * 1_000_000 + pool.count("maxwait_us")
}

fn waiting(sample: &Sample, pool: Row<'_>) -> Option<Finding> {
    let clients = pool.number("cl_waiting").filter(|clients| *clients > 0)?;
    let wait = longest_wait(pool);
    if wait < BRIEF {
        return None;
    }
    let verb = if clients == 1 { "waits" } else { "wait" };
    let mut text = format!(
        "{}: {} {verb}, the longest for {}",
        name(pool),
        count_of(clients, "client"),
        span(wait)
    );
    let (database, user) = (pool.text("database"), pool.text("user"));
    if let Some(waiter) = sample.rows_of("WAITERS", (database, user)).next() {
        describe_holder(waiter, &mut text);
    } else if let Some(reason) = pool.get("wait_reason") {
        text.push_str(&format!(" ({reason})"));
    } else if sample.table("WAITERS").is_none() {
        let in_use = count_of(pool.count("sv_active"), "server");
        text.push_str(&format!(" ({in_use} in use)"));
    }
    let found = if wait >= LONG { bad } else { warning };
    Some(found(text))
}

/// Adds the limit, the holders and the advice of a row of SHOW WAITERS.
fn describe_holder(waiter: Row<'_>, text: &mut String) {
    if let Some(limit) = waiter.get("limit") {
        text.push_str(&format!(" ({limit})"));
    }
    if let (Some(client), Some(state)) =
        (waiter.get("holder_client_id"), waiter.get("holder_state"))
    {
        let held = span(waiter.count("holder_us"));
        let holders = waiter.count("holders");
        let application = waiter.get("holder_application_name").map(shortened);
        let program = application.map(|application| format!("application \"{application}\""));
        let described = match (waiter.count("holders_alike"), program) {
            (alike @ 2.., program) => {
                let user = || format!("user {}", shortened(waiter.text("holder_user")));
                let program = program.unwrap_or_else(user);
                let servers = count_of(holders, "server");
                format!("{alike} of {servers} are held by {program} ({state}), one for {held}")
            }
            (_, program) => {
                let program = program.map_or_else(String::new, |program| format!("{program}, "));
                let holders = count_of(holders, "holder");
                format!(
                    "of {holders} client {client} ({program}{state}) has had its server for longest: {held}"
                )
            }
        };
        text.push_str(&format!("; {described}"));
        if let Some(statement) = waiter.get("statement") {
            text.push_str(&format!(", by {}", shortened(statement)));
        }
    }
    if let Some(advice) = waiter.get("advice") {
        text.push_str(&format!(". What helps: {advice}"));
    }
}

fn shortened(statement: &str) -> String {
    match statement.len() {
        0..=STATEMENT_MAX => statement.to_owned(),
        _ => format!(
            "{}...",
            &statement[..statement.floor_char_boundary(STATEMENT_MAX)]
        ),
    }
}

/// Returns the seconds since 1970 of a time as the console writes it.
fn seconds(text: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S UTC", text).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_second())
}

fn recent<'s>(sample: &'s Sample, kind: &'static str) -> impl Iterator<Item = Row<'s>> {
    let now = i64::try_from(sample.at / 1_000_000).unwrap_or(i64::MAX);
    let rows = sample
        .rows("EVENTS")
        .filter(move |row| row.text("kind") == kind);
    rows.filter(move |row| {
        let last = seconds(row.text("last_time"));
        last.is_some_and(|last| now.saturating_sub(last) <= RECENT)
    })
}

/// Returns a sentence for each database to which several logins have failed lately.
fn logins(sample: &Sample) -> Vec<Finding> {
    let mut failed = BTreeMap::<&str, (u64, Row<'_>)>::new();
    for row in recent(sample, "login_failed") {
        let (total, most) = failed.entry(row.text("database")).or_insert((0, row));
        *total += row.count("count");
        if row.count("count") >= most.count("count") {
            *most = row;
        }
    }
    let several = failed.into_iter().filter(|(_, (total, _))| *total >= 3);
    let sentence = |(database, (total, most)): (&str, (u64, Row<'_>))| {
        let at = |column| time_of_day(most.text(column));
        let (cause, remedy) = match most.text("event").contains("28P01") {
            true => (
                "wrong password or unknown user",
                "correct the user and the password of the client there, or ban it (auth_failure_limit)",
            ),
            false => (
                most.text("event"),
                "the audit lines of the log have the whole errors",
            ),
        };
        let database = match database {
            "" => "databases that do not exist",
            database => database,
        };
        let user = most.get("user").filter(|user| !user.is_empty());
        let most_of = if most.count("count") < total {
            "most "
        } else {
            ""
        };
        let user = user.map_or_else(String::new, |user| format!(", {most_of}as user {user}"));
        let sources = most.get("sources");
        let sources = sources.map_or_else(String::new, |from| format!(". They come from {from}"));
        let text = format!(
            "{} failed logins of clients to {database}{user}, since {} UTC, the latest at {}: {cause}{sources}. \
             What helps: {remedy}",
            count(total),
            at("time"),
            at("last_time"),
        );
        if total >= 20 {
            bad(text)
        } else {
            warning(text)
        }
    };
    several.map(sentence).collect()
}

/// Returns the time of day of a time as the console writes it.
pub(super) fn time_of_day(text: &str) -> &str {
    let time = text.split(' ').nth(1);
    time.unwrap_or(text)
}

/// Returns a sentence about the server that was lost last, unless its pool's outage is mentioned.
fn lost_servers(sample: &Sample) -> Option<Finding> {
    let is_mentioned = |row: &Row<'_>| {
        let database = row.text("database");
        let mut failing = sample
            .rows("POOLS")
            .filter(|pool| login_error(*pool).is_some());
        failing.any(|pool| pool.text("database") == database)
    };
    let lost = recent(sample, "server_lost").filter(|row| !is_mentioned(row));
    let last = lost.last()?;
    Some(warning(format!(
        "{} {}: {}",
        last.text("database"),
        time_of_day(last.text("last_time")),
        last.text("event")
    )))
}

/// Pinned clients keep half of a pool's servers or more. If clients wait for a pinned client, the sentence about the
/// waiting clients says this already.
fn pins(sample: &Sample, pool: Row<'_>) -> Option<Finding> {
    let of_pool = (pool.text("database"), pool.text("user"));
    let waiter = sample.rows_of("WAITERS", of_pool).next();
    if waiter.is_some_and(|waiter| waiter.text("holder_state") == "idle and pinned") {
        return None;
    }
    let mut reasons = BTreeMap::<&str, (u64, Row<'_>)>::new();
    for row in sample.rows_of("PINS", of_pool) {
        reasons.entry(row.text("reason")).or_insert((0, row)).0 += 1;
    }
    let pinned: u64 = reasons.values().map(|(clients, _)| clients).sum();
    let servers = pool.count("sv_active") + pool.count("sv_idle") + pool.count("sv_used");
    let (reason, (clients, row)) = reasons
        .into_iter()
        .max_by_key(|(_, (clients, _))| *clients)?;
    if pinned < 2 || pinned * 2 < servers {
        return None;
    }
    let mut text = format!(
        "{}: pinned clients keep {pinned} of {servers} servers, {clients} of them for: {reason}",
        name(pool)
    );
    if let Some(statement) = row.get("statement") {
        text.push_str(&format!(", by {}", shortened(statement)));
    }
    text.push_str(". What helps: change the statement that pins them, or set pin_timeout");
    Some(warning(text))
}

fn slow(pool: Row<'_>, history: &History, has_statements: bool) -> Option<Finding> {
    let figures = history.latest(&pool_name(pool))?;
    let high = figures.transaction.high().filter(|high| *high >= LONG)?;
    let which = match figures.transaction {
        Duration::Mean(_) => "transactions take on average",
        _ => "5 % of the transactions took longer than",
    };
    let where_to_look = if has_statements {
        ": see the statements"
    } else {
        ""
    };
    Some(warning(format!(
        "{}: {which} {}{where_to_look}",
        name(pool),
        span(high)
    )))
}
