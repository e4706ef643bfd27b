//! The types of settings that are neither a number nor a text.

use std::fmt;

use crate::{
    number,
    value::{BadValue, Value},
};

/// A span of time in microseconds. The meaning of zero depends on the setting: mostly "disabled".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Returns a time of so many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    /// Returns a time of so many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Returns whether the time is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Prints seconds, as C's `%g` does: `15`, `1.5`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// An amount of memory in bytes. The meaning of zero depends on the setting: mostly "no limit".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A text that appears in no log, no error and no `Debug` output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself, for code that has to send or compare the secret.
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

/// Declares an enum whose variants have the given spelling in the ini file, in any case.
macro_rules! choices {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$note])* $variant,)+ }

        impl $name {
            /// Returns the spelling in the ini file.
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
    /// When a server connection returns to its pool.
    pub enum PoolMode {
        /// When its client disconnects.
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transactions of several statements are refused.
        Statement = "statement",
    }
}

choices! {
    /// The session state that clients keep in transaction mode, on every server connection.
    pub enum SessionState {
        /// All session state, as if each client had its own server connection.
        Transparent = "transparent",
        /// The parameters that PgBouncer tracks.
        Off = "off",
    }
}

choices! {
    /// The treatment of a server connection that may keep state that no clean removes.
    pub enum Unclean {
        /// The server connection is closed.
        Close = "close",
        /// The server connection is cleaned all the same.
        Ignore = "ignore",
    }
}

choices! {
    /// When server connections are cleaned before another client gets them.
    pub enum HandoverClean {
        /// When they have, or may have, session state.
        Auto = "auto",
        /// Each time they return to the pool.
        Always = "always",
    }
}

choices! {
    /// How clients authenticate.
    pub enum AuthType {
        /// No proof, and any name: the user on the server is the one that the database forces.
        Any = "any",
        /// No proof, but the user must be known.
        Trust = "trust",
        /// The password in clear text.
        Plain = "plain",
        /// An MD5 hash, or SCRAM for users whose secret is a SCRAM one.
        Md5 = "md5",
        /// A TLS client certificate.
        Cert = "cert",
        /// By the rules of the HBA file.
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
    /// The required level of TLS.
    pub enum SslMode {
        /// No TLS.
        Disable = "disable",
        /// TLS if the other side wants it.
        Allow = "allow",
        /// TLS if the other side supports it.
        Prefer = "prefer",
        /// TLS always.
        Require = "require",
        /// TLS always, with a certificate that a known authority signed.
        VerifyCa = "verify-ca",
        /// As `verify-ca`, and the name in the certificate must match.
        VerifyFull = "verify-full",
    }
}

choices! {
    /// The way in which a TLS connection to a server begins.
    pub enum TlsNegotiation {
        /// With a request to the server.
        Postgres = "postgres",
        /// At once.
        Direct = "direct",
    }
}

choices! {
    /// The form of log lines.
    pub enum LogFormat {
        /// As PgBouncer writes them.
        Pgbouncer = "pgbouncer",
        /// JSON objects.
        Json = "json",
    }
}

choices! {
    /// Whether `http_listen` uses TLS.
    pub enum HttpTls {
        /// As for clients (`client_tls_sslmode`).
        Client = "client",
        /// Never.
        Disable = "disable",
    }
}

impl SslMode {
    /// Returns whether connections without TLS are refused.
    #[must_use]
    pub fn is_required(self) -> bool {
        matches!(self, Self::Require | Self::VerifyCa | Self::VerifyFull)
    }

    /// Returns whether the other side must show a certificate that a known authority signed.
    #[must_use]
    pub fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyFull)
    }
}

/// The ports of a list of servers: one for all, or one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(Vec<u16>);

impl Ports {
    /// The same port for all servers.
    #[must_use]
    pub fn same(port: u16) -> Self {
        Self(vec![port])
    }

    /// Returns the first server's port.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Returns the port of the server at this place of the list.
    #[must_use]
    pub fn of(&self, server: usize) -> u16 {
        self.0.get(server).copied().unwrap_or(self.first())
    }

    /// Returns whether there is one port for each of so many servers, or one for all.
    #[must_use]
    pub fn fit(&self, servers: usize) -> bool {
        self.0.len() == 1 || self.0.len() == servers
    }
}

