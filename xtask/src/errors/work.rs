//! Errors of clients that are logged in.

use pgweir_core::base::{
    fault::{Fault, ServerError},
    pin::Pins,
};

use super::{Entry, entry};

/// The cause of the error of a transaction whose outcome is unknown.
const OUTCOME_UNKNOWN: &str = "The server connection was lost while the server may have been committing: a COMMIT, or a statement outside of a \
    transaction block that may change something, was sent, and the server has not confirmed it. If `statement_statistics` is 0, pgweir does not know \
    which statements were sent, and counts each unanswered statement as one that may have changed something. REASON \
    is the message of an error with SQLSTATE 08006.";

/// Errors of clients that get no server in time.
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
            "The client waited for a server for longer than the global `query_timeout`, which also limits the wait.",
            "As for `query_wait_timeout`; or raise `query_timeout`.",
        ),
        entry(
            Fault::ServersShutDown,
            "pgweir is shutting down (SIGINT, or `SHUTDOWN WAIT_FOR_SERVERS`), and waiting clients get no servers any more.",
            "Connect again, to the process that replaces it. An [online restart](restart.md) avoids this.",
        ),
    ]
}

/// Errors about servers, and about the connections to them.
pub(super) fn servers() -> Vec<Entry> {
    let words = ServerError {
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
            "Remove the cause, such as a wrong password, a missing database, or a server that is down. Then \
             `RECONNECT` or `RELOAD` lets pgweir try again at once.",
        ),
        entry(
            refused("REASON"),
            "pgweir could not log in to the server: it is down, or the network blocks the connection. The DETAIL has the address and \
             the system's error.",
            "Check `host` and `port`, and that PostgreSQL runs: `pgweir check --reach pgweir.ini`.",
        ),
        entry(
            refused("wrong password type"),
            "The server asks for a password, and pgweir has no suitable one: SCRAM needs more than an md5 secret, and pgweir has \
             no password of a client that logged in without one.",
            "Put the password in clear text into `auth_file`, or `user=` and `password=` into the database's entry. \
             See [passwords for servers](authentication.md#servers).",
        ),
        entry(
            Fault::OwnServer("REASON".to_owned()),
            "The client needs an exclusive server (replication, `bypass_users`), and the login to the server failed. The DETAIL \
             has the reason.",
            "Remove the cause. For replication the user needs `REPLICATION`, and `pg_hba.conf` a line.",
        ),
        entry(
            Fault::ServerSaid(Box::new(words)),
            "The server has ended the connection with this error.",
            "See PostgreSQL's log. The client may connect again.",
        ),
        entry(
            Fault::ServerCrashed,
            "The server connection broke in the middle of a transaction or a query: PostgreSQL was stopped, one of its \
             processes was killed, or the network failed.",
            "See PostgreSQL's log. The transaction was rolled back: repeat it.",
        ),
        entry(
            Fault::OutcomeUnknown("REASON".to_owned()),
            OUTCOME_UNKNOWN,
            "Find out whether the transaction has taken effect before you repeat it.",
        ),
        entry(
            Fault::HostLeft("REASON"),
            "In the middle of a transaction or a query, the checks of `host_check_interval` have found that the server's host \
             does not answer any more, or that another host of the list was promoted after it.",
            "See `SHOW HOSTS`. The transaction was rolled back: repeat it.",
        ),
        entry(
            Fault::ServerProtocol("WHAT IT DID".to_owned()),
            "The program that answered is not PostgreSQL, or the network changes the bytes.",
            "Check `host` and `port`. If it is PostgreSQL, this is a bug of pgweir: please report it.",
        ),
        entry(
            Fault::ServerUnclean("REASON".to_owned()),
            "pgweir could not reset the session state that another client had left on a server, and has closed the server.",
            "Repeat the request. If the error comes again, see the log, and please report it.",
        ),
        entry(
            Fault::DatabaseChanged,
            "The server connection is out of date (after `RECONNECT`, or a change of host or port), and the client's session can't move to another server.",
            "Connect again.",
        ),
        entry(
            Fault::ListenerLost("REASON".to_owned()),
            "The client listens, and the connection on which pgweir listens for it was lost. Notifications may have been \
             missed.",
            "Connect again, `LISTEN` again, and read the tables that the notifications are about.",
        ),
    ]
}

