//! Tasks of the project's developers: `cargo xtask NAME`.

mod bench;
mod coverage;
mod demo;
mod docs;
mod errors;
mod instructions;
mod man;
mod plot;
mod stage;

use std::{
    env,
    io::{Write, stderr},
    process::ExitCode,
};

/// Name, one line for the list, and the function that takes the remaining arguments (the first of them is the name of
/// the task).
type Subcommand = (&'static str, &'static str, fn(Vec<String>) -> ExitCode);

const SUBCOMMANDS: &[Subcommand] = &[
    (
        "docs",
        "the pages made of the settings, the tests' marks and the errors; --check says if they are stale",
        docs::run,
    ),
    (
        "demo",
        "1,000 clients on a PostgreSQL for 100: without pgweir and with it",
        demo::run,
    ),
    (
        "bench",
        "pgweir beside PgBouncer and haproxy: CPU time, memory, latency",
        bench::run,
    ),
    (
        "instructions",
        "what the session engine costs a transaction, counted under callgrind",
        instructions::run,
    ),
];

/// Tasks that another task runs, not a person.
const CHILDREN: &[Subcommand] = &[(
    "idle-clients",
    "many idle clients in a process",
    bench::idle_clients,
)];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let subcommand = SUBCOMMANDS
        .iter()
        .chain(CHILDREN)
        .find(|subcommand| subcommand.0 == name);
    if let Some((_, _, run)) = subcommand {
        return run(arguments);
    }
    let mut list = String::from("usage: cargo xtask NAME [OPTIONS]\n\n");
    for (name, what, _) in SUBCOMMANDS {
        list.push_str(&format!("  {name:<12} {what}\n"));
    }
    let _ = stderr().write_all(list.as_bytes());
    ExitCode::from(2)
}
