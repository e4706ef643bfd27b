//! The console's language.

use crate::{Shutdown, fault::Fault};

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Nothing but blanks and semicolons.
    Empty,
    Show(Show),
    /// SHOW of a parameter that drivers ask for: its name and value.
    Parameter(&'static str, &'static str),
    Reload,
    Shutdown(Shutdown),
}

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Clients,
    Config,
    Databases,
    Help,
    Pools,
    Servers,
    Stats,
    Version,
}

impl Show {
    const ALL: [(&'static str, Self); 8] = [
        ("CLIENTS", Self::Clients),
        ("CONFIG", Self::Config),
        ("DATABASES", Self::Databases),
        ("HELP", Self::Help),
        ("POOLS", Self::Pools),
        ("SERVERS", Self::Servers),
        ("STATS", Self::Stats),
        ("VERSION", Self::Version),
    ];

    /// The text of SHOW HELP.
    pub(crate) fn help() -> String {
        let shows: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
        format!(
            "Console usage\n\tSHOW {}\n\tRELOAD\n\tSHUTDOWN\n\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS",
            shows.join("|")
        )
    }
}

/// Parameters that drivers ask for at the start, with fixed answers as in PgBouncer.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
];

impl Command {
    /// Reads a command.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let invalid = || Fault::Command(format!("invalid command '{text}', use SHOW HELP;"));
        let words: Vec<String> = text
            .trim_end_matches(|c: char| c == ';' || c.is_whitespace())
            .split_whitespace()
            .map(str::to_ascii_uppercase)
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words.as_slice() {
            [] => Self::Empty,
            ["SHOW" | "SELECT", what] => Self::show(what).ok_or_else(invalid)?,
            ["RELOAD"] => Self::Reload,
            ["SHUTDOWN"] => Self::Shutdown(Shutdown::Immediate),
            ["SHUTDOWN", "WAIT_FOR_SERVERS"] => Self::Shutdown(Shutdown::WaitForServers),
            ["SHUTDOWN", "WAIT_FOR_CLIENTS"] => Self::Shutdown(Shutdown::WaitForClients),
            _ => return Err(invalid()),
        })
    }

    fn show(what: &str) -> Option<Self> {
        let parameter = PARAMETERS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(what));
        let show = Show::ALL.iter().find(|(name, _)| *name == what);
        show.map(|(_, show)| Self::Show(*show))
            .or(parameter.map(|(name, value)| Self::Parameter(name, value)))
    }

    /// May `stats_users` do this?
    pub(crate) fn is_harmless(self) -> bool {
        !matches!(self, Self::Reload | Self::Shutdown(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let check = |text: &str, expect| assert_eq!(Command::parse(text).ok(), expect, "{text}");
        check("", Some(Command::Empty));
        check(" ; ", Some(Command::Empty));
        check("show pools", Some(Command::Show(Show::Pools)));
        check("SELECT Version ;\n", Some(Command::Show(Show::Version)));
        check(
            "show client_encoding",
            Some(Command::Parameter("client_encoding", "UTF8")),
        );
        check("reload;", Some(Command::Reload));
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
    fn rights() {
        assert!(Command::Show(Show::Config).is_harmless());
        assert!(!Command::Reload.is_harmless());
        assert!(!Command::Shutdown(Shutdown::Immediate).is_harmless());
    }
}
