//! The console that `pgweir top` connects to: options, the environment and the password file, by libpq's rules.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pgweir_auth::userlist::Secret;
use pgweir_config::{Config, RESERVED_DATABASES};
use pgweir_core::{Endpoint, backend::Credentials};
use pgweir_formats::pgpass::PassfileKey;
use zeroize::Zeroizing;

use super::{
    QuickStartError, connection::Target, default_host, known_as, parameters::Parameters, pgpass,
    system_user, url::Url,
};
use crate::tls::Contexts;

/// pgweir's and PgBouncer's default port.
const DEFAULT_PORT: u16 = 6432;
/// The time for each answer of the console without `connect_timeout`.
const PATIENCE: Duration = Duration::from_secs(5);
/// libpq's environment variables whose parameters pgweir knows from URLs.
const VARIABLES: [(&str, &str); 10] = [
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGPASSFILE", "passfile"),
];

/// The options about where to connect, as psql has them.
#[derive(Debug, Default)]
pub(crate) struct ConsoleTarget {
    pub(crate) url: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) user: Option<String>,
    pub(crate) dbname: Option<String>,
}

/// A console, and the credentials for it.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleLogin {
    pub(crate) target: Target,
    /// The time for each answer.
    pub(crate) patience: Duration,
    /// The console's address, without secrets.
    pub(crate) place: String,
}

impl ConsoleLogin {
    /// Sets the password.
    pub(crate) fn set_password(&mut self, password: Zeroizing<String>) {
        self.target.credentials.secret = Some(Arc::new(Secret::Plain(password)));
    }

    /// Returns the user who logs in.
    pub(crate) fn user(&self) -> &str {
        &self.target.credentials.user
    }
}

/// Returns the console's address and the credentials: options override the URL, which overrides the environment.
///
/// # Errors
///
/// When a parameter is invalid, or TLS can't be set up.
pub(crate) fn console_login(options: ConsoleTarget) -> Result<ConsoleLogin, QuickStartError> {
    let mut parameters = Parameters::default();
    for (variable, name) in VARIABLES {
        if let Some(value) = variable_of(variable) {
            parameters.set(name, value)?;
        }
    }
    let url = match &options.url {
        Some(text) => Url::parse_over(text, parameters)?,
        None => Url {
            parameters,
            ..Url::default()
        },
    };
    let mut parameters = url.parameters;
    let port = options
        .port
        .or(url.port)
        .or_else(|| variable_of("PGPORT")?.parse().ok())
        .unwrap_or(DEFAULT_PORT);
    let host = options
        .host
        .or(url.host)
        .or_else(|| variable_of("PGHOST"))
        .unwrap_or_else(|| default_host(port));
    let user = options
        .user
        .or(url.user)
        .or_else(|| variable_of("PGUSER"))
        .or_else(system_user)
        .ok_or(QuickStartError::NoUser)?;
    let [console, _] = RESERVED_DATABASES;
    let database = options
        .dbname
        .or(url.dbname)
        .unwrap_or_else(|| console.to_owned());
    let password = match url.password {
        Some(password) => Some(password),
        None => find_password(&host, port, (&database, &user), &parameters)?,
    };
    let config = parameters.apply(Config::quick_start(&host, port, ""))?;
    let tls = Contexts::load(&config.settings, &Contexts::default(), &mut Vec::new())?;
    let place = Endpoint::of(&host, port).to_string();
    let credentials = Credentials {
        user,
        database,
        secret: password.map(|password| Arc::new(Secret::Plain(password))),
        keys: None,
        parameters: vec![(b"application_name".to_vec(), b"pgweir top".to_vec())],
        connect_query: None,
        asks_connections: false,
    };
    Ok(ConsoleLogin {
        target: Target {
            host,
            port,
            credentials,
            tls,
            needs_channel_binding: parameters.needs_channel_binding,
        },
        patience: parameters
            .connect_timeout
            .map_or(PATIENCE, Duration::from_secs),
        place,
    })
}

/// Returns the password of `PGPASSWORD` or of the password file.
fn find_password(
    host: &str,
    port: u16,
    (dbname, user): (&str, &str),
    parameters: &Parameters,
) -> Result<Option<Zeroizing<String>>, QuickStartError> {
    if let Some(password) = variable_of("PGPASSWORD") {
        return Ok(Some(Zeroizing::new(password)));
    }
    let wanted = PassfileKey {
        host: known_as(host),
        port,
        dbname,
        user,
    };
    let named = parameters.passfile.as_deref().map(Path::new);
    let path = named.map(PathBuf::from).or_else(pgpass::default_path);
    let found = path.map(|path| pgpass::find_password(&path, &wanted));
    Ok(found.transpose()?.flatten())
}

/// Returns the value of an environment variable, unless it is empty.
fn variable_of(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
