//! The console's commands, and which users may give them.

use pgweir_config::Scope;

use super::{
    grammar::{Sentence, parse},
    on_all::CommandOnAll,
};
use crate::{Shutdown, base::fault::Fault};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A text that consists of blanks and at most a semicolon.
    Empty,
    Show(Show),
    /// SHOW of a parameter that drivers ask for: its name and value.
    Parameter(&'static str, &'static str),
    /// SET of such a parameter: has no effect.
    SetParameter,
    Set {
        key: String,
        value: String,
    },
    Reload,
    Shutdown(Shutdown),
    /// RESTART.
    Restart,
    Suspend,
    /// The database, or an empty name for all databases; also for RESUME, KILL, RECONNECT and WAIT_CLOSE.
    Pause(String),
    Resume(String),
    Kill(String),
    Reconnect(String),
    WaitClose(String),
    /// The database, which must be named.
    Disable(String),
    Enable(String),
    /// The client's id, as the operator has written it.
    KillClient(String),
    /// An address or a user; empty for all.
    Unban(String),
    /// A command that each node of the fleet carries out.
    OnAll(CommandOnAll),
}

/// The users who may give a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// `admin_users` and `stats_users`.
    Look,
    /// `admin_users` only.
    Operate,
}

/// The subject of a SHOW command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    ActiveSockets,
    AuthCache,
    Bans,
    Catalog,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Events,
    Fds,
    Fleet,
    Help,
    Hosts,
    Internal,
    Listeners,
    Lists,
    Mem,
    Opaque,
    PeerPools,
    Peers,
    PinStats,
    Pins,
    Pools,
    Servers,
    Sockets,
    State,
    Statements,
    Stats,
    StatsAverages,
    StatsTotals,
    Times,
    Totals,
    Users,
    Version,
    Waiters,
    Workers,
}

/// The threads that contribute to a SHOW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Only the console's worker.
    Here,
    /// Every worker.
    Workers,
    /// The control thread, and then every worker.
    Names,
}

impl Show {
    const ALL: &[(&'static str, Self, &'static str)] = &[
        (
            "ACTIVE_SOCKETS",
            Self::ActiveSockets,
            "Connections that are in the middle of a message",
        ),
        (
            "AUTH_CACHE",
            Self::AuthCache,
            "What auth_query has found out about users",
        ),
        (
            "BANS",
            Self::Bans,
            "Failed logins by address and user, and bans",
        ),
        (
            "CATALOG",
            Self::Catalog,
            "What pgweir knows of each database's functions and tables",
        ),
        (
            "CLIENTS",
            Self::Clients,
            "Client connections, their state and their server",
        ),
        (
            "CONFIG",
            Self::Config,
            "Settings, their values and defaults",
        ),
        (
            "DATABASES",
            Self::Databases,
            "Entries of [databases], their limits and use",
        ),
        (
            "DNS_HOSTS",
            Self::DnsHosts,
            "Host names and their addresses",
        ),
        ("DNS_ZONES", Self::DnsZones, "DNS zones and their serials"),
        (
            "EVENTS",
            Self::Events,
            "The latest events: reloads, commands, lost servers, failed logins",
        ),
        ("FDS", Self::Fds, "Connections with their file descriptors"),
        (
            "FLEET",
            Self::Fleet,
            "The processes that share max_server_conn, and what each holds",
        ),
        ("HELP", Self::Help, "This text"),
        (
            "HOSTS",
            Self::Hosts,
            "Hosts of servers: role, state, lag, connections, last error",
        ),
        ("INTERNAL", Self::Internal, "What pgweir does for itself"),
        (
            "LISTENERS",
            Self::Listeners,
            "Connections that LISTEN for clients",
        ),
        (
            "LISTS",
            Self::Lists,
            "Numbers of databases, users, pools, clients and servers",
        ),
        ("MEM", Self::Mem, "Memory"),
        (
            "OPAQUE",
            Self::Opaque,
            "Functions and tables that may change a session unseen",
        ),
        ("PEERS", Self::Peers, "Other processes of [peers]"),
        (
            "PEER_POOLS",
            Self::PeerPools,
            "Cancel requests on their way to other processes",
        ),
        (
            "PINS",
            Self::Pins,
            "Clients that are pinned to a server, and why",
        ),
        (
            "PIN_STATS",
            Self::PinStats,
            "How often clients were pinned to a server, and why",
        ),
        (
            "POOLS",
            Self::Pools,
            "Clients and servers of each pool, and why clients wait",
        ),
        (
            "SERVERS",
            Self::Servers,
            "Server connections, their state and their client",
        ),
        ("SOCKETS", Self::Sockets, "All connections"),
        (
            "STATE",
            Self::State,
            "Is pgweir active, paused or suspended?",
        ),
        (
            "STATEMENTS",
            Self::Statements,
            "What statements cost: calls, times, rows and bytes, without values",
        ),
        (
            "STATS",
            Self::Stats,
            "Transactions, queries, bytes and times of each database",
        ),
        (
            "STATS_AVERAGES",
            Self::StatsAverages,
            "The same, per second",
        ),
        ("STATS_TOTALS", Self::StatsTotals, "The same, in total"),
        (
            "TIMES",
            Self::Times,
            "Waits, transaction and query times of each pool",
        ),
        ("TOTALS", Self::Totals, "The same, of all databases"),
        ("USERS", Self::Users, "Users, their limits and connections"),
        ("VERSION", Self::Version, "The version"),
        (
            "WAITERS",
            Self::Waiters,
            "Clients that wait for a server, the clients that have servers, and advice",
        ),
        (
            "WORKERS",
            Self::Workers,
            "Threads that serve connections, and how busy each is",
        ),
    ];

