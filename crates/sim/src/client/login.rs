//! A model client's login.

use std::collections::VecDeque;

use pgweir_auth::{
    md5,
    scram::{self, ClientExchange, DeriveJob},
};
use pgweir_wire::{Body, MessageWriter, startup_packet};

use crate::scenario::Account;

/// The state of a login.
#[derive(Default)]
pub(super) struct Login {
    user: String,
    password: String,
    database: &'static str,
    /// The `application_name` in the startup packet.
    application_name: Option<String>,
    /// Whether the client wants a replication connection.
    pub(super) replicates: bool,
    asks_for_tls: bool,
    /// The minor version of the protocol.
    minor: u16,
    is_wrong: bool,
    exchange: Option<ClientExchange>,
}

impl Login {
    pub(super) fn new(account: &Account, index: usize, rng: &mut fastrand::Rng) -> Self {
        let is_wrong = rng.u8(..25) == 0;
        let password = if is_wrong {
            "a guess"
        } else {
            account.password
        };
        Self {
            user: account.name.to_owned(),
            password: password.to_owned(),
            database: ["alpha", "beta"][rng.usize(..2)],
            application_name: rng.bool().then(|| format!("app-{index}")),
            replicates: false,
            asks_for_tls: rng.u8(..8) == 0,
            minor: [0, 0, 0, 0, 2, 2, 9][rng.usize(..7)],
            is_wrong,
            exchange: None,
        }
    }

    /// Leaves `application_name` out of the startup packet.
    pub(super) fn is_unnamed(&self) -> bool {
        self.application_name.is_none()
    }

    /// Makes the client log in to the console.
    pub(super) fn at_console(&mut self, rng: &mut fastrand::Rng) {
        self.database = ["pgbouncer", "pgweir"][rng.usize(..2)];
    }

    /// Sends the first packet.
    pub(super) fn begin(&self, out: &mut VecDeque<u8>) {
        if self.asks_for_tls {
            out.extend([0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
            return;
        }
        let mut pairs = vec![("user", self.user.as_str()), ("database", self.database)];
        if let Some(name) = &self.application_name {
            pairs.push(("application_name", name));
        }
        if self.replicates {
            pairs.push(("replication", "database"));
        }
        if self.minor > 2 {
            pairs.push(("_pq_.wish", "much"));
        }
        let mut packet = Vec::new();
        let pairs = pairs.iter();
        startup_packet(
            &mut packet,
            pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        packet[6..8].copy_from_slice(&self.minor.to_be_bytes());
        out.extend(packet);
    }

    /// Returns the protocol version that the pooler has to send in NegotiateProtocolVersion, if any.
    pub(super) fn check_negotiation(&self, body: &[u8]) -> Result<(), String> {
        let expected: &[u8] = b"\0\x03\0\x02\0\0\0\x01_pq_.wish\0";
        if self.minor > 2 && body == expected {
            return Ok(());
        }
        Err(format!(
            "asks for 3.{} and is told \"{}\"",
            self.minor,
            body.escape_ascii()
        ))
    }

    /// Returns whether a cancel key's secret may have this number of bytes.
    pub(super) fn is_secret_length(&self, length: usize) -> bool {
        match self.minor {
            0 => length == 4,
            _ => (4..=256).contains(&length),
        }
    }

    /// Handles the answer to SSLRequest, if there was one; then the login begins again. The bytes stay unencrypted in
    /// any case: the driver of this world only tells the pooler that TLS is in use.
    pub(super) fn takes_answer_to_tls(&mut self, input: &mut Vec<u8>) -> bool {
        if self.asks_for_tls && matches!(input.first(), Some(b'N' | b'S')) {
            input.remove(0);
            self.asks_for_tls = false;
            return true;
        }
        false
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Returns the client's user, and its `application_name`.
    pub(super) fn identity(&self) -> (&str, Option<&str>) {
        (&self.user, self.application_name.as_deref())
    }

    /// Returns whether the client sends a wrong password.
    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// Answers an authentication message.
    pub(super) fn answer(&mut self, body: &[u8], out: &mut VecDeque<u8>) -> Result<(), String> {
        let mut fields = Body::new(body);
        let mut answer = Vec::new();
        let mut writer = MessageWriter::new(&mut answer);
        match fields.i32() {
            Ok(0) => {}
            Ok(3) => {
                writer.password(self.password.as_bytes());
            }
            Ok(5) => {
                let salt = fields.rest().try_into().map_err(|_| "gets no salt")?;
                let response = md5::response(&md5::secret(&self.password, &self.user), salt);
                writer.password(response.as_bytes());
            }
            Ok(10) => {
                let exchange = ClientExchange::new(&[3; 18]);
                writer.sasl_initial_response(scram::MECHANISM, &exchange.first());
                self.exchange = Some(exchange);
            }
            Ok(11) => {
                let response = self.prove(fields.rest())?;
                writer.sasl_response(&response);
            }
            Ok(12) => {
                let exchange = self.exchange.as_mut().ok_or("gets SASL out of order")?;
                exchange
                    .server_final(fields.rest())
                    .map_err(|error| format!("finds the pooler's proof wrong: {error}"))?;
            }
            other => return Err(format!("is asked for {other:?}")),
        }
        out.extend(answer);
        Ok(())
    }

    fn prove(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let exchange = self.exchange.as_mut().ok_or("gets SASL out of order")?;
        let challenge = exchange
            .server_first(message)
            .map_err(|error| error.to_string())?;
        let password = self.password.as_bytes();
        let keys = DeriveJob::new(password, challenge.salt, challenge.iterations).run();
        exchange.finish(&keys).map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}
