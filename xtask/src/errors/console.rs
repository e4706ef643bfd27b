//! Errors of the console, the database `pgbouncer`.

use pgweir_core::base::fault::Fault;

use super::{Entry, entry};

/// Errors of the console: missing privileges, and commands that are refused.
pub(super) fn entries() -> Vec<Entry> {
    let command = |text: &str| Fault::Command(text.to_owned());
    let paused = |what: &str| Fault::NotPaused {
        what: what.to_owned(),
        paused: vec!["NAME".to_owned()],
    };
    vec![
        entry(
            Fault::ConsoleNotAllowed,
            "The user is neither in `admin_users` nor in `stats_users`.",
            "Add the user there, or connect as `pgbouncer` over the Unix socket, as the system user that pgweir runs as.",
        ),
        entry(
            Fault::CommandNotAllowed,
            "The user is in `stats_users`, and may only run SHOW commands.",
            "Log in as one of `admin_users`.",
        ),
        entry(
            Fault::ConsoleExtended,
            "The client sends commands with the extended query protocol.",
            "Use simple queries: `psql` does; in pgjdbc `preferQueryMode=simple`, in psycopg `ClientCursor`, in pgx \
             `QueryExecModeSimpleProtocol`.",
        ),
        entry(
            command("invalid command 'TEXT', use SHOW HELP;"),
            "The console has its own commands, and knows no SQL.",
            "`SHOW HELP` lists them, with an explanation of each.",
        ),
        entry(
            command("bad arguments"),
            "A command has more arguments than it takes.",
            "`SHOW HELP` has its syntax.",
        ),
        entry(
            command("a database is required"),
            "`DISABLE` and `ENABLE` need the name of a database.",
            "Add the name: `DISABLE NAME`.",
        ),
        entry(
            command("cannot pause admin db: pgbouncer"),
            "The command does not work on the console's own database; other commands have similar messages.",
            "Name another database.",
        ),
        entry(
            command("invalid client pointer supplied"),
            "`KILL_CLIENT` takes an id as `SHOW CLIENTS` (`ptr`) and the log (`C-0x...`) show it.",
            "Copy the id from there.",
        ),
        entry(
            command("client not found"),
            "The client that `KILL_CLIENT` names has disconnected meanwhile.",
            "Nothing to do, or use another id from `SHOW CLIENTS`.",
        ),
        entry(
            command("no failed logins of: NAME"),
            "`UNBAN` names an address or a user that `SHOW BANS` does not show.",
            "`SHOW BANS` has the addresses and users. `SHOW BANS` shows IPv6 addresses as networks; `UNBAN` takes any address of a network.",
        ),
        entry(
            command("already suspended/paused"),
            "`PAUSE` or `SUSPEND` is in effect already.",
            "`RESUME` ends it.",
        ),
        entry(
            command("cannot suspend with paused databases"),
            "Some databases are paused, so `SUSPEND` would wait for their clients without end.",
            "`RESUME NAME` for each of them first; `SHOW DATABASES` shows them.",
        ),
        entry(
            paused("pooler is not paused/suspended"),
            "`RESUME` without a name ends a `PAUSE` without a name, and there is none.",
            "If single databases are paused, name them: the hint lists them.",
        ),
        entry(
            Fault::ReloadFailed(String::new()),
            "The configuration has a mistake. The DETAIL and the log have its file and line.",
            "Correct it and `RELOAD` again. Until then the old configuration stays in effect. `pgweir check` finds mistakes before a RELOAD.",
        ),
        entry(
            Fault::SetFailed(String::new()),
            "`SET` on the console was refused: the DETAIL says what is wrong with the key or the value, or that a restart \
             is needed.",
            "Correct it; or change the file and do an [online restart](restart.md).",
        ),
    ]
}

/// Errors of commands with `ON ALL`.
pub(super) fn entries_on_all() -> Vec<Entry> {
    let command = |text: &str| Fault::Command(text.to_owned());
    vec![
        entry(
            command("the command cannot run ON ALL"),
            "`ON ALL` is for `PAUSE`, `RESUME`, `KILL`, `RECONNECT`, `WAIT_CLOSE`, `DISABLE`, `ENABLE`, `RELOAD` and `UNBAN`.",
            "Give other commands on each node.",
        ),
        entry(
            command("ON ALL needs a fleet: fleet_etcd is not set"),
            "The process does not know any other nodes.",
            "Leave `ON ALL` out, or set `fleet_etcd` ([Several pgweir processes](sizing.md#several-pgweir-processes)).",
        ),
        entry(
            command("cannot pass the command on through etcd: REASON"),
            "etcd has not answered or has refused the command. If etcd has not answered, some nodes may have carried the command out.",
            "Solve the problem with etcd, and look at each node (`SHOW STATE`, `SHOW DATABASES`) before you repeat the command.",
        ),
    ]
}
