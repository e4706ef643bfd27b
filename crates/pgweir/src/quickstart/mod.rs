//! `pgweir postgres://user@host/database`: a pooler without a configuration file.

mod connection;
mod console;
mod login;
mod parameters;
mod pgpass;
mod reach;
mod scrub;
mod url;

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pgweir_auth::userlist::{Secret, Userlist};
use pgweir_config::{Config, is_console};
use pgweir_core::{Snapshot, backend::Credentials};
use pgweir_formats::pgpass::PassfileKey;
use zeroize::Zeroizing;

use connection::Target;
pub(crate) use connection::{Connection, ConnectionError};
pub(crate) use console::{ConsoleLogin, ConsoleTarget, console_login};
pub(crate) use login::{FirstLogin, FirstLoginError};
pub(crate) use reach::complaint;
use scrub::PASSWORD_ON_STDIN;
pub(crate) use scrub::ScrubError;
use url::Url;

use crate::tls::{Contexts, TlsError};
pub(crate) use url::UrlError;

/// The folders to search for PostgreSQL's Unix socket if the URL names no host.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;
/// The time for the first login without `connect_timeout` in the URL.
const FIRST_LOGIN: Duration = Duration::from_secs(5);

/// The reason why a quick start failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuickStartError {
    /// The URL is invalid or unsupported.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The password could not be taken out of the process title.
    #[error(transparent)]
    Scrub(#[from] ScrubError),
    /// The URL names no user, and the system has no name for this process's user.
    #[error(
        "the URL names no user, and this system user has no name: write postgres://USER@HOST/DATABASE"
    )]
    NoUser,
    /// There is no password with which clients could prove their identity.
    #[error(
        "no password for {0}: put it into PGPASSWORD, ~/.pgpass or the URL (clients must log in with the same password; \
         for a server that asks for no password, write an ini file)"
    )]
    NoPassword(String),
    /// The password file can't be read, or other users can read it.
    #[error(transparent)]
    PasswordFile(#[from] pgpass::Refused),
    /// The database has the name of the console.
    #[error(
        "database name \"{0}\" is reserved for the console; write an ini file with another name and dbname={0}"
    )]
    Reserved(String),
}

/// The configuration that a URL stands for.
#[derive(Debug)]
pub(crate) struct QuickStart {
    pub(crate) snapshot: Snapshot,
    /// The psql command that connects to pgweir.
    pub(crate) psql: String,
    /// The TLS contexts of both sides.
    pub(crate) tls: Contexts,
    /// The login to the server, to be tried before pgweir accepts clients.
    pub(crate) first_login: FirstLogin,
    /// Messages about parameters of the URL that have no effect.
    pub(crate) notes: Vec<String>,
}

/// Returns whether the argument is a URL of a database, as opposed to a file.
pub(crate) fn is_url(target: &str) -> bool {
    url::SCHEMES.iter().any(|scheme| target.starts_with(scheme))
}

/// Returns whether an argument that is neither a file nor a URL of a database looks like a URL or a connection string.
pub(crate) fn is_mistyped(target: &str) -> bool {
    ["://", "@", "host=", "postgres:"]
        .iter()
        .any(|sign| target.contains(sign))
}

/// Creates the configuration. If the URL has a password, this function starts the program again without the password in
/// the command line, and does not return.
///
/// # Errors
/// When something is missing or invalid.
pub(crate) fn from_url(text: &str) -> Result<QuickStart, QuickStartError> {
    let mut url = Url::parse(text)?;
    if let Some(password) = &url.password {
        return Ok(scrub::start_again(
            text,
            &url::without_password(text),
            password,
        )?);
    }
    let user = url
        .user
        .or_else(system_user)
        .ok_or(QuickStartError::NoUser)?;
    let dbname = url.dbname.unwrap_or_else(|| user.clone());
    if is_console(&dbname) {
        return Err(QuickStartError::Reserved(dbname));
    }
    let port = url.port.unwrap_or(DEFAULT_PORT);
    let host = url.host.unwrap_or_else(|| default_host(port));
    let passfile = url.parameters.passfile.as_deref().map(Path::new);
    let (password, password_source) = find_password(&host, port, &dbname, &user, passfile)?;
    let secret = Secret::Plain(password);
    let mut users = Userlist::default();
    users.insert(user.as_str(), secret.clone());
    let mut config = url
        .parameters
        .apply(Config::quick_start(&host, port, &dbname))?;
    config.settings.admin_users = vec![user.clone()];
    let tls = Contexts::load(&config.settings, &Contexts::default(), &mut Vec::new())?;
    let psql = psql_line(&config, &user, &dbname);
    let first_login = FirstLogin {
        target: Target {
            host,
            port,
            credentials: Credentials {
                user,
                database: dbname,
                secret: Some(Arc::new(secret)),
                keys: None,
                parameters: Vec::new(),
                connect_query: None,
                asks_connections: false,
            },
            tls: tls.clone(),
            needs_channel_binding: url.parameters.needs_channel_binding,
        },
        patience: url
            .parameters
            .connect_timeout
            .map_or(FIRST_LOGIN, Duration::from_secs),
        password_source,
    };
    Ok(QuickStart {
        snapshot: Snapshot {
            config,
            users,
            tls: tls.terms(),
            rules: Default::default(),
        },
        tls,
        psql,
        first_login,
        notes: url.parameters.ignored,
    })
}

/// Returns the password and its source. The sources are tried in libpq's order: the URL, `PGPASSWORD`, the password file.
fn find_password(
    host: &str,
    port: u16,
    dbname: &str,
    user: &str,
    passfile: Option<&Path>,
) -> Result<(Zeroizing<String>, String), QuickStartError> {
    if env::var_os(PASSWORD_ON_STDIN).is_some() {
        return Ok((scrub::take_password()?, "the URL".to_owned()));
    }
    if let Ok(password) = env::var("PGPASSWORD")
        && !password.is_empty()
    {
        return Ok((Zeroizing::new(password), "PGPASSWORD".to_owned()));
    }
    let wanted = PassfileKey {
        host: known_as(host),
        port,
        dbname,
        user,
    };
    let path = passfile.map(PathBuf::from).or_else(pgpass::default_path);
    let found = match &path {
        Some(path) => pgpass::find_password(path, &wanted)?,
        None => None,
    };
    found
        .zip(path.map(|path| path.display().to_string()))
        .ok_or_else(|| QuickStartError::NoPassword(format!("user \"{user}\" at {host}:{port}")))
}

/// Returns the name of a host in password files.
fn known_as(host: &str) -> &str {
    if SOCKET_FOLDERS.contains(&host) {
        "localhost"
    } else {
        host
    }
}

fn psql_line(config: &Config, user: &str, dbname: &str) -> String {
    let address = config
        .settings
        .listen_addr
        .first()
        .map_or("127.0.0.1", String::as_str);
    format!(
        "psql -h {address} -p {} -U {} {}",
        config.settings.listen_port,
        quoted(user),
        quoted(dbname)
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn system_user() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::Uid::effective())
        .ok()
        .flatten()
        .map(|user| user.name)
}

fn default_host(port: u16) -> String {
    let socket = |folder: &&&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
    SOCKET_FOLDERS
        .iter()
        .find(socket)
        .map_or("localhost", |folder| folder)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_psql_survives_a_shell() {
        let config = Config::quick_start("db", 5432, "shop");
        assert_eq!(
            psql_line(&config, "app", "shop"),
            "psql -h 127.0.0.1 -p 6432 -U app shop"
        );
        assert_eq!(quoted("o'brien; rm"), r"'o'\''brien; rm'");
    }
}