    pub(crate) fn source(self) -> Source {
        match self {
            Self::AuthCache
            | Self::Bans
            | Self::Catalog
            | Self::Config
            | Self::Events
            | Self::Fleet
            | Self::Help
            | Self::Hosts
            | Self::Opaque
            | Self::Peers
            | Self::State
            | Self::Version => Source::Here,
            Self::DnsHosts | Self::DnsZones | Self::Lists => Source::Names,
            _ => Source::Workers,
        }
    }

    /// Returns the lines of SHOW HELP, one for each command.
    pub(crate) fn help() -> String {
        let shows = Self::ALL
            .iter()
            .map(|(name, _, about)| (format!("SHOW {name}"), *about));
        let orders = COMMANDS
            .iter()
            .map(|(command, about)| ((*command).to_owned(), *about));
        let line = |(command, about): (String, &str)| format!("\n\t{command:<26} {about}");
        let on_all = (
            "<command> ON ALL".to_owned(),
            "Carry a command out on all nodes of the fleet (fleet_etcd)",
        );
        shows.chain(orders).chain([on_all]).map(line).collect()
    }
}

/// A table of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableInfo {
    /// The name after SHOW, in upper case.
    pub name: &'static str,
    /// The line of SHOW HELP about the table.
    pub about: &'static str,
    /// Whether only `admin_users` may see the table.
    pub is_for_admins: bool,
}

/// Returns all tables that SHOW can show.
pub fn tables() -> impl Iterator<Item = TableInfo> {
    let tables = Show::ALL.iter();
    tables
        .filter(|(_, show, _)| *show != Show::Help)
        .map(|&(name, show, about)| TableInfo {
            name,
            about,
            is_for_admins: Command::Show(show).right() == Right::Operate,
        })
}

/// Returns the forms of all commands but SHOW, as SHOW HELP lists them, each with a line about it.
pub fn command_forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.into_iter()
}

/// The other commands, as SHOW HELP lists them.
const COMMANDS: [(&str, &str); 16] = [
    (
        "SET key = value",
        "Change a setting until the next RELOAD or restart",
    ),
    ("RELOAD", "Read the configuration again"),
    (
        "PAUSE [<db>]",
        "Wait until no server is in use, close all, and let clients wait",
    ),
    ("RESUME [<db>]", "End PAUSE, SUSPEND or KILL"),
    ("DISABLE <db>", "Refuse new clients of a database"),
    ("ENABLE <db>", "End DISABLE"),
    (
        "RECONNECT [<db>]",
        "Replace servers as they become free; try failed logins at once",
    ),
    (
        "KILL [<db>]",
        "Disconnect clients and servers at once, and PAUSE",
    ),
    (
        "KILL_CLIENT <client_id>",
        "Disconnect a client, by its id or ptr",
    ),
    (
        "UNBAN [<address>|<user>]",
        "Forget failed logins, and end bans",
    ),
    (
        "WAIT_CLOSE [<db>]",
        "Wait until servers that RECONNECT or RELOAD outdated are closed",
    ),
    (
        "SUSPEND",
        "Let all connections come to rest, and hold them there",
    ),
    ("RESTART", "Let a new process take over sockets and clients"),
    ("SHUTDOWN", "End at once"),
    (
        "SHUTDOWN WAIT_FOR_SERVERS",
        "End when servers have been given back",
    ),
    ("SHUTDOWN WAIT_FOR_CLIENTS", "End when clients have left"),
];

