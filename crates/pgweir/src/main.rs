//! pgweir: a connection pooler for PostgreSQL.
//!
//! This crate does the input and output for the crate `pgweir-core`: sockets, files, signals and the command line.

mod check;
mod cli;
mod clock;
mod console_link;
mod control;
mod drain;
mod http;
mod import;
mod log;
mod net;
mod otlp;
mod process;
mod quickstart;
mod setting_errors;
mod startup;
mod takeover;
mod tls;
mod top;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use cli::Command;

fn main() -> ExitCode {
    // This comes first, since everything that is read later may be secret, even the command line.
    process::forbid_core_dumps();
    let cli = match cli::Cli::from_command_line() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let ended = match &cli.command {
        Some(Command::Check { ini, reach, .. }) => Ok(check::run(ini, *reach)),
        Some(Command::Import { file, output, .. }) => import::run(file, output.as_deref())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        Some(Command::Drain(options)) => drain::run(options).map_err(|error| error.to_string()),
        Some(Command::Top(options)) => top::run(options)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
        None => startup::run(&cli).map_err(|error| error.to_string()),
    };
    ended.unwrap_or_else(|error| {
        // There is no log yet, and an operator may sit at the terminal. The write may fail: the process that started
        // this one for an online restart may be gone.
        let _ = writeln!(io::stderr(), "{error}");
        ExitCode::FAILURE
    })
}
