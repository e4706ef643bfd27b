//! The console's commands, and who may give them.

use super::grammar::{Sentence, parse};
use crate::{Shutdown, fault::Fault};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Nothing but blanks and a semicolon.
    Empty,
    Show(Show),
    /// SHOW of a parameter that drivers ask for: its name and value.
    Parameter(&'static str, &'static str),
    /// SET of such a parameter: nothing happens.
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
    /// Of this database, or of all if it is empty; so are the others.
    Pause(String),
    Resume(String),
    Kill(String),
    Reconnect(String),
    WaitClose(String),
    /// Of this database, which has to be named.
    Disable(String),
    Enable(String),
    /// The client's id, as it was written.
    KillClient(String),
}

/// Who may give a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// `stats_users` too.
    Look,
    /// `admin_users` only.
    Operate,
}

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    ActiveSockets,
    AuthCache,
    Catalog,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Fds,
    Help,
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
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
}

/// Who has to be asked for a SHOW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody: it is known here.
    Here,
    /// Every worker.
    Workers,
    /// The control thread, and then every worker.
    Names,
}

impl Show {
    const ALL: &[(&'static str, Self)] = &[
        ("ACTIVE_SOCKETS", Self::ActiveSockets),
        ("AUTH_CACHE", Self::AuthCache),
        ("CATALOG", Self::Catalog),
        ("CLIENTS", Self::Clients),
        ("CONFIG", Self::Config),
        ("DATABASES", Self::Databases),
        ("DNS_HOSTS", Self::DnsHosts),
        ("DNS_ZONES", Self::DnsZones),
        ("FDS", Self::Fds),
        ("HELP", Self::Help),
        ("INTERNAL", Self::Internal),
        ("LISTENERS", Self::Listeners),
        ("LISTS", Self::Lists),
        ("MEM", Self::Mem),
        ("OPAQUE", Self::Opaque),
        ("PEERS", Self::Peers),
        ("PEER_POOLS", Self::PeerPools),
        ("PINS", Self::Pins),
        ("PIN_STATS", Self::PinStats),
        ("POOLS", Self::Pools),
        ("SERVERS", Self::Servers),
        ("SOCKETS", Self::Sockets),
        ("STATE", Self::State),
        ("STATS", Self::Stats),
        ("STATS_AVERAGES", Self::StatsAverages),
        ("STATS_TOTALS", Self::StatsTotals),
        ("TOTALS", Self::Totals),
        ("USERS", Self::Users),
        ("VERSION", Self::Version),
    ];

    pub(crate) fn source(self) -> Source {
        match self {
            Self::AuthCache
            | Self::Catalog
            | Self::Config
            | Self::Help
            | Self::Opaque
            | Self::Peers
            | Self::State
            | Self::Version => Source::Here,
            Self::DnsHosts | Self::DnsZones | Self::Lists => Source::Names,
            _ => Source::Workers,
        }
    }

    /// What SHOW HELP lists.
    pub(crate) fn help() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
        let mut text = String::new();
        for line in names.chunks(6) {
            text += &format!("\n\tSHOW {}", line.join("|"));
        }
        for command in COMMANDS {
            text += &format!("\n\t{command}");
        }
        text
    }
}

/// The other commands, as SHOW HELP has them.
const COMMANDS: [&str; 15] = [
    "SET key = value",
    "RELOAD",
    "PAUSE [<db>]",
    "RESUME [<db>]",
    "DISABLE <db>",
    "ENABLE <db>",
    "RECONNECT [<db>]",
    "KILL [<db>]",
    "KILL_CLIENT <client_id>",
    "WAIT_CLOSE [<db>]",
    "SUSPEND",
    "RESTART",
    "SHUTDOWN",
    "SHUTDOWN WAIT_FOR_SERVERS",
    "SHUTDOWN WAIT_FOR_CLIENTS",
];

/// Parameters that drivers ask for at the start, with fixed answers as in PgBouncer.
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
            _ => return None,
        })
    }

    fn show(what: &str) -> Option<Self> {
        let show = Show::ALL
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(what));
        show.map(|(_, show)| Self::Show(*show))
            .or(parameter(what).map(|(name, value)| Self::Parameter(name, value)))
    }

    /// Who may give it: the one place that says so.
    pub(crate) fn right(&self) -> Right {
        match self {
            // It shows how the process is connected, to each side.
            Self::Show(Show::Fds) => Right::Operate,
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
            | Self::KillClient(_) => Right::Operate,
        }
    }
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
    fn rights() {
        let check = |text: &str, right| {
            assert_eq!(Command::parse(text).unwrap().right(), right, "{text}");
        };
        check("SHOW CONFIG", Right::Look);
        check("SHOW FDS", Right::Operate);
        check("SET timezone = 'UTC'", Right::Look);
        check("SET pool_mode = session", Right::Operate);
        check("RELOAD", Right::Operate);
        check("SHUTDOWN", Right::Operate);
    }
}