/// Parameters that drivers ask for when they connect, with fixed answers as in PgBouncer.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
];

impl Command {
    /// Reads a command.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let invalid = || Fault::Command(format!("invalid command '{text}', use SHOW HELP;"));
        match parse(text).ok_or_else(invalid)? {
            Sentence::Empty => Ok(Self::Empty),
            Sentence::Set { key, value } => Self::set(key, value),
            Sentence::Words { verb, argument } => {
                Self::of(&verb.to_ascii_uppercase(), argument).ok_or_else(invalid)
            }
            Sentence::WordsOnAll { verb, argument } => {
                let verb = verb.to_ascii_uppercase();
                Self::of(&verb, argument.clone()).ok_or_else(invalid)?;
                CommandOnAll::new(&verb, &argument).map(Self::OnAll)
            }
        }
    }

    /// Returns the command as the log shows it: without secrets.
    pub(crate) fn shown(&self) -> String {
        let of = |verb: &str, argument: &str| match argument {
            "" => verb.to_owned(),
            _ => format!("{verb} {argument}"),
        };
        match self {
            Self::Empty | Self::SetParameter => String::new(),
            Self::Show(_) | Self::Parameter(..) => "SHOW".to_owned(),
            Self::Set { key, value } => shown_setting(key, value),
            Self::Reload => "RELOAD".to_owned(),
            Self::Shutdown(Shutdown::Immediate) => "SHUTDOWN".to_owned(),
            Self::Shutdown(Shutdown::WaitForServers) => "SHUTDOWN WAIT_FOR_SERVERS".to_owned(),
            Self::Shutdown(Shutdown::WaitForClients) => "SHUTDOWN WAIT_FOR_CLIENTS".to_owned(),
            Self::Restart => "RESTART".to_owned(),
            Self::Suspend => "SUSPEND".to_owned(),
            Self::Pause(database) => of("PAUSE", database),
            Self::Resume(database) => of("RESUME", database),
            Self::Kill(database) => of("KILL", database),
            Self::Reconnect(database) => of("RECONNECT", database),
            Self::WaitClose(database) => of("WAIT_CLOSE", database),
            Self::Disable(database) => of("DISABLE", database),
            Self::Enable(database) => of("ENABLE", database),
            Self::KillClient(id) => of("KILL_CLIENT", id),
            Self::Unban(whom) => of("UNBAN", whom),
            Self::OnAll(command) => format!("{} ON ALL", command.shown()),
        }
    }

    /// Returns the database that the command is about; empty if it is about none, or about all.
    pub(crate) fn database(&self) -> &str {
        match self {
            Self::Pause(database)
            | Self::Resume(database)
            | Self::Kill(database)
            | Self::Reconnect(database)
            | Self::WaitClose(database)
            | Self::Disable(database)
            | Self::Enable(database) => database,
            Self::OnAll(command) => command.database(),
            _ => "",
        }
    }

    fn set(key: String, value: String) -> Result<Self, Fault> {
        if key.is_empty() {
            return Err(Fault::Command("bad arguments".to_owned()));
        }
        Ok(match parameter(&key) {
            Some(_) => Self::SetParameter,
            None => Self::Set { key, value },
        })
    }

    fn of(verb: &str, argument: String) -> Option<Self> {
        Some(match (verb, argument.as_str()) {
            ("SHOW" | "SELECT", what) => Self::show(what)?,
            ("RELOAD", "") => Self::Reload,
            ("RESTART", "") => Self::Restart,
            ("SHUTDOWN", how) => Self::Shutdown(match how.to_ascii_uppercase().as_str() {
                "" => Shutdown::Immediate,
                "WAIT_FOR_SERVERS" => Shutdown::WaitForServers,
                "WAIT_FOR_CLIENTS" => Shutdown::WaitForClients,
                _ => return None,
            }),
            ("SUSPEND", "") => Self::Suspend,
            ("PAUSE", _) => Self::Pause(argument),
            ("RESUME", _) => Self::Resume(argument),
            ("KILL", _) => Self::Kill(argument),
            ("RECONNECT", _) => Self::Reconnect(argument),
            ("WAIT_CLOSE", _) => Self::WaitClose(argument),
            ("DISABLE", _) => Self::Disable(argument),
            ("ENABLE", _) => Self::Enable(argument),
            ("KILL_CLIENT", _) => Self::KillClient(argument),
            ("UNBAN", _) => Self::Unban(argument),
            _ => return None,
        })
    }

    fn show(what: &str) -> Option<Self> {
        let show = Show::ALL
            .iter()
            .find(|(name, ..)| name.eq_ignore_ascii_case(what));
        show.map(|(_, show, _)| Self::Show(*show))
            .or(parameter(what).map(|(name, value)| Self::Parameter(name, value)))
    }

    /// Returns which users may give the command. Only this function decides that.
    pub(crate) fn right(&self) -> Right {
        match self {
            // SHOW FDS shows both ends of all connections of the process. SHOW BANS shows the user names of failed
            // logins; someone may have typed a password in place of a user name.
            Self::Show(Show::Fds | Show::Bans) => Right::Operate,
            Self::Empty | Self::Show(_) | Self::Parameter(..) | Self::SetParameter => Right::Look,
            Self::Set { .. }
            | Self::Reload
            | Self::Restart
            | Self::Shutdown(_)
            | Self::Suspend
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Kill(_)
            | Self::Reconnect(_)
            | Self::WaitClose(_)
            | Self::Disable(_)
            | Self::Enable(_)
            | Self::KillClient(_)
            | Self::Unban(_)
            | Self::OnAll(_) => Right::Operate,
        }
    }
}

