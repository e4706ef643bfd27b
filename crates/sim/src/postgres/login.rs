//! The model PostgreSQL's side of a login.

use pgweir_auth::{scram, userlist::Secret, verify_md5};
use pgweir_wire::{Authentication, Body, MessageWriter, Severity, Startup};

use super::sql::Values;

/// The method by which a user has to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Trust,
    Password,
    Md5,
    Scram,
}

/// The state of a login.
#[derive(Debug)]
pub(super) enum Login {
    /// The startup packet has not arrived.
    Startup,
    Password {
        user: String,
    },
    Md5 {
        user: String,
        salt: [u8; 4],
    },
    Scram {
        exchange: Box<scram::ServerExchange>,
        is_first: bool,
    },
}

/// The result of a packet.
pub(super) enum Step {
    /// The packet is incomplete, or an answer was appended.
    Wait,
    /// The client asks for TLS.
    AsksForTls,
    /// The login is refused. The answer was appended.
    Refused,
    /// The client has authenticated.
    Accepted,
    /// A cancel request.
    Cancel { pid: u32, secret: Vec<u8> },
    /// Bytes that no client of PostgreSQL sends.
    Nonsense(String),
}

/// The content of the startup packet.
#[derive(Debug, Clone, Default)]
pub(super) struct StartupOptions {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) settings: Vec<(String, String)>,
    /// Whether this is a replication connection.
    pub(super) replicates: bool,
}

impl Login {
    /// Handles a packet at the start of `input`, and removes it.
    pub(super) fn step(
        &mut self,
        input: &mut Vec<u8>,
        options: &mut StartupOptions,
        method: Method,
        secret: &dyn Fn(&str) -> Option<Secret>,
        out: &mut Vec<u8>,
    ) -> Step {
        if let Self::Startup = self {
            let taken = match Startup::parse(input, 10_000) {
                Ok(None) => return Step::Wait,
                Ok(Some((Startup::Cancel { pid, secret }, _))) => {
                    return Step::Cancel {
                        pid,
                        secret: secret.to_vec(),
                    };
                }
                Ok(Some((Startup::SslRequest, taken))) => {
                    input.drain(..taken);
                    return Step::AsksForTls;
                }
                Ok(Some((Startup::Login { parameters, .. }, taken))) => {
                    *options = StartupOptions::read(parameters.iter());
                    taken
                }
                other => return Step::Nonsense(format!("startup packet: {other:?}")),
            };
            input.drain(..taken);
            return self.challenge(options, method, secret, out);
        }
        let Ok(Some(header)) = pgweir_wire::Header::parse(input) else {
            return Step::Wait;
        };
        if input.len() < header.message_len() {
            return Step::Wait;
        }
        let message: Vec<u8> = input.drain(..header.message_len()).collect();
        if header.tag != b'p' {
            return Step::Nonsense(format!("message '{}' at login", header.tag.escape_ascii()));
        }
        self.prove(&message[5..], secret, out)
    }

    fn challenge(
        &mut self,
        options: &StartupOptions,
        method: Method,
        secret: &dyn Fn(&str) -> Option<Secret>,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut writer = MessageWriter::new(out);
        let user = options.user.clone();
        match method {
            Method::Trust => return Step::Accepted,
            Method::Password => {
                writer.authentication(Authentication::CleartextPassword);
                *self = Self::Password { user };
            }
            Method::Md5 => {
                let salt = [1, 2, 3, 4];
                writer.authentication(Authentication::Md5Password(salt));
                *self = Self::Md5 { user, salt };
            }
            Method::Scram => {
                let Some(secret) = secret(&user).map(scram_secret) else {
                    return refuse(out);
                };
                writer.authentication(Authentication::Sasl(&[scram::MECHANISM]));
                let exchange = Box::new(scram::ServerExchange::new(secret, &[7; 18]));
                *self = Self::Scram {
                    exchange,
                    is_first: true,
                };
            }
        }
        Step::Wait
    }

