//! Errors of clients that are logged in.

use pgweir_core::{
    fault::{Fault, Words},
    pin::Pins,
};

use super::{Entry, entry};

/// Clients that get no server in time.
pub(super) fn waiting() -> Vec<Entry> {
    vec![
        entry(
            Fault::QueryWaitTimeout(None),
            "The client waited for a server for longer than `query_wait_timeout`. The DETAIL says which limit was reached, \
             how many servers are in use and in which state, and for how long.",
            "`idle in transaction` points to an application that holds transactions open; `busy` to slow queries, or to a \
             pool that is too small; `idle and pinned` to sessions that keep their servers (`SHOW PINS`). See \
             [sizing a pool](sizing.md).",
        ),
        entry(
            Fault::QueryTimeoutInQueue,
            "The client waited for a server for longer than `query_timeout`, which counts that time too.",
            "As above; or raise `query_timeout`.",
        ),
        entry(
            Fault::ServersShutDown,
            "pgweir is about to end (SIGINT, or `SHUTDOWN WAIT_FOR_SERVERS`) and lends no more servers.",
            "Connect again, to the process that takes its place. An [online restart](restart.md) spares clients this.",
        ),
    ]
}

/// Servers and the way to them.
pub(super) fn servers() -> Vec<Entry> {
    let words = Words {
        severity: "FATAL".to_owned(),
        code: "57P01".to_owned(),
        message:
            "terminating connection due to administrator command (or other words of the server)"
                .to_owned(),
        detail: None,
        hint: None,
    };
    let refused = |what: &str| Fault::ServerRefused {
        what: what.to_owned(),
        detail: String::new(),
    };
    let failing = |what: &str| Fault::ServerLogin(Box::new((what.to_owned(), None)));
    vec![
        entry(
            failing("REASON"),
            "The last login to the server failed for this reason, and pgweir waits for `server_login_retry` before the \
             next one.",
            "Repair what the reason names: a wrong password, a database that is not there, a server that is down. Then \
             `RECONNECT` or `RELOAD` lets pgweir try again at once.",
        ),
        entry(
            refused("REASON"),
            "pgweir could not log in to the server: it is down, or the way to it is blocked. The DETAIL has the address and \
             the system's error.",
            "Check `host` and `port`, and that PostgreSQL runs: `pgweir check --reach pgweir.ini`.",
        ),
        entry(
            refused("wrong password type"),
            "The server asks for a password, and pgweir has none that fits: an md5 secret can't answer SCRAM, and a \
             client that logged in without a password has left none.",
            "Put the password in clear text into `auth_file`, or `user=` and `password=` into the database's entry. See \
             [what a server gets](authentication.md#servers).",
        ),
        entry(
            Fault::OwnServer("REASON".to_owned()),
            "The client needs a server of its own (replication, `bypass_users`), and the login there failed. The DETAIL \
             has the reason.",
            "Repair what the reason names. For replication the user needs `REPLICATION`, and `pg_hba.conf` a line.",
        ),
        entry(
            Fault::ServerSaid(words),
            "The server has ended the connection, and these are its own words.",
            "See PostgreSQL's log. The client may connect again.",
        ),
        entry(
            Fault::ServerCrashed,
            "The server connection broke in the middle of a transaction or a query: PostgreSQL was stopped, a process of \
             its was killed, or the network failed.",
            "Look into PostgreSQL's log. Whether the last statement took effect is not known: look before you repeat it.",
        ),
        entry(
            Fault::ServerProtocol("WHAT IT DID".to_owned()),
            "What answered is not PostgreSQL, or something in between changes the bytes.",
            "Check `host` and `port`. If it is PostgreSQL, this is a fault of pgweir: report it, please.",
        ),
        entry(
            Fault::ServerUnclean("REASON".to_owned()),
            "pgweir could not remove from a server what another client had left in the session; it has closed that server.",
            "Repeat the request. If it comes again, look into the log and report it, please.",
        ),
        entry(
            Fault::DatabaseChanged,
            "The server connection is out of date (after `RECONNECT`, or a change of host or port), and this client's \
             connection depends on it.",
            "Connect again.",
        ),
        entry(
            Fault::ListenerLost("REASON".to_owned()),
            "The client listens, and the connection on which pgweir listens for it was lost. Notifications may have been \
             missed.",
            "Connect again, `LISTEN` again, and look at the tables that the notifications tell of.",
        ),
    ]
}

