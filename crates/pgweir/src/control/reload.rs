//! Reads the configuration, at start and again at RELOAD.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pgweir_auth::{
    hba::{HbaProblem, IdentMaps, Rules, Wrong},
    userlist::Userlist,
};
use pgweir_config::{AuthType, Config, Place, Problems, Settings};
use pgweir_core::Snapshot;

use super::{
    pam,
    resolver::{LookupError, check_resolv_conf},
};
use crate::{
    http,
    net::{NetOptions, SocketOptions},
    placed::{Places, Wanted, placed, remedy, who},
    process::FileLimit,
    tls::{Contexts, TlsError},
};

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// An ini file.
    Ini(PathBuf),
    /// A URL on the command line: there is nothing to read again.
    Url,
}

/// A configuration that is whole, and what the operator should know of it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    /// What connections are encrypted with.
    pub(crate) tls: Contexts,
    /// Of `http_tokens`.
    pub(crate) http_tokens: Option<Arc<http::Tokens>>,
    /// Besides the notes of the ini file.
    notes: Vec<String>,
}

impl Loaded {
    /// All that the operator should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let of_file = self.snapshot.config.notes.iter().map(ToString::to_string);
        of_file.chain(self.notes.iter().cloned()).collect()
    }

    /// What the operator was not told when the configuration `running` was loaded.
    pub(crate) fn news(&self, running: &Config) -> Vec<String> {
        let of_file = self.snapshot.config.news(running).map(ToString::to_string);
        of_file.chain(self.notes.iter().cloned()).collect()
    }
}

/// Why there is none. Displayed one problem to a line, each with its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The ini file, or one that it includes.
    #[error("{0}")]
    Ini(#[from] Problems),
    /// Certificates, keys or ciphers.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// `auth_file` can't be read.
    #[error("auth_file: {0}: cannot be read: {1}{hint}", hint = remedy(.1, Wanted::Read))]
    AuthFile(PathBuf, #[source] io::Error),
    /// `auth_hba_file` or `auth_ident_file` can't be read.
    #[error("{key}: {file}: cannot be read: {error}{hint}", hint = remedy(.error, Wanted::Read))]
    RuleFile {
        key: &'static str,
        file: PathBuf,
        #[source]
        error: io::Error,
    },
    /// `auth_type = hba` without a file.
    #[error("auth_type = hba needs auth_hba_file, the file with the rules")]
    NoRuleFile,
    /// `auth_type = ldap` without options.
    #[error("auth_type = ldap needs auth_ldap_options, which says where the LDAP server is")]
    NoLdapOptions,
    /// `auth_ldap_options` can't be understood.
    #[error("auth_ldap_options: {0}")]
    LdapOptions(Wrong),
    /// PAM is asked for, which this program was built without.
    #[error(
        "{0} needs PAM, which this pgweir was built without (by --no-default-features, as static binaries are): use another method, or a build with PAM"
    )]
    NoPam(String),
    /// A rule of this line is about the members of a role, whom nobody can tell.
    #[error(
        "{0}:{1}: +role and samerole need auth_user, as whom the database is asked for the roles of a user: set \
         auth_user in [pgbouncer], or for the databases that the rule is about"
    )]
    NobodyToAsk(PathBuf, usize),
    /// Lines of these files that can't be understood.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Rules(Vec<HbaProblem>),
    /// `http_tokens` can't be read.
    #[error("http_tokens: {0}: cannot be read: {1}{hint}", hint = remedy(.1, Wanted::Read))]
    HttpTokens(PathBuf, #[source] io::Error),
    /// Lines of `http_tokens` that can't be understood.
    #[error("{}", .0.join("\n"))]
    HttpTokenLines(Vec<String>),
    /// `resolv_conf` can't be read, or has no name server.
    #[error("\"resolv_conf\": {0}")]
    ResolvConf(LookupError),
    /// Lines of `auth_file` that can't be understood.
    #[error("{}", .0.join("\n"))]
    Users(Vec<String>),
    /// Something of these, with the place of the key that it comes of.
    #[error("{}", placed(.place, .key, .error))]
    At {
        place: Place,
        key: String,
        #[source]
        error: Box<LoadError>,
    },
}

impl LoadError {
    /// The key that it comes of, where the words themselves don't say the file and the line.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Tls(error) => Some(&error.key),
            Self::AuthFile(..) => Some("auth_file"),
            Self::HttpTokens(..) => Some("http_tokens"),
            Self::RuleFile { key, .. } => Some(key),
            Self::NoRuleFile | Self::NoLdapOptions => Some("auth_type"),
            Self::NoPam(what) if what.starts_with("auth_type") => Some("auth_type"),
            Self::LdapOptions(_) => Some("auth_ldap_options"),
            Self::ResolvConf(_) => Some("resolv_conf"),
            Self::Ini(_)
            | Self::NoPam(_)
            | Self::NobodyToAsk(..)
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
/// All that is wrong with the first file that has something wrong.
pub(crate) fn load(ini: &Path, before: &Contexts) -> Result<Loaded, LoadError> {
    let config = Config::load(ini, &mut read)?;
    let places = config.places.clone();
    complete(config, before).map_err(|error| error.at(&places))
}

/// Reads the files that a configuration names.
///
/// # Errors
/// All that is wrong with the first file that has something wrong.
fn complete(config: Config, before: &Contexts) -> Result<Loaded, LoadError> {
    let mut notes = Vec::new();
    let tls = Contexts::load(&config.settings, before, &mut notes)?;
    let (users, rules) = credentials(&config, &mut notes)?;
    let http_tokens = http_tokens(&config.settings)?;
    check_resolv_conf(config.settings.resolv_conf.as_deref()).map_err(LoadError::ResolvConf)?;
    if config.databases.is_empty() && config.fallback.is_none() {
        notes.push(
            "no databases: clients can reach none before [databases] has an entry".to_owned(),
        );
    }
    if users.is_empty() && knows_users_by_list(config.settings.auth_type) {
        notes.push("no users: nobody can log in before auth_file names somebody".to_owned());
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
        notes,
    })
}

/// Must users stand in a list, or be looked up?
fn knows_users_by_list(auth_type: AuthType) -> bool {
    !matches!(
        auth_type,
        AuthType::Any | AuthType::Hba | AuthType::Ldap | AuthType::Pam
    )
}

/// A file's text; the error says who could not read it.
fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("{error} for user {}", who()))
        }
        _ => error,
    })
}

/// The driver's part of the settings.
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
    }
}

/// Who may log in, and how: the users of `auth_file`, and the rules.
///
/// # Errors
/// All that is wrong with the first file that has something wrong.
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
    if let Some(rule) = rules.by_roles()
        && !has_auth_user(config)
    {
        let file = settings.auth_hba_file.as_deref().unwrap_or_default();
        return Err(LoadError::NobodyToAsk(file.into(), rule.line));
    }
    Ok((users, rules))
}

/// Is there a user as whom some database can be asked who is a member of what?
fn has_auth_user(config: &Config) -> bool {
    let mut databases = config.databases.values().chain(&config.fallback);
    config.settings.auth_user.is_some() || databases.any(|database| database.auth_user.is_some())
}

/// Who may look and order over HTTP, if a file says so.
///
/// # Errors
/// All that is wrong with the file.
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

/// The rules, where `auth_type` asks for them.
///
/// # Errors
/// All that is wrong with the first file that has something wrong.
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
