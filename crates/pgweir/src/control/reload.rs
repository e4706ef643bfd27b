//! Reads the configuration and the files that it names, at start and at RELOAD.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pgweir_auth::{
    hba::{HbaProblem, IdentMaps, Rules, Wrong},
    userlist::Userlist,
};
use pgweir_config::{AuthType, Changes, Config, Entries, Place, Problems, Settings};
use pgweir_core::Snapshot;

use super::{
    change::with_changes,
    fleet::{FleetAccess, FleetAccessError},
    pam,
    patroni::{Access, AccessError},
    resolver::{LookupError, check_resolv_conf},
};
use crate::{
    http,
    net::{NetOptions, SocketOptions},
    process::FileLimit,
    setting_errors::{FileAccess, Places, placed, remedy, running_user},
    tls::{Contexts, TlsError},
};

/// The source of the configuration.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// An ini file.
    Ini(PathBuf),
    /// A URL on the command line. RELOAD has nothing to read.
    Url,
}

/// A complete configuration, with messages for the operator.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    /// The TLS contexts of both sides.
    pub(crate) tls: Contexts,
    /// The tokens of the file `http_tokens`.
    pub(crate) http_tokens: Option<Arc<http::Tokens>>,
    /// The files of `patroni_tls_ca_file` and `patroni_auth_file`.
    pub(crate) patroni: Access,
    /// The files for etcd.
    pub(crate) fleet: FleetAccess,
    /// The changes of the file `api_config_file`, which the snapshot has already.
    pub(crate) changes: Changes,
    /// The entries of the ini file without these changes, if `config_etcd` is set.
    pub(crate) file_entries: Entries,
    /// Messages in addition to the notes of the ini file.
    notes: Vec<String>,
}

impl Loaded {
    /// Returns all messages for the operator.
    pub(crate) fn notes(&self) -> Vec<String> {
        let of_file = self.snapshot.config.notes.iter().map(ToString::to_string);
        of_file.chain(self.notes.iter().cloned()).collect()
    }

    /// Returns the messages that were not reported when the configuration `running` was loaded.
    pub(crate) fn news(&self, running: &Config) -> Vec<String> {
        let of_file = self.snapshot.config.news(running).map(ToString::to_string);
        of_file.chain(self.notes.iter().cloned()).collect()
    }
}

