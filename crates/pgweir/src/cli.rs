//! The command line: PgBouncer's flags.

use clap::{ArgAction, Parser};

/// A connection pooler for PostgreSQL.
///
/// Reads PgBouncer's configuration. With a URL instead of a file it listens on 127.0.0.1:6432
/// and pools connections to that database in transaction mode.
#[derive(Debug, Parser)]
#[command(
    name = "pgweir",
    version,
    about,
    disable_help_flag = true,
    disable_version_flag = true
)]
#[command(
    override_usage = "pgweir [FLAGS] pgweir.ini\n       pgweir postgres://user[:password]@host[:port]/database"
)]
pub(crate) struct Cli {
    /// The configuration file, or the URL of a database.
    #[arg(value_name = "INI|URL")]
    pub(crate) target: Option<String>,

    /// Run in the background (needs "logfile" and "pidfile" in the file).
    #[arg(short, long)]
    pub(crate) daemon: bool,

    /// Do not log to standard error.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// More detail in the log; can be repeated.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Become this user (when started as root).
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Print the version.
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,

    /// Print this help.
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_pgbouncers() {
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["pgweir", "-d", "-q", "-vv", "-u", "postgres", "pgweir.ini"]);
        assert!(cli.daemon && cli.quiet && cli.verbose == 2);
        assert_eq!(
            (cli.user.as_deref(), cli.target.as_deref()),
            (Some("postgres"), Some("pgweir.ini"))
        );
        assert_eq!(
            Cli::command().render_version(),
            format!("pgweir {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
}
