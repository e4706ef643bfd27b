//! pgweir: a connection pooler for PostgreSQL.
//!
//! The shell around the core: sockets, files, signals and the command line.

mod check;
mod cli;
mod clock;
mod control;
mod http;
mod import;
mod log;
mod net;
mod placed;
mod process;
mod quickstart;
mod startup;
mod takeover;
mod tls;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use cli::Command;

fn main() -> ExitCode {
    // Before anything is read that may be a secret, be it the command line.
    process::forbid_core_dumps();
    let cli = match cli::Cli::from_command_line() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let ended = match &cli.command {
        Some(Command::Check { ini, reach }) => Ok(check::run(ini, *reach)),
        Some(Command::Import { file, output }) => import::run(file, output.as_deref())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        None => startup::run(&cli).map_err(|error| error.to_string()),
    };
    ended.unwrap_or_else(|error| {
        // Before there is a log, and for whoever sits at the terminal.
        // Nobody may listen any more: the process that has started us for an online restart may be gone.
        let _ = writeln!(io::stderr(), "{error}");
        ExitCode::FAILURE
    })
}