impl Value for Micros {
    const KIND: &'static str = "time";
    const UNIT: Option<&'static str> = Some("seconds");
    const UNSET: Option<&'static str> = Some("-1");

    fn parse(text: &str) -> Result<Self, BadValue> {
        let time = number::duration(text, 1_000_000.0).map(Self);
        time.ok_or_else(|| {
            BadValue::new("seconds such as 15 or 0.5, or a number with us, ms, s, min, h or d")
        })
    }

    fn show(&self) -> String {
        number::general(self.0 as f64 / 1e6)
    }
}

impl Value for Bytes {
    const KIND: &'static str = "memory";
    const UNIT: Option<&'static str> = Some("bytes");

    fn parse(text: &str) -> Result<Self, BadValue> {
        number::memory(text)
            .map(Self)
            .ok_or_else(|| BadValue::new("bytes, or a whole number with B, kB, MB, GB or TB"))
    }

    /// Shows the number with the largest unit that fits, as PostgreSQL does.
    fn show(&self) -> String {
        let units = number::MEMORY_UNITS.iter().rev();
        let mut fitting = units.filter(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size));
        match fitting.next() {
            Some((unit, size)) if *size > 1 => format!("{}{unit}", self.0 / size),
            _ => self.0.to_string(),
        }
    }
}

impl Value for FileMode {
    const KIND: &'static str = "file mode";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let bits = number::unsigned(text).filter(|bits| *bits <= 0o7777);
        bits.map(Self)
            .ok_or_else(|| BadValue::new("a file mode in octal with a leading 0, such as 0770"))
    }

    fn show(&self) -> String {
        self.0.to_string() // PgBouncer shows it in decimal
    }
}

impl Value for Secret {
    const KIND: &'static str = "text";
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(Secret::new(text))
    }

    fn show(&self) -> String {
        "****".to_owned()
    }
}

impl Value for Ports {
    const KIND: &'static str = "port, or a list of ports";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let ports = text.split(',').map(|port| u16::parse(port.trim()));
        let ports: Vec<u16> = ports.collect::<Result<_, _>>()?;
        match ports.contains(&0) {
            true => Err(BadValue::new("a port number, 1 to 65535")),
            false => Ok(Self(ports)),
        }
    }

    fn show(&self) -> String {
        let ports: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        ports.join(",")
    }
}

choices! {
    /// The servers of a list that are used, chosen by the role that they report. The meanings are libpq's.
    pub enum TargetSession {
        /// Any.
        Any = "any",
        /// Servers whose transactions can write.
        ReadWrite = "read-write",
        /// Servers whose transactions can't write.
        ReadOnly = "read-only",
        /// Servers that are not in hot standby.
        Primary = "primary",
        /// Servers in hot standby.
        Standby = "standby",
        /// Servers in hot standby; any server as long as no standby can be reached.
        PreferStandby = "prefer-standby",
    }
}

impl TargetSession {
    /// Returns whether this value asks for standbys.
    #[must_use]
    pub fn prefers_standbys(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Standby | Self::PreferStandby)
    }
}

choices! {
    /// Which writes the reads of an entry see when a standby executes them.
    pub enum ReadAfterWrite {
        /// Only the writes that the standby has replayed already.
        Off = "off",
        /// Every write that pgweir has confirmed to any client before the read.
        Lsn = "lsn",
    }
}

choices! {
    /// The host of a list to which a new server connection is opened.
    pub enum LoadBalance {
        /// Each host in turn.
        RoundRobin = "round-robin",
        /// The same host until it fails.
        Disable = "disable",
    }
}

choices! {
    /// How the workers wait for their sockets.
    pub enum IoDriver {
        /// io_uring if the kernel allows it, else epoll.
        Auto = "auto",
        /// epoll.
        Epoll = "epoll",
        /// io_uring. If the kernel does not allow it, epoll, with a warning.
        IoUring = "io_uring",
    }
}

choices! {
    /// The facility of pgweir's lines in syslog.
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

/// How much less than the longest-waiting client a client may have waited to be served before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FairWindow {
    /// The larger of 2 ms and a quarter of the oldest waiter's wait.
    Auto,
    /// A fixed time. With 0, clients are served in strict order.
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
