//! The server's side of SCRAM: a client logs in to pgweir.

use std::fmt;

use subtle::{Choice, ConstantTimeEq};

use super::{
    ClientKeys, END_POINT_HEADER, MAX_CLIENT_MESSAGE_BYTES, MECHANISM, MECHANISM_PLUS, NONCE_BYTES,
    ScramError, Secret, keys,
    message::{self, Attributes},
};

/// The server's side of a client's login. `Debug` shows the step only.
pub struct ServerExchange {
    secret: Secret,
    /// Whether the user does not exist. Then the exchange fails at its end.
    is_mock: bool,
    nonce: String,
    /// The hash of pgweir's certificate, if channel binding is offered.
    end_point: Option<Box<[u8]>>,
    step: Step,
}

/// ```text
/// First --client_first--> Final --client_final--> Over
///   \________________________\_____(any error)_____/
/// ```
enum Step {
    First,
    Final {
        flag: Gs2Flag,
        /// `client-first-message-bare "," server-first-message`.
        transcript: Vec<u8>,
        /// The client's nonce and pgweir's.
        nonce: Vec<u8>,
    },
    Over,
}

/// The client's statement about channel binding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gs2Flag {
    /// The client does not support channel binding.
    No,
    /// The client supports channel binding, and believes that pgweir does not.
    NotOffered,
    /// The client uses channel binding.
    EndPoint,
}

impl ServerExchange {
    /// Creates the exchange of a user with a usable secret. `nonce` is random and used once.
    #[must_use]
    pub fn new(secret: Secret, nonce: &[u8; NONCE_BYTES]) -> Self {
        Self {
            secret,
            is_mock: false,
            nonce: keys::nonce_text(nonce),
            end_point: None,
            step: Step::First,
        }
    }

    /// Creates the exchange of a user who does not exist or has no usable secret. The exchange takes the usual steps, with
    /// the user's [`user_salt`](super::user_salt), and fails at its end.
    #[must_use]
    pub fn mock(
        process_key: &[u8; 32],
        user: &str,
        iterations: u32,
        nonce: &[u8; NONCE_BYTES],
    ) -> Self {
        Self {
            secret: keys::mock_secret(process_key, user, iterations),
            is_mock: true,
            nonce: keys::nonce_text(nonce),
            end_point: None,
            step: Step::First,
        }
    }

    /// Offers channel binding to pgweir's certificate with this hash.
    #[must_use]
    pub fn bound_to(mut self, end_point: Option<Box<[u8]>>) -> Self {
        self.end_point = end_point;
        self
    }

    /// Returns the offered mechanisms, the better one first.
    #[must_use]
    pub fn mechanisms(&self) -> &'static [&'static str] {
        match self.end_point {
            Some(_) => &[MECHANISM_PLUS, MECHANISM],
            None => &[MECHANISM],
        }
    }

    /// Takes the client's first message. Returns the server's first message.
    ///
    /// # Errors
    /// When the message is malformed, or asks for a mechanism or option that pgweir does not offer. The exchange is over then.
    pub fn client_first(&mut self, mechanism: &str, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let Step::First = std::mem::replace(&mut self.step, Step::Over) else {
            return Err(ScramError::OutOfOrder);
        };
        if !self.mechanisms().contains(&mechanism) {
            return Err(ScramError::Mechanism);
        }
        let (flag, bare, client_nonce) = parse_client_first(message)?;
        self.check_flag(flag, mechanism)?;
        let nonce = [client_nonce, self.nonce.as_bytes()].concat();
        let salt = message::encode(&self.secret.salt);
        let parameters = format!(",s={salt},i={}", self.secret.iterations);
        let server_first = [b"r=", nonce.as_slice(), parameters.as_bytes()].concat();
        self.step = Step::Final {
            flag,
            transcript: [bare, b",", &server_first].concat(),
            nonce,
        };
        Ok(server_first)
    }

    /// Takes the client's last message. Returns the server's last message, and the keys that the client has proved to have:
    /// pgweir can log in with them to any server with the same secret.
    ///
    /// # Errors
    /// [`ScramError::Failed`] if the password is wrong or the user does not exist, and another error if the message is
    /// malformed. The exchange is over then.
    pub fn client_final(&mut self, message: &[u8]) -> Result<(Vec<u8>, ClientKeys), ScramError> {
        let step = std::mem::replace(&mut self.step, Step::Over);
        let Step::Final {
            flag,
            transcript,
            nonce,
        } = step
        else {
            return Err(ScramError::OutOfOrder);
        };
        let bound = match flag {
            Gs2Flag::No => b"n,,".to_vec(),
            Gs2Flag::NotOffered => b"y,,".to_vec(),
            Gs2Flag::EndPoint => {
                let hash = self.end_point.as_deref().unwrap_or_default();
                [END_POINT_HEADER.as_bytes(), hash].concat()
            }
        };
        let (proof, without_proof) = parse_client_final(message, flag, &bound, &nonce)?;
        let auth_message = [&transcript, b",".as_slice(), without_proof].concat();
        let client_key = keys::mask(&proof, &self.secret.stored_key, &auth_message);
        let is_right = keys::stored_key(&client_key).ct_eq(&*self.secret.stored_key)
            & !Choice::from(u8::from(self.is_mock));
        if !bool::from(is_right) {
            return Err(ScramError::Failed);
        }
        let signature = keys::server_signature(&self.secret.server_key, &auth_message);
        let server_final = format!("v={}", message::encode(&*signature));
        let keys = ClientKeys {
            client_key,
            server_key: self.secret.server_key.clone(),
        };
        Ok((server_final.into_bytes(), keys))
    }

    /// Checks that the client's statement about channel binding fits the mechanism, and pgweir's offer.
    fn check_flag(&self, flag: Gs2Flag, mechanism: &str) -> Result<(), ScramError> {
        match flag {
            Gs2Flag::EndPoint if mechanism != MECHANISM_PLUS => Err(ScramError::Malformed(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel \
                 binding data.",
            )),
            Gs2Flag::No | Gs2Flag::NotOffered if mechanism == MECHANISM_PLUS => {
                Err(ScramError::Malformed(
                    "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding \
                     data.",
                ))
            }
            Gs2Flag::NotOffered if self.end_point.is_some() => Err(ScramError::Downgrade),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for ServerExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::First => "First",
            Step::Final { .. } => "Final",
            Step::Over => "Over",
        };
        f.debug_struct("ServerExchange")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}