/// Errors for requests that exceed a time or a limit.
pub(super) fn limits() -> Vec<Entry> {
    vec![
        entry(
            Fault::ClientIdle,
            "The client was idle for longer than `client_idle_timeout`.",
            "Let the application's own pool close idle connections earlier, or raise `client_idle_timeout`.",
        ),
        entry(
            Fault::PartialMessage,
            "The client stopped in the middle of a message for longer than `partial_message_timeout`: the client or the network has failed.",
            "Look for lost connections between client and pgweir. A program that fills a libpq pipeline slowly has to call `PQflush`.",
        ),
        entry(
            Fault::IdleTransaction,
            "The client was idle in a transaction for longer than `idle_transaction_timeout`.",
            "Find the place in the application that does not commit: `SHOW CLIENTS` shows `idle in transaction`.",
        ),
        entry(
            Fault::TransactionTimeout,
            "The transaction lasted longer than `transaction_timeout`.",
            "Make transactions shorter, or raise `transaction_timeout` for this user under `[users]`.",
        ),
        entry(
            Fault::QueryTimeout,
            "The query ran longer than `query_timeout`; it was cancelled.",
            "Make the query faster, or raise `query_timeout` for this user under `[users]`.",
        ),
        entry(
            Fault::PinTimeout(Pins::default()),
            "The client kept a server because of its session state (a temporary table, an advisory lock, ...), and was idle \
             for longer than `pin_timeout`. The DETAIL names the reason.",
            "Drop the table or release the lock when it is not needed any more, or raise `pin_timeout`.",
        ),
        entry(
            Fault::NotificationBacklog,
            "The notifications that wait for this client take more than `notification_backlog`: the client does not \
             read, or is in a long transaction.",
            "Read notifications faster, keep the transactions of clients that listen short, or raise `notification_backlog`.",
        ),
        entry(
            Fault::TooManyStatements,
            "The client's prepared statements take more than `max_client_prepared_bytes`.",
            "If the application prepares a new text each time, use parameters, or close statements. Otherwise raise `max_client_prepared_bytes`.",
        ),
        entry(
            Fault::StatementTooLong,
            "A single prepared statement is longer than `max_client_prepared_bytes`.",
            "Raise `max_client_prepared_bytes`, or use `COPY` for large amounts of data.",
        ),
        entry(
            Fault::OutOfMemory,
            "The memory of clients and servers has reached `memory_limit`, and the client tries to log in, or has sent a Parse of a statement that pgweir does not have yet. If the statement has more than 64 kB, the client is \
             disconnected. Everything else continues. Logins and statements are possible again below 90 % of the limit.",
            "`SHOW MEM` shows the memory by kind, and `SHOW EVENTS` when the limit was reached. The most frequent \
             cause is prepared statements: use parameters instead of new texts, close statements, lower \
             `max_client_prepared_bytes`, or raise `memory_limit`.",
        ),
    ]
}

/// Errors for clients that are disconnected by a command, a signal or a change of the configuration.
pub(super) fn ended() -> Vec<Entry> {
    let again = "Connect again.";
    vec![
        entry(Fault::ShuttingDown, "pgweir is shutting down.", again),
        entry(
            Fault::TakeoverTimeout,
            "After an online restart the client stayed with the old process (in a transaction, with an exclusive server, ...) until \
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
            "Another client has called `pg_terminate_backend` with this client's pid, or pgweir is drained (`pgweir drain`), and \
             the client was outside of a transaction.",
            again,
        ),
        entry(
            Fault::SuspendTimeout,
            "After `SUSPEND` the connection did not finish its message within `suspend_timeout`.",
            again,
        ),
        entry(
            Fault::DatabaseRemoved,
            "The database's entry was removed from the configuration.",
            "Connect to another database, or restore the entry.",
        ),
    ]
}

/// Errors of statements that a pooled session does not support.
pub(super) fn statements() -> Vec<Entry> {
    let refused = ServerError {
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
            "Use parameters (the extended query protocol), or remove `disable_pqexec`.",
        ),
        entry(
            Fault::SettingRefused(Box::new(refused)),
            "The server no longer accepts a setting of the session, because a role was dropped or a privilege was revoked. pgweir never runs statements without a setting that the client has made, so it disconnects the client.",
            "Connect again. Do not drop roles while sessions use them.",
        ),
        entry(
            Fault::StalePlan,
            "A table has changed under a prepared statement, and the client knows the statement with other columns. PostgreSQL sends \
             the same error without a pooler, so that drivers do not misread a row.",
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
            "Nothing to do: the cancellation was requested.",
        ),
        entry(
            Fault::NotSupported("WHAT"),
            "PostgreSQL supports this, but pgweir does not yet.",
            "Connect to PostgreSQL directly.",
        ),
    ]
}