    fn prove(
        &mut self,
        body: &[u8],
        secret: &dyn Fn(&str) -> Option<Secret>,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut fields = Body::new(body);
        let good = match self {
            Self::Startup => false,
            Self::Password { user } => match (secret(user), fields.cstr()) {
                (Some(Secret::Plain(password)), Ok(given)) => password.as_bytes() == given,
                _ => false,
            },
            Self::Md5 { user, salt } => match (secret(user), fields.cstr()) {
                (Some(secret), Ok(given)) => verify_md5(&secret, user, *salt, given),
                _ => false,
            },
            Self::Scram { exchange, is_first } => {
                return prove_scram(exchange, is_first, fields, out);
            }
        };
        if good { Step::Accepted } else { refuse(out) }
    }
}

impl StartupOptions {
    fn read<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>) -> Self {
        let mut options = Self::default();
        for (name, value) in pairs {
            let [name, value] =
                [name, value].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            match name.as_str() {
                "user" => options.user = value,
                "database" => options.database = value,
                "replication" => options.replicates = true,
                _ => options.settings.push((name, value)),
            }
        }
        options
    }

    /// Returns the settings with which a session of this startup packet begins.
    pub(super) fn settings(&self) -> Values {
        let pairs = self.settings.iter();
        defaults(
            &self.user,
            pairs.map(|(name, value)| (name.as_str(), value.as_str())),
        )
    }
}

/// Returns the settings with which a session of this user begins, given the settings in its startup packet.
pub(super) fn defaults<'p>(user: &str, asked: impl Iterator<Item = (&'p str, &'p str)>) -> Values {
    let lower = |name: &str| name.to_ascii_lowercase();
    let defaults = DEFAULTS.iter();
    let mut settings: Values = defaults
        .map(|&(name, value)| (lower(name), value.to_owned()))
        .collect();
    settings.insert("session_authorization".to_owned(), user.to_owned());
    for (name, value) in asked {
        settings
            .entry(lower(name))
            .and_modify(|own| value.clone_into(own));
    }
    settings
}

/// Returns all parameters of the model, with their values.
const DEFAULTS: [(&str, &str); 20] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "Etc/UTC"),
    ("standard_conforming_strings", "on"),
    ("application_name", ""),
    ("IntervalStyle", "postgres"),
    ("work_mem", "4MB"),
    ("role", "none"),
    ("search_path", "public"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("transaction_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("synchronous_commit", "on"),
    ("default_transaction_deferrable", "off"),
    ("client_min_messages", "notice"),
    ("jit", "on"),
    ("quote_all_identifiers", "off"),
    ("is_superuser", "off"),
];

fn prove_scram(
    exchange: &mut scram::ServerExchange,
    is_first: &mut bool,
    mut fields: Body<'_>,
    out: &mut Vec<u8>,
) -> Step {
    if std::mem::take(is_first) {
        let mechanism = fields.cstr().unwrap_or_default();
        let mechanism = String::from_utf8_lossy(mechanism).into_owned();
        let length = fields.i32();
        return match exchange.client_first(&mechanism, fields.rest()) {
            Ok(answer) if length.is_ok() => {
                MessageWriter::new(out).authentication(Authentication::SaslContinue(&answer));
                Step::Wait
            }
            _ => refuse(out),
        };
    }
    match exchange.client_final(fields.rest()) {
        Ok((answer, _)) => {
            MessageWriter::new(out).authentication(Authentication::SaslFinal(&answer));
            Step::Accepted
        }
        Err(_) => refuse(out),
    }
}

/// Returns the secret in the model's `pg_authid` for a plain password.
fn scram_secret(secret: Secret) -> scram::Secret {
    match secret {
        Secret::Scram(secret) => secret,
        Secret::Plain(password) => {
            let salt = vec![9; 16];
            let keys = scram::DeriveJob::new(password.as_bytes(), salt.clone(), 2).run();
            scram::build_secret(&keys, salt, 2)
        }
        Secret::Md5(text) => {
            let salt = vec![9; 16];
            let keys = scram::DeriveJob::new(text.as_bytes(), salt.clone(), 2).run();
            scram::build_secret(&keys, salt, 2)
        }
    }
}

fn refuse(out: &mut Vec<u8>) -> Step {
    MessageWriter::new(out).error(Severity::Fatal, "28P01", super::WRONG_PASSWORD, None, None);
    Step::Refused
}
