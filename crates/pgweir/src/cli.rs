//! The command line: PgBouncer's flags.

use std::{path::PathBuf, process::ExitCode};

use clap::{ArgAction, Parser, Subcommand};

use crate::{drain::DrainOptions, top::TopOptions};

/// A connection pooler for PostgreSQL.
///
/// Reads PgBouncer's configuration. With a URL instead of a file it listens on 127.0.0.1:6432
/// and pools connections to that database in transaction mode.
#[derive(Debug, Parser)]
#[command(
    name = "pgweir",
    version,
    about,
    after_help = "Say --help for the settings of the ini file.",
    after_long_help = pgweir_config::docs::help(),
    disable_help_flag = true,
    disable_version_flag = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true
)]
#[command(
    override_usage = "pgweir [FLAGS] pgweir.ini\n       pgweir postgres://user[:password]@host[:port]/database\n       \
                      pgweir check [--reach] pgweir.ini\n       pgweir import [-o DIR] pgcat.toml\n       \
                      pgweir drain [--delay SECONDS] [--timeout SECONDS] pgweir.ini\n       pgweir top [-h HOST] [-p PORT] [-U USER]"
)]
pub(crate) struct Cli {
    /// The configuration file, or the URL of a database.
    #[arg(value_name = "INI|URL")]
    pub(crate) target: Option<String>,

    /// Run in the background (needs pidfile, and logfile or syslog, in the file).
    #[arg(short, long)]
    pub(crate) daemon: bool,

    /// Take the place of the running process, with its sockets and its clients (online restart).
    #[arg(short = 'R', long)]
    pub(crate) reboot: bool,

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

    /// The command, if pgweir shall not run as a pooler.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Commands besides running as a pooler.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration: show its effect, ignored settings, and warnings.
    #[command(disable_help_flag = true)]
    Check {
        /// The configuration file.
        ini: PathBuf,
        /// Also connect to each server's address, once; the exit code is 1 if one can't be reached.
        #[arg(long)]
        reach: bool,
        /// Print this help.
        #[arg(short, long, action = ArgAction::Help)]
        help: Option<bool>,
    },
    /// Convert a configuration of PgCat: print the ini file and the userlist.
    #[command(disable_help_flag = true)]
    Import {
        /// PgCat's configuration.
        file: PathBuf,
        /// Write pgweir.ini and userlist.txt into this folder instead of printing them.
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
        /// Print this help.
        #[arg(short, long, action = ArgAction::Help)]
        help: Option<bool>,
    },
    /// Prepare a running pgweir for its end: make it not ready, then let its clients leave between their transactions.
    Drain(DrainOptions),
    /// Show what a running pgweir or PgBouncer does, in the terminal: pools, waiting clients, pins, hosts, events.
    Top(TopOptions),
}

impl Cli {
    /// Parses the command line.
    ///
    /// # Errors
    /// The exit code, if the process has to end: 0 after `--help` and `--version`, 1 after an invalid command line.
    pub(crate) fn from_command_line() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|said| {
            // The terminal may be gone.
            let _ = said.print();
            if said.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        })
    }
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
            format!("{}\n", pgweir_core::console::VERSION),
            "--version and SHOW VERSION agree"
        );
    }

    #[test]
    fn commands_and_files_are_distinguished() {
        let cli = Cli::parse_from(["pgweir", "check", "--reach", "a.ini"]);
        assert!(matches!(
            cli.command,
            Some(Command::Check { reach: true, .. })
        ));
        let cli = Cli::parse_from(["pgweir", "import", "-o", "/etc/x", "pgcat.toml"]);
        let Some(Command::Import { output, .. }) = cli.command else {
            panic!("no import")
        };
        assert_eq!(output, Some(PathBuf::from("/etc/x")));
        assert!(Cli::try_parse_from(["pgweir", "check"]).is_err());
        let cli = Cli::parse_from(["pgweir", "./check"]);
        assert!(cli.command.is_none() && cli.target.as_deref() == Some("./check"));
    }

    #[test]
    fn the_help_knows_the_settings() {
        let help = Cli::command().render_long_help().to_string();
        for word in [
            "--daemon",
            "-u",
            "pool_mode",
            "max_client_conn",
            "[databases]",
        ] {
            assert!(help.contains(word), "{word}");
        }
    }

    /// Compares pgweir(1) with the file. `PGWEIR_WRITE=1 cargo test -p pgweir manual_page` writes the file.
    #[test]
    fn the_manual_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/man/pgweir.1");
        let now = manual_page();
        if std::env::var_os("PGWEIR_WRITE").is_some() {
            std::fs::write(path, &now).expect("written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            now == written,
            "pgweir.1 is stale: PGWEIR_WRITE=1 cargo test -p pgweir manual_page"
        );
    }

    fn manual_page() -> String {
        // pgweir.ini(5) has the settings.
        let command = Cli::command().after_help(None).after_long_help(None);
        let commands: Vec<_> = command.get_subcommands().cloned().collect();
        let man = clap_mangen::Man::new(command)
            .date("")
            .manual("")
            .source("");
        let mut page = b".\\\" Generated from crates/pgweir/src/cli.rs by a test there.\n".to_vec();
        man.render_title(&mut page)
            .and_then(|()| man.render_name_section(&mut page))
            .and_then(|()| man.render_synopsis_section(&mut page))
            .and_then(|()| man.render_description_section(&mut page))
            .and_then(|()| man.render_options_section(&mut page))
            .expect("written to memory");
        page.extend_from_slice(b".SH COMMANDS\n");
        for command in commands {
            let about = command.get_about().cloned().unwrap_or_default();
            page.extend_from_slice(format!(".SS {}\n{about}\n", command.get_name()).as_bytes());
            let mut options = Vec::new();
            clap_mangen::Man::new(command)
                .render_options_section(&mut options)
                .expect("written to memory");
            let options = String::from_utf8(options).expect("text");
            page.extend_from_slice(options.replace(".SH OPTIONS\n", "").as_bytes());
        }
        let mut page = String::from_utf8(page).expect("text");
        page.push_str(include_str!("../../../packaging/man/pgweir.1.end"));
        page
    }
}