/// Splits `gs2-header client-first-message-bare`: returns the flag, the bare message, and the nonce in it.
fn parse_client_first(message: &[u8]) -> Result<(Gs2Flag, &[u8], &[u8]), ScramError> {
    let mut attributes = Attributes::new(message, MAX_CLIENT_MESSAGE_BYTES)?;
    let flag = match attributes.field() {
        Some(b"n") => Gs2Flag::No,
        Some(b"y") => Gs2Flag::NotOffered,
        Some(b"p=tls-server-end-point") => Gs2Flag::EndPoint,
        Some([b'p', b'=', ..]) => {
            return Err(ScramError::Unsupported(
                "unsupported SCRAM channel-binding type",
            ));
        }
        _ => return Err(ScramError::Malformed("Unexpected channel-binding flag.")),
    };
    match attributes.field() {
        Some(b"") => {}
        Some([b'a', ..]) => {
            return Err(ScramError::Unsupported(
                "client uses authorization identity, but it is not supported",
            ));
        }
        _ => return Err(ScramError::Malformed("Unexpected attribute.")),
    }
    let bare = message.get(attributes.position()..).unwrap_or_default();
    if attributes.peek() == Some(b'm') {
        return Err(ScramError::Unsupported(
            "client requires an unsupported SCRAM extension",
        ));
    }
    // As in PostgreSQL, the startup packet names the user, and this name is ignored (libpq leaves it empty).
    attributes.expect(b'n', "User name expected.")?;
    let nonce = attributes.expect(b'r', "Nonce expected.")?;
    message::check_nonce(nonce)?;
    attributes.skip_extensions()?;
    Ok((flag, bare, nonce))
}

/// Returns the proof, and the message up to the proof. `bound` is the header of the client's first message, followed by the
/// channel binding data.
fn parse_client_final<'a>(
    message: &'a [u8],
    flag: Gs2Flag,
    bound: &[u8],
    nonce: &[u8],
) -> Result<([u8; 32], &'a [u8]), ScramError> {
    let mut attributes = Attributes::new(message, MAX_CLIENT_MESSAGE_BYTES)?;
    let binding = attributes.expect(b'c', "Channel binding expected.")?;
    if binding != message::encode(bound).as_bytes() {
        return Err(match flag {
            Gs2Flag::EndPoint => ScramError::Binding,
            _ => ScramError::Malformed(
                "Unexpected channel-binding attribute in client-final-message.",
            ),
        });
    }
    let final_nonce = attributes.expect(b'r', "Nonce expected.")?;
    let (proof, proof_start) = loop {
        let start = attributes.position();
        match attributes.attribute()? {
            Some((b'p', value)) => break (value, start),
            Some(_) => {} // an optional extension
            None => return Err(ScramError::Malformed("Proof expected.")),
        }
    };
    let proof = message::decode_key(proof).ok_or(ScramError::Malformed(
        "Malformed proof in client-final-message.",
    ))?;
    if attributes.field().is_some() {
        return Err(ScramError::Malformed(
            "Garbage found at the end of client-final-message.",
        ));
    }
    if final_nonce != nonce {
        return Err(ScramError::Nonce);
    }
    // The comma before the proof belongs to neither.
    Ok((proof, message.get(..proof_start - 1).unwrap_or_default()))
}