/// The reason why a configuration could not be loaded. Displays one problem per line, each with its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The ini file, or a file that it includes, has problems.
    #[error("{0}")]
    Ini(#[from] Problems),
    /// Certificates, keys or ciphers can't be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// `auth_file` can't be read.
    #[error("auth_file: {0}: cannot be read: {1}{hint}", hint = remedy(.1, FileAccess::Read))]
    AuthFile(PathBuf, #[source] io::Error),
    /// `auth_hba_file` or `auth_ident_file` can't be read.
    #[error("{key}: {file}: cannot be read: {error}{hint}", hint = remedy(.error, FileAccess::Read))]
    RuleFile {
        key: &'static str,
        file: PathBuf,
        #[source]
        error: io::Error,
    },
    /// `auth_type = hba` is set without a file.
    #[error("auth_type = hba needs auth_hba_file, the file with the rules")]
    NoRuleFile,
    /// `auth_type = ldap` is set without options.
    #[error("auth_type = ldap needs auth_ldap_options, which says where the LDAP server is")]
    NoLdapOptions,
    /// `auth_ldap_options` can't be parsed.
    #[error("auth_ldap_options: {0}")]
    LdapOptions(Wrong),
    /// The configuration needs PAM, but this program was built without PAM.
    #[error(
        "{0} needs PAM, which this pgweir was built without (by --no-default-features, as static binaries are): use another method, or a build with PAM"
    )]
    NoPam(String),
    /// A rule names a role's members, but no `auth_user` is set to ask a server for them.
    #[error(
        "{0}:{1}: +role and samerole need auth_user, as whom the database is asked for the roles of a user: set \
         auth_user in [pgbouncer], or for the databases that the rule is about"
    )]
    NoAuthQuery(PathBuf, usize),
    /// Lines of these files can't be parsed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Rules(Vec<HbaProblem>),
    /// `http_tokens` can't be read.
    #[error("http_tokens: {0}: cannot be read: {1}{hint}", hint = remedy(.1, FileAccess::Read))]
    HttpTokens(PathBuf, #[source] io::Error),
    /// Lines of `http_tokens` can't be parsed.
    #[error("{}", .0.join("\n"))]
    HttpTokenLines(Vec<String>),
    /// The files for Patroni's REST API can't be used.
    #[error("{0}")]
    Patroni(#[from] AccessError),
    /// A file for etcd can't be used.
    #[error("{0}")]
    Fleet(#[from] FleetAccessError),
    /// `resolv_conf` can't be read, or has no name server.
    #[error("\"resolv_conf\": {0}")]
    ResolvConf(LookupError),
    /// Lines of `auth_file` can't be parsed.
    #[error("{}", .0.join("\n"))]
    Users(Vec<String>),
    /// `api_config_file` can't be read.
    #[error("api_config_file: {0}: cannot be read: {1}{hint}", hint = remedy(.1, FileAccess::Read))]
    ApiConfigFile(PathBuf, #[source] io::Error),
    /// An address of `http_listen` can't be used.
    #[error("{0}")]
    Http(#[from] http::HttpListenError),
    /// One of these errors, with the place of the setting that caused it.
    #[error("{}", placed(.place, .key, .error))]
    At {
        place: Place,
        key: String,
        #[source]
        error: Box<LoadError>,
    },
}

impl LoadError {
    /// Returns the setting that caused the error, unless the message itself has the file and the line.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Tls(error) => Some(&error.key),
            Self::Patroni(error) => error.key(),
            Self::Fleet(error) => Some(error.key()),
            Self::AuthFile(..) => Some("auth_file"),
            Self::HttpTokens(..) => Some("http_tokens"),
            Self::ApiConfigFile(..) => Some("api_config_file"),
            Self::Http(_) => None,
            Self::RuleFile { key, .. } => Some(key),
            Self::NoRuleFile | Self::NoLdapOptions => Some("auth_type"),
            Self::NoPam(what) if what.starts_with("auth_type") => Some("auth_type"),
            Self::LdapOptions(_) => Some("auth_ldap_options"),
            Self::ResolvConf(_) => Some("resolv_conf"),
            Self::Ini(_)
            | Self::NoPam(_)
            | Self::NoAuthQuery(..)
            | Self::Rules(_)
            | Self::Users(_)
            | Self::HttpTokenLines(_)
            | Self::At { .. } => None,
        }
    }

    fn at(self, places: &Places) -> Self {
        let found = self
            .key()
            .and_then(|key| Some((places.get(key)?.clone(), key.to_owned())));
        match found {
            Some((place, key)) => Self::At {
                place,
                key,
                error: Box::new(self),
            },
            None => self,
        }
    }
}

/// Reads the ini file and the users.
///
/// # Errors
/// All problems of the first file that has any.
pub(crate) fn load(ini: &Path, before: &Contexts) -> Result<Loaded, LoadError> {
    let config = Config::load(ini, &mut read)?;
    let places = config.places.clone();
    let completed = with_changes(config).and_then(|changed| {
        let mut loaded = complete(changed.config, before)?;
        loaded.changes = changed.changes;
        loaded.file_entries = changed.file_entries;
        Ok(loaded)
    });
    completed.map_err(|error| error.at(&places))
}

/// Reads the files that a configuration names.
///
/// # Errors
/// All problems of the first file that has any.
fn complete(config: Config, before: &Contexts) -> Result<Loaded, LoadError> {
    let mut notes = Vec::new();
    let tls = Contexts::load(&config.settings, before, &mut notes)?;
    let (users, rules) = credentials(&config, &mut notes)?;
    let http_tokens = http_tokens(&config.settings)?;
    let patroni = Access::load(&config)?;
    let fleet = FleetAccess::load(&config.settings)?;
    notes.extend(files_open_to_all(&config.settings));
    check_resolv_conf(config.settings.resolv_conf.as_deref()).map_err(LoadError::ResolvConf)?;
    if config.databases.is_empty() && config.fallback.is_none() {
        notes.push(
            "no databases: clients can reach none before [databases] has an entry".to_owned(),
        );
    }
    if users.is_empty() && knows_users_by_list(config.settings.auth_type) {
        notes.push("no users: no client can log in before auth_file names a user".to_owned());
    }
    Ok(Loaded {
        snapshot: Snapshot {
            config,
            users,
            tls: tls.terms(),
            rules,
        },
        tls,
        http_tokens,
        patroni,
        fleet,
        changes: Changes::default(),
        file_entries: Entries::new(),
        notes,
    })
}

/// Returns a note for each file with secrets that every user of the machine can read.
fn files_open_to_all(settings: &Settings) -> Vec<String> {
    let files = [
        ("auth_file", &settings.auth_file),
        ("client_tls_key_file", &settings.client_tls_key_file),
        ("server_tls_key_file", &settings.server_tls_key_file),
        ("http_tokens", &settings.http_tokens),
        ("patroni_auth_file", &settings.patroni_auth_file),
        ("patroni_tls_key_file", &settings.patroni_tls_key_file),
        ("fleet_etcd_auth_file", &settings.fleet_etcd_auth_file),
        ("fleet_etcd_tls_key_file", &settings.fleet_etcd_tls_key_file),
    ];
    let is_open = |path: &str| {
        let file = fs::metadata(path);
        file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o004 != 0)
    };
    let named = files
        .into_iter()
        .filter_map(|(key, path)| Some((key, path.as_deref()?)));
    named
        .filter(|(_, path)| is_open(path))
        .map(|(key, path)| {
            format!("{key}: every user of this machine can read {path}: chmod o-r {path}")
        })
        .collect()
}

/// Returns whether users must be in a list, or be looked up.
fn knows_users_by_list(auth_type: AuthType) -> bool {
    !matches!(
        auth_type,
        AuthType::Any | AuthType::Hba | AuthType::Ldap | AuthType::Pam
    )
}

/// Returns a file's text. The error names the user who could not read the file.
pub(super) fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("{error} for user {}", running_user()))
        }
        _ => error,
    })
}

