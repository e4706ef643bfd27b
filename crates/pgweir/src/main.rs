//! pgweir: a connection pooler for PostgreSQL.
//!
//! The shell around the core: sockets, files, signals and the command line.

mod cli;
mod clock;
mod control;
mod log;
mod net;
mod process;
mod quickstart;
mod startup;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::Cli::from_command_line() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match startup::run(&cli) {
        Ok(code) => code,
        Err(error) => {
            // Before there is a log, and for whoever sits at the terminal.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
