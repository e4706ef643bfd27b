//! Errors before a client is logged in.

use std::sync::Arc;

use pgweir_auth::{LdapOptions, PamOptions};
use pgweir_core::{
    Service, TlsFault,
    base::{fault::Fault, fault::LoginFault},
};
use pgweir_wire::{BadLength, ProtocolVersion, StartupError};

use super::{Entry, entry};

/// Errors for users who may not log in.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = passwords();
    entries.extend(services());
    entries.extend(names());
    entries.extend(places());
    entries
}

fn passwords() -> Vec<Entry> {
    vec![
        entry(
            Fault::Password,
            "The password is wrong, or there is no such user: pgweir does not say which. The log names the pool and the \
             user.",
            "Compare the user's line in `auth_file` with what the client sends; with `auth_query`, run the query by hand. \
             An md5 secret needs `auth_type = md5`. After a change of `auth_file`, `RELOAD`.",
        ),
        entry(
            Fault::Sasl,
            "The password is wrong, or there is no such user, and the client logs in by SCRAM.",
            "As for `password authentication failed`. A user whose secret in `auth_file` begins with `md5` can't log in by SCRAM: store the password or \
             the `SCRAM-SHA-256$...` secret.",
        ),
        entry(
            Fault::Trust,
            "`auth_type = trust` asks for no password, but the user still has to exist.",
            "Add the user to `auth_file` (`\"user\" \"\"`), or use `auth_query`.",
        ),
        entry(
            Fault::Login(LoginFault::NoMethod),
            "`auth_type = hba`, and no line of `auth_hba_file` matches the client's address, user and database.",
            "Add a line that matches this client. The first line that matches decides.",
        ),
        entry(
            Fault::Login(LoginFault::Rejected),
            "A line of `auth_hba_file` with the method `reject` matches the client.",
            "To accept the client, put a line for it above this one.",
        ),
        entry(
            Fault::Login(LoginFault::Peer),
            "With the method `peer`, the system user of the client's process must have the name of the database user, and \
             the names differ.",
            "Connect as that system user, or map the names in `auth_ident_file` (`map=` in the rule).",
        ),
        entry(
            Fault::Login(LoginFault::Certificate),
            "`auth_type = cert`, and the client has no certificate, or one with another name.",
            "The certificate's common name or a DNS name must be the user's; in a rule, `map=` allows others. Set \
             `sslcert` and `sslkey` in the client.",
        ),
        entry(
            Fault::Login(LoginFault::Banned),
            "`auth_failure_limit` logins of this user from this address have failed within `auth_failure_window`, so for \
             `auth_ban_time` no password is accepted. `SHOW BANS` shows it.",
            "Correct the password in the client, and wait, or run `UNBAN NAME` or `UNBAN ADDRESS` on the console.",
        ),
        entry(
            Fault::Login(LoginFault::Misconfigured),
            "pgweir can't look users up: `auth_user`, `auth_query` or `auth_dbname` do not fit together, or the query \
             failed.",
            "The log has the reason.",
        ),
        entry(
            Fault::Login(LoginFault::AuthDatabaseDisabled("NAME".to_owned())),
            "`auth_query` runs in a database that an operator has disabled.",
            "`ENABLE NAME` on the console.",
        ),
        entry(
            Fault::NoForcedUser,
            "With `auth_type = any`, pgweir does not know who the client is. So it can't log in to PostgreSQL as the client's user, and needs another one.",
            "Give the database's entry a `user=`.",
        ),
    ]
}

/// Methods that ask another program for the password. Their options do not matter here.
fn services() -> impl Iterator<Item = Entry> {
    let ldap = ["ldapserver=localhost", "ldapprefix=cn="].into_iter();
    let ldap = LdapOptions::parse(ldap).map(|options| {
        entry(
            Fault::Login(LoginFault::Service(Service::Ldap(Arc::new(options)))),
            "The LDAP server has refused the password, or could not be asked.",
            "The line before this error in the log has the reason. See [who may log in](authentication.md#ldap).",
        )
    });
    let pam = PamOptions::parse([].into_iter()).map(|options| {
        entry(
            Fault::Login(LoginFault::Service(Service::Pam(Arc::new(options)))),
            "PAM has refused the password, or its service is not set up.",
            "The line before this error in the log has the reason. See [who may log in](authentication.md#pam).",
        )
    });
    ldap.into_iter().chain(pam)
}

fn names() -> Vec<Entry> {
    vec![
        entry(
            Fault::NoSuchDatabase("NAME".to_owned()),
            "The configuration has no entry for this database, and no `*` entry. A console command with the \
             name of an unknown database gets the same error.",
            "Add `NAME = host=...` under `[databases]`, or connect to an existing database: `SHOW DATABASES` lists \
             them.",
        ),
        entry(
            Fault::DatabaseDisabled("NAME".to_owned()),
            "An operator has given the command `DISABLE NAME`.",
            "`ENABLE NAME` on the console.",
        ),
        entry(
            Fault::NoUserName,
            "The client's first packet names no user.",
            "Set the user in the client's connection string.",
        ),
        entry(
            Fault::BadName("user"),
            "The name of the user or of the database is longer than PostgreSQL's names can be, or is not UTF-8.",
            "Correct the name in the client's connection string.",
        ),
        entry(
            Fault::UnsupportedParameter("NAME".to_owned()),
            "The client sets a parameter in its startup packet that pgweir can't apply in this pool mode. In transaction \
             mode with `session_state = transparent` every parameter works.",
            "List it in `ignore_startup_parameters`; then it has no effect.",
        ),
        entry(
            Fault::UnsupportedOption("NAME".to_owned()),
            "The startup parameter `options` (`PGOPTIONS`) sets a parameter that pgweir can't apply in this pool mode.",
            "List it in `ignore_startup_parameters`; then it has no effect.",
        ),
        entry(
            Fault::OptionsSyntax,
            "The startup parameter `options` has something other than settings.",
            "Write `-c name=value`, with a backslash before each blank inside a value.",
        ),
        entry(
            Fault::BadReplication("VALUE".to_owned()),
            "The startup parameter `replication` takes a boolean or `database`.",
            "Correct the client's connection string.",
        ),
        entry(
            Fault::InvalidParameters,
            "PostgreSQL does not accept the value of a parameter that the client has sent at login, such as a `TimeZone` \
             that does not exist.",
            "Correct the value. PostgreSQL's error is in the log.",
        ),
    ]
}