/// The text in place of a secret's value, in SHOW CONFIG, in the log and in the tag of SET.
const SECRET_SHOWN: &str = "****";

/// Returns `SET key=value`, with a secret hidden.
pub(crate) fn shown_setting(key: &str, value: &str) -> String {
    let mut settings = Scope::Global.settings().iter();
    let is_secret = settings.any(|info| info.secret && info.name.eq_ignore_ascii_case(key));
    let shown = if is_secret { SECRET_SHOWN } else { value };
    format!("SET {key}={shown}")
}

fn parameter(name: &str) -> Option<(&'static str, &'static str)> {
    PARAMETERS
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let check = |text: &str, expect| assert_eq!(Command::parse(text).ok(), expect, "{text}");
        let set = |key: &str, value: &str| {
            Some(Command::Set {
                key: key.to_owned(),
                value: value.to_owned(),
            })
        };
        check("", Some(Command::Empty));
        check(" ; ", Some(Command::Empty));
        check("show pools", Some(Command::Show(Show::Pools)));
        check("SELECT Version ;\n", Some(Command::Show(Show::Version)));
        check("\"show\" \"pools\"", Some(Command::Show(Show::Pools)));
        check(
            "show client_encoding",
            Some(Command::Parameter("client_encoding", "UTF-8")),
        );
        check("set TimeZone to 'UTC'", Some(Command::SetParameter));
        check("set query_wait_timeout=7", set("query_wait_timeout", "7"));
        check("SET a = 'x y''s'", set("a", "x y's"));
        check("reload;", Some(Command::Reload));
        check("reload app", None);
        check("show events", Some(Command::Show(Show::Events)));
        check(
            "shutdown wait_for_servers",
            Some(Command::Shutdown(Shutdown::WaitForServers)),
        );
        check("shutdown now", None);
        check("show", None);
        check("show pools; show clients", None);
        check("drop table x", None);
    }

    #[test]
    fn an_empty_key_is_a_bad_argument() {
        let fault = Command::parse("set \"\" = 1").unwrap_err();
        assert_eq!(fault.to_string(), "bad arguments");
    }

    #[test]
    fn commands_as_they_are_logged() {
        let check = |text: &str, expect| {
            assert_eq!(Command::parse(text).unwrap().shown(), expect, "{text}");
        };
        check("pause app", "PAUSE app");
        check("kill;", "KILL");
        check("shutdown wait_for_clients", "SHUTDOWN WAIT_FOR_CLIENTS");
        check("set query_timeout = '5'", "SET query_timeout=5");
    }

    #[test]
    fn rights() {
        let check = |text: &str, right| {
            assert_eq!(Command::parse(text).unwrap().right(), right, "{text}");
        };
        check("SHOW CONFIG", Right::Look);
        check("SHOW FDS", Right::Operate);
        check("SHOW BANS", Right::Operate);
        check("UNBAN 10.0.0.1", Right::Operate);
        check("SET timezone = 'UTC'", Right::Look);
        check("SET pool_mode = session", Right::Operate);
        check("RELOAD", Right::Operate);
        check("SHUTDOWN", Right::Operate);
        check("RELOAD ON ALL", Right::Operate);
    }
}