/// Returns the settings of the driver.
pub(crate) fn net_options(snapshot: &Snapshot, tls: &Contexts, files: FileLimit) -> NetOptions {
    let settings = &snapshot.config.settings;
    NetOptions {
        tls: tls.clone(),
        clients_max: files.clients_max(snapshot),
        socket: SocketOptions {
            keepalive: settings.tcp_keepalive,
            keepcnt: settings.tcp_keepcnt,
            keepidle: Duration::from_secs(settings.tcp_keepidle.into()),
            keepintvl: Duration::from_secs(settings.tcp_keepintvl.into()),
            user_timeout_ms: settings.tcp_user_timeout,
            buffer: settings.tcp_socket_buffer as usize,
            defer_accept: settings.tcp_defer_accept,
        },
        close_flush_us: settings.close_flush_timeout.0,
        login_slice_us: settings.login_slice.0,
    }
}

/// Returns the users of `auth_file` and the rules for logins.
///
/// # Errors
/// All problems of the first file that has any.
pub(crate) fn credentials(
    config: &Config,
    notes: &mut Vec<String>,
) -> Result<(Userlist, Rules), LoadError> {
    let settings = &config.settings;
    let users = match &settings.auth_file {
        Some(path) => load_users(Path::new(path), notes)?,
        None => Userlist::default(),
    };
    let rules = load_rules(settings, notes)?;
    check_roles(config, &rules)?;
    Ok((users, rules))
}

