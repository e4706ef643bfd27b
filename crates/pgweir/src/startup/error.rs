//! The errors that keep pgweir from starting.

use std::{io, path::PathBuf};

use pgweir_config::{Place, Settings};

use crate::{
    control::LoadError,
    http::HttpListenError,
    net::ListenError,
    process::ProcessError,
    quickstart::{FirstLoginError, QuickStartError},
    setting_errors::{FileAccess, Places, placed, remedy},
    takeover::{self, TakeoverError},
};

/// An error that keeps pgweir from starting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(
        "no configuration: start pgweir pgweir.ini, or pgweir postgres://user@host/database (see --help)"
    )]
    NoTarget,
    // The argument is not shown: it may contain a password.
    #[error(
        "this looks like a URL, but not like one of a database: it must begin with postgres:// or \
         postgresql://, as in postgres://user@host/database; if it had a password, other users of this \
         machine may have seen it"
    )]
    NotOurUrl,
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    QuickStart(#[from] QuickStartError),
    #[error(transparent)]
    FirstLogin(#[from] Box<FirstLoginError>),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    HttpListen(#[from] HttpListenError),
    #[error("cannot open the log file {0}: {1}{hint}", hint = remedy(.1, FileAccess::Write))]
    LogFile(PathBuf, #[source] io::Error),
    #[error("cannot read or create auth_key_file {0}: {1}")]
    KeyFile(PathBuf, #[source] io::Error),
    #[error(
        "cannot take over: no process that can hand over answers at {place}, the place given by listen_port and \
         unix_socket_dir (by pidfile without unix_socket_dir). If one of these settings was changed: stop the running \
         process, and start without -R ({why})"
    )]
    NoHandover { place: String, why: String },
    #[error("cannot take over: {0}")]
    Takeover(#[from] TakeoverError),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// Another of these errors, with the place of the setting that caused it.
    #[error("{}", placed(.0, .1, .2))]
    At(Place, &'static str, #[source] Box<StartError>),
}

impl StartError {
    pub(super) fn at(self, places: &Places) -> Self {
        let key = match &self {
            Self::Process(error) | Self::Takeover(TakeoverError::Process(error)) => error.key(),
            Self::Listen(error) | Self::Takeover(TakeoverError::Listen(error)) => error.key(),
            Self::LogFile(..) => Some("logfile"),
            Self::KeyFile(..) => Some("auth_key_file"),
            Self::HttpListen(_) => Some("http_listen"),
            _ => None,
        };
        match key.and_then(|key| Some((key, places.get(key)?.clone()))) {
            Some((key, place)) => Self::At(place, key, Box::new(self)),
            None => self,
        }
    }
}

/// Returns the error for a running process that can't be asked to hand over.
pub(super) fn no_handover(settings: &Settings, why: &dyn std::error::Error) -> StartError {
    StartError::NoHandover {
        place: where_asked(settings),
        why: why.to_string(),
    }
}

/// Returns the place of the socket on which a running process accepts the request to hand over.
pub(super) fn where_asked(settings: &Settings) -> String {
    takeover::place(settings).map_or("no socket".to_owned(), |place| place.display().to_string())
}