fn places() -> Vec<Entry> {
    vec![
        entry(
            Fault::Tls(TlsFault::Required),
            "`client_tls_sslmode` demands TLS, and the client has logged in without it.",
            "Add `sslmode=require` (or a stricter mode) to the client's connection string.",
        ),
        entry(
            Fault::TooManyClients,
            "As many clients as `max_client_conn` are connected.",
            "Raise `max_client_conn` and the limit of open files (`pgweir check` shows how many are needed), or close \
             unused clients (`SHOW CLIENTS`).",
        ),
        entry(
            Fault::TooManyClientsOfDatabase,
            "As many clients as `max_db_client_connections` are connected to this database.",
            "Raise the limit, or close unused clients (`SHOW CLIENTS`).",
        ),
        entry(
            Fault::TooManyClientsOfUser,
            "As many clients as `max_user_client_connections` are connected as this user.",
            "Raise the limit, or close unused clients (`SHOW CLIENTS`).",
        ),
        entry(
            Fault::TooManyLogins,
            "More connections than `max_login_clients`, or than `max_login_clients_per_address` from one address, had not \
             authenticated. pgweir had waited for this client's next message for longest.",
            "The log has the addresses of these connections. If they are clients that are slow to log in, raise these settings.",
        ),
        entry(
            Fault::LoginMemory,
            "The messages of clients that log in at the same time take more than `login_memory`, and this client has \
             sent more than 4 kB before it had authenticated.",
            "Look in the log where the logins come from. If many clients have very long passwords (tokens), raise `login_memory`.",
        ),
        entry(
            Fault::Overloaded,
            "So many clients log in at the same moment that the queue for checking passwords is full.",
            "Raise `auth_queue` (LDAP, PAM, `peer`) or `scram_queue`, or let clients connect less often. `SHOW INTERNAL` \
             has the length of both queues.",
        ),
        entry(
            Fault::LoginTimeout,
            "The client did not finish its login within `client_login_timeout`.",
            "Look for a slow network, or a client that opens a connection and sends nothing, such as a health check.",
        ),
        entry(
            Fault::LoginTimeoutServerDown,
            "The login waited for the first server connection of its pool, which could not be opened within \
             `client_login_timeout`.",
            "Check that PostgreSQL runs and can be reached: `pgweir check --reach`. The log has the failed attempts.",
        ),
    ]
}

/// Errors for peers that are no PostgreSQL clients, or send unusual packets.
pub(super) fn protocol() -> Vec<Entry> {
    let http = i32::from_be_bytes(*b"GET ");
    let old = ProtocolVersion { major: 2, minor: 0 };
    let strange = "A program that is not a PostgreSQL client connects to this port, or the client library has a bug.";
    let look = "The log has the program's address. Health checks should log in, or only open and close a connection.";
    vec![
        entry(Fault::Startup(StartupError::Length(http)), strange, look),
        entry(Fault::Startup(StartupError::Layout), strange, look),
        entry(Fault::Startup(StartupError::Request), strange, look),
        entry(
            Fault::Startup(StartupError::Version(old)),
            "The client uses a version of the protocol that PostgreSQL no longer supports.",
            "Use a newer client library: protocol 3.0 exists since 2003.",
        ),
        entry(
            Fault::Tls(TlsFault::EarlyData("SSL")),
            "The client sent further bytes before it got the answer to its request for encryption. An attacker between client \
             and pgweir may have inserted them.",
            "Check the network between client and pgweir.",
        ),
        entry(
            Fault::Tls(TlsFault::NoAlpn),
            "The client began with TLS at once (`sslnegotiation=direct`) without naming PostgreSQL's \
             protocol (ALPN).",
            "Use a client library of PostgreSQL 17 or newer, or `sslnegotiation=postgres`.",
        ),
        entry(
            Fault::MalformedSasl("malformed SCRAM message".to_owned()),
            strange,
            "Update the client library.",
        ),
        entry(
            Fault::UnexpectedMessage(b'Q'),
            strange,
            "Update the client library.",
        ),
        entry(
            Fault::Length(BadLength {
                tag: b'Q',
                length: -1,
            }),
            "A message has a length that no message can have.",
            "Update the client library.",
        ),
        entry(
            Fault::TooLong(b'p'),
            "A message of the login or to the console is longer than allowed.",
            "Update the client library.",
        ),
        entry(
            Fault::Malformed(b'p'),
            "The fields of a message do not fit its length.",
            "Update the client library.",
        ),
    ]
}
