//! The types of settings that are more than a number or a text.

use std::fmt;

use crate::{
    number,
    value::{BadValue, Value},
};

/// A span of time in microseconds. What zero means is the setting's own: mostly "disabled".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// So many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Is it zero?
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// In seconds, as C's `%g` prints them: `15`, `1.5`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// A text that appears in no log, no error and no `Debug` output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one who has to prove it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(****)")
    }
}

/// Permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// Declares an enum whose variants are spelled in the ini file as given, in any case.
macro_rules! choices {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$note])* $variant,)+ }

        impl $name {
            /// How the ini file spells it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Value for $name {
            const KIND: &'static str = concat!("one of" $(, " `", $text, "`")+);

            fn parse(text: &str) -> Result<Self, BadValue> {
                match text.to_ascii_lowercase().as_str() {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(BadValue::new(format!("one of {}", [$($text),+].join(", ")))),
                }
            }

            fn show(&self) -> String {
                self.as_str().to_owned()
            }
        }
    };
}

choices! {
    /// When a server goes back to its pool.
    pub enum PoolMode {
        /// When its client leaves.
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transactions of several statements are refused.
        Statement = "statement",
    }
}

choices! {
    /// What of a session clients find on every server, in transaction mode.
    pub enum SessionState {
        /// All of it: as if each client had a server of its own.
        Transparent = "transparent",
        /// What PgBouncer follows.
        Off = "off",
    }
}

choices! {
    /// What becomes of a server that may keep what no clean takes away.
    pub enum Unclean {
        /// It is closed.
        Close = "close",
        /// It is cleaned all the same.
        Ignore = "ignore",
    }
}

choices! {
    /// When servers are cleaned before another client gets them.
    pub enum HandoverClean {
        /// When they hold, or may hold, something of a session.
        Auto = "auto",
        /// Each time that they go back.
        Always = "always",
    }
}

choices! {
    /// How clients prove who they are.
    pub enum AuthType {
        /// No proof, and any name: the server's user is the one that the database forces.
        Any = "any",
        /// No proof, but the user must be known.
        Trust = "trust",
        /// The password in clear text.
        Plain = "plain",
        /// An MD5 hash, or SCRAM for users whose secret is a SCRAM one.
        Md5 = "md5",
        /// A TLS client certificate.
        Cert = "cert",
        /// As the HBA file says.
        Hba = "hba",
        /// A password checked by an LDAP server.
        Ldap = "ldap",
        /// A password checked by PAM.
        Pam = "pam",
        /// SCRAM-SHA-256.
        ScramSha256 = "scram-sha-256",
    }
}

choices! {
    /// What is asked of TLS.
    pub enum SslMode {
        /// No TLS.
        Disable = "disable",
        /// If the other side wants it.
        Allow = "allow",
        /// If the other side can do it.
        Prefer = "prefer",
        /// Always.
        Require = "require",
        /// Always, with a certificate that a known authority signed.
        VerifyCa = "verify-ca",
        /// Also the name in the certificate must be right.
        VerifyFull = "verify-full",
    }
}

choices! {
    /// How TLS begins with a server.
    pub enum TlsNegotiation {
        /// The server is asked first.
        Postgres = "postgres",
        /// At once.
        Direct = "direct",
    }
}

choices! {
    /// Is TLS spoken on `http_listen`?
    pub enum HttpTls {
        /// As with clients (`client_tls_sslmode`).
        Client = "client",
        /// Never.
        Disable = "disable",
    }
}

impl SslMode {
    /// Is a connection without TLS none?
    #[must_use]
    pub fn is_required(self) -> bool {
        matches!(self, Self::Require | Self::VerifyCa | Self::VerifyFull)
    }

    /// Must the other side show a certificate that a known authority signed?
    #[must_use]
    pub fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyFull)
    }
}

choices! {
    /// Which host of a list a new server connection goes to.
    pub enum LoadBalance {
        /// Each in turn.
        RoundRobin = "round-robin",
        /// The same one until it fails.
        Disable = "disable",
    }
}

choices! {
    /// Which part of the system a line in syslog comes from.
    pub enum SyslogFacility {
        /// `LOG_DAEMON`
        Daemon = "daemon",
        /// `LOG_AUTH`
        Auth = "auth",
        /// `LOG_AUTHPRIV`
        Authpriv = "authpriv",
        /// `LOG_USER`
        User = "user",
        /// `LOG_LOCAL0`
        Local0 = "local0",
        /// `LOG_LOCAL1`
        Local1 = "local1",
        /// `LOG_LOCAL2`
        Local2 = "local2",
        /// `LOG_LOCAL3`
        Local3 = "local3",
        /// `LOG_LOCAL4`
        Local4 = "local4",
        /// `LOG_LOCAL5`
        Local5 = "local5",
        /// `LOG_LOCAL6`
        Local6 = "local6",
        /// `LOG_LOCAL7`
        Local7 = "local7",
    }
}

/// How much younger than the oldest waiter a client may be and still be served before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FairWindow {
    /// The larger of 2 ms and a quarter of the oldest's wait.
    Auto,
    /// So much; 0 is strict order.
    Micros(Micros),
}

impl Value for FairWindow {
    const KIND: &'static str = "time or `auto`";
    const UNIT: Option<&'static str> = Some("milliseconds");

    fn parse(text: &str) -> Result<Self, BadValue> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let window = number::duration(text, 1e3).map(|micros| Self::Micros(Micros(micros)));
        window.ok_or_else(|| BadValue::new("auto, or milliseconds such as 2 or 0.5"))
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Micros(micros) => number::general(micros.0 as f64 / 1e3),
        }
    }
}