/// What took too long or is too much.
pub(super) fn limits() -> Vec<Entry> {
    vec![
        entry(
            Fault::ClientIdle,
            "The client was idle for longer than `client_idle_timeout`.",
            "Let the application's own pool close idle connections earlier, or raise it.",
        ),
        entry(
            Fault::IdleTransaction,
            "The client was idle in a transaction for longer than `idle_transaction_timeout`.",
            "Find the place in the application that does not commit: `SHOW CLIENTS` shows `idle in transaction`.",
        ),
        entry(
            Fault::TransactionTimeout,
            "The transaction lasted longer than `transaction_timeout`.",
            "Make transactions shorter, or raise it for this user under `[users]`.",
        ),
        entry(
            Fault::QueryTimeout,
            "The query ran longer than `query_timeout`; it was cancelled.",
            "Make the query faster, or raise it for this user under `[users]`.",
        ),
        entry(
            Fault::PinTimeout(Pins::default()),
            "The client kept a server for what its session holds (a temporary table, an advisory lock, ...), and was idle \
             for longer than `pin_timeout`. The DETAIL names what it was.",
            "Drop, close or unlock it when it is not needed any more, or raise `pin_timeout`.",
        ),
        entry(
            Fault::NotificationBacklog,
            "The notifications that wait for this client take more than `notification_backlog`: it does not read, or is in \
             a long transaction.",
            "Read notifications faster, keep the transactions of clients that listen short, or raise it.",
        ),
        entry(
            Fault::TooManyStatements,
            "The client's prepared statements take more than `max_client_prepared_bytes`.",
            "An application that prepares a new text each time should use parameters, or close statements; else raise it.",
        ),
        entry(
            Fault::StatementTooLong,
            "A single prepared statement is longer than `max_client_prepared_bytes`.",
            "Raise it, or use `COPY` for large amounts of data.",
        ),
    ]
}

/// By command, signal or change of the configuration.
pub(super) fn ended() -> Vec<Entry> {
    let again = "Connect again.";
    vec![
        entry(Fault::ShuttingDown, "pgweir is about to end.", again),
        entry(
            Fault::TakeoverTimeout,
            "After an online restart the client stayed with the old process (in a transaction, over TLS, ...) until \
             `takeover_timeout`.",
            "Connect again; the new process answers. See [clients that stay](restart.md#clients-that-stay-with-the-old-process).",
        ),
        entry(
            Fault::Killed,
            "An operator has given the command `KILL` or `KILL_CLIENT`.",
            again,
        ),
        entry(
            Fault::Terminated,
            "Another client has called `pg_terminate_backend` with this client's pid.",
            again,
        ),
        entry(
            Fault::SuspendTimeout,
            "After `SUSPEND` the connection was in the middle of something for longer than `suspend_timeout`.",
            again,
        ),
        entry(
            Fault::DatabaseRemoved,
            "The database's entry was taken out of the configuration.",
            "Connect to a database that is there, or put the entry back.",
        ),
    ]
}

/// Errors of statements that a pooled session does not support.
pub(super) fn statements() -> Vec<Entry> {
    let refused = Words {
        severity: "FATAL".to_owned(),
        code: "22023".to_owned(),
        message: "role \"NAME\" does not exist (or other words of the server)".to_owned(),
        detail: None,
        hint: None,
    };
    vec![
        entry(
            Fault::StatementMode,
            "`pool_mode = statement` gives the server back after each statement.",
            "Use `pool_mode = transaction` for this database or user.",
        ),
        entry(
            Fault::SimpleQuery,
            "`disable_pqexec` is set, and the client has sent a simple query.",
            "Use parameters (the extended query protocol), or take `disable_pqexec` out.",
        ),
        entry(
            Fault::SettingRefused(Box::new(refused)),
            "The session has set something that the server no longer accepts, since the role was dropped or the privilege was revoked. Nothing runs without a setting that the client has made, so the connection ends.",
            "Connect again. Keep roles and the like for as long as sessions use them.",
        ),
        entry(
            Fault::StalePlan,
            "A table has changed under a prepared statement, and the client was told of other columns. PostgreSQL says the \
             same without a pooler, so that drivers do not misread a row.",
            "Repeat the transaction, or prepare the statement again; drivers do so by themselves after this error. With \
             `SELECT *`, name the columns.",
        ),
        entry(
            Fault::NoSuchStatement,
            "With `session_state = off`, as in PgBouncer: the client names a prepared statement that pgweir has not seen.",
            "Use `session_state = transparent`, where this is PostgreSQL's own error and the connection stays.",
        ),
        entry(
            Fault::StatementExists,
            "With `session_state = off`, as in PgBouncer: the client prepares a statement under a name that it has already \
             used.",
            "Use `session_state = transparent`, where this is PostgreSQL's own error and the connection stays.",
        ),
        entry(
            Fault::CommandCanceled,
            "The client was cancelled while it waited for a server, or while a console command waited.",
            "Nothing: somebody has asked for it.",
        ),
        entry(
            Fault::NotSupported("WHAT"),
            "PostgreSQL can do this, and pgweir can't yet.",
            "Connect to PostgreSQL directly for it.",
        ),
    ]
}