/// Checks that some server can be asked for the members of roles, if a rule is about them.
pub(super) fn check_roles(config: &Config, rules: &Rules) -> Result<(), LoadError> {
    let file = config.settings.auth_hba_file.as_deref().unwrap_or_default();
    match rules.by_roles().filter(|_| !has_auth_user(config)) {
        Some(rule) => Err(LoadError::NoAuthQuery(file.into(), rule.line)),
        None => Ok(()),
    }
}

/// Returns whether some database has a user as whom its server can be asked for the members of roles.
fn has_auth_user(config: &Config) -> bool {
    let mut databases = config.databases.values().chain(&config.fallback);
    config.settings.auth_user.is_some() || databases.any(|database| database.auth_user.is_some())
}

/// Returns the tokens for reading and for commands over HTTP, if a file is configured.
///
/// # Errors
/// All problems of the file.
pub(crate) fn http_tokens(settings: &Settings) -> Result<Option<Arc<http::Tokens>>, LoadError> {
    let Some(path) = settings.http_tokens.as_deref().map(Path::new) else {
        return Ok(None);
    };
    let text = read(path).map_err(|error| LoadError::HttpTokens(path.to_owned(), error))?;
    let text = zeroize::Zeroizing::new(text);
    let tokens = http::Tokens::parse(&text).map_err(|problems| {
        let place = |problem: &String| format!("{}:{problem}", path.display());
        LoadError::HttpTokenLines(problems.iter().map(place).collect())
    })?;
    Ok(Some(Arc::new(tokens)))
}

fn load_users(path: &Path, notes: &mut Vec<String>) -> Result<Userlist, LoadError> {
    let text = read(path).map_err(|error| LoadError::AuthFile(path.to_owned(), error))?;
    let text = zeroize::Zeroizing::new(text);
    let place =
        |line: usize, what: &dyn std::fmt::Display| format!("{}:{line}: {what}", path.display());
    let users = Userlist::parse(&text).map_err(|errors| {
        LoadError::Users(
            errors
                .iter()
                .map(|error| place(error.line, &error.fault))
                .collect(),
        )
    })?;
    notes.extend(
        users
            .warnings()
            .iter()
            .map(|warning| format!("{}: {warning}", path.display())),
    );
    Ok(users)
}

/// Returns the rules, if `auth_type` needs them.
///
/// # Errors
/// All problems of the first file that has any.
fn load_rules(settings: &Settings, notes: &mut Vec<String>) -> Result<Rules, LoadError> {
    match settings.auth_type {
        AuthType::Hba => {}
        AuthType::Ldap => {
            let options = settings.auth_ldap_options.as_ref();
            let options = options.ok_or(LoadError::NoLdapOptions)?;
            return Rules::of_ldap(options.expose()).map_err(LoadError::LdapOptions);
        }
        AuthType::Pam if pam::IS_BUILT_IN => return Ok(Rules::of_pam()),
        AuthType::Pam => return Err(LoadError::NoPam("auth_type = pam".to_owned())),
        _ => return Ok(Rules::default()),
    }
    let text_of = |key, file: &Path| {
        read(file).map_err(|error| LoadError::RuleFile {
            key,
            file: file.to_owned(),
            error,
        })
    };
    let maps = match settings.auth_ident_file.as_deref().map(Path::new) {
        Some(file) => {
            let text = text_of("auth_ident_file", file)?;
            IdentMaps::parse(&text, file).map_err(LoadError::Rules)?
        }
        None => IdentMaps::default(),
    };
    let file = settings.auth_hba_file.as_deref().map(Path::new);
    let file = file.ok_or(LoadError::NoRuleFile)?;
    let text = text_of("auth_hba_file", file)?;
    let rules = Rules::parse(&text, file, &maps, &mut read).map_err(LoadError::Rules)?;
    if let Some(rule) = rules.by_pam().filter(|_| !pam::IS_BUILT_IN) {
        let line = format!("{}:{}: method pam", file.display(), rule.line);
        return Err(LoadError::NoPam(line));
    }
    notes.extend(rules.notes().iter().cloned());
    Ok(rules)
}
