//! The client's side of SCRAM: pgweir logs in to PostgreSQL.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    ClientKeys, END_POINT_HEADER, KEY_BYTES, MAX_ITERATIONS, MAX_SERVER_MESSAGE_BYTES, MECHANISM,
    MECHANISM_PLUS, NONCE_BYTES, ScramError, keys,
    message::{self, Attributes},
};

/// The beginning of `client-first-message-bare`, before the nonce: the empty user name.
const BARE_PREFIX: &str = "n=,r=";

/// The number of characters of a server's error that are kept.
const REASON_CHARS_MAX: usize = 200;

/// The salt and the iteration count with which the server wants the password hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The salt.
    pub salt: Vec<u8>,
    /// The iteration count, 1 to [`MAX_ITERATIONS`].
    pub iterations: u32,
}

/// The statement about channel binding in the header of each message. There is no authorization identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Channel binding is impossible, since there is no TLS.
    None,
    /// Channel binding is possible, but the server has not offered it. If the server did offer it, a man in the middle
    /// removed the offer.
    NotOffered,
    /// The exchange is bound to the server's certificate, of which this is the hash.
    EndPoint(Box<[u8]>),
}

impl ChannelBinding {
    fn header(&self) -> &'static str {
        match self {
            Self::None => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => END_POINT_HEADER,
        }
    }
}

/// The client's side of a login to a server. `Debug` shows the step only.
pub struct ClientExchange {
    /// `client-first-message-bare`: [`BARE_PREFIX`] and pgweir's nonce.
    first_bare: String,
    binding: ChannelBinding,
    step: Step,
}

/// ```text
/// First --server_first--> Challenged --finish--> Proved --server_final--> Verified
///   \_______________________\________(any error)___\____________________/ Failed
/// ```
enum Step {
    First,
    Challenged {
        server_first: Vec<u8>,
        nonce: Vec<u8>,
    },
    Proved {
        server_signature: Zeroizing<[u8; KEY_BYTES]>,
    },
    Verified,
    Failed,
}

impl ClientExchange {
    /// Creates an exchange. The nonce is random and used once.
    #[must_use]
    pub fn new(nonce: &[u8; NONCE_BYTES]) -> Self {
        Self {
            first_bare: [BARE_PREFIX, &keys::nonce_text(nonce)].concat(),
            binding: ChannelBinding::None,
            step: Step::First,
        }
    }

    /// Sets the statement about channel binding.
    #[must_use]
    pub fn with_binding(mut self, binding: ChannelBinding) -> Self {
        self.binding = binding;
        self
    }

    /// Returns the name of the mechanism.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        match self.binding {
            ChannelBinding::EndPoint(_) => MECHANISM_PLUS,
            _ => MECHANISM,
        }
    }

    /// Returns the client's first message.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        [self.binding.header(), &self.first_bare]
            .concat()
            .into_bytes()
    }

    /// Takes the server's first message. Returns the salt and the iteration count from which the keys are derived.
    ///
    /// # Errors
    /// When the message is malformed, repeats another nonce, or asks for too many iterations.
    pub fn server_first(&mut self, message: &[u8]) -> Result<Challenge, ScramError> {
        let Step::First = std::mem::replace(&mut self.step, Step::Failed) else {
            return Err(ScramError::OutOfOrder);
        };
        let (nonce, challenge) = parse_server_first(message)?;
        let own_nonce = &self.first_bare.as_bytes()[BARE_PREFIX.len()..];
        match nonce.strip_prefix(own_nonce) {
            None | Some([]) => return Err(ScramError::Nonce),
            Some(_) => {}
        }
        self.step = Step::Challenged {
            server_first: message.to_vec(),
            nonce: nonce.to_vec(),
        };
        Ok(challenge)
    }

    /// Returns the client's last message, with the proof that pgweir has the keys.
    ///
    /// # Errors
    /// [`ScramError::OutOfOrder`] unless the server's first message was just accepted.
    pub fn finish(&mut self, keys: &ClientKeys) -> Result<Vec<u8>, ScramError> {
        let step = std::mem::replace(&mut self.step, Step::Failed);
        let Step::Challenged {
            server_first,
            nonce,
        } = step
        else {
            return Err(ScramError::OutOfOrder);
        };
        let hash: &[u8] = match &self.binding {
            ChannelBinding::EndPoint(hash) => hash,
            _ => &[],
        };
        let bound = message::encode(&[self.binding.header().as_bytes(), hash].concat());
        let mut message = format!("c={bound},r=").into_bytes();
        message.extend_from_slice(&nonce);
        let bare = self.first_bare.as_bytes();
        let auth_message = [bare, b",", &server_first, b",", &message].concat();
        let stored_key = Zeroizing::new(keys::stored_key(&keys.client_key));
        let proof = keys::mask(&keys.client_key, &stored_key, &auth_message);
        message.extend_from_slice(b",p=");
        message.extend_from_slice(message::encode(&*proof).as_bytes());
        self.step = Step::Proved {
            server_signature: keys::server_signature(&keys.server_key, &auth_message),
        };
        Ok(message)
    }

    /// Takes the server's last message and checks its signature.
    ///
    /// # Errors
    /// When the server refuses the login, or can't prove that it knows the password's keys.
    pub fn server_final(&mut self, message: &[u8]) -> Result<(), ScramError> {
        let step = std::mem::replace(&mut self.step, Step::Failed);
        let Step::Proved { server_signature } = step else {
            return Err(ScramError::OutOfOrder);
        };
        let given = parse_server_final(message)?;
        if !bool::from(given.ct_eq(&*server_signature)) {
            return Err(ScramError::ServerSignature);
        }
        self.step = Step::Verified;
        Ok(())
    }

    /// Returns whether the server's signature was right. Before that, an `AuthenticationOk` proves nothing and must be
    /// refused.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        matches!(self.step, Step::Verified)
    }
}

impl fmt::Debug for ClientExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::First => "First",
            Step::Challenged { .. } => "Challenged",
            Step::Proved { .. } => "Proved",
            Step::Verified => "Verified",
            Step::Failed => "Failed",
        };
        f.debug_struct("ClientExchange")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}

fn parse_server_first(message: &[u8]) -> Result<(&[u8], Challenge), ScramError> {
    let mut attributes = Attributes::new(message, MAX_SERVER_MESSAGE_BYTES)?;
    if attributes.peek() == Some(b'm') {
        return Err(ScramError::Unsupported(
            "server requires an unsupported SCRAM extension",
        ));
    }
    let nonce = attributes.expect(b'r', "Nonce expected.")?;
    message::check_nonce(nonce)?;
    let salt = attributes.expect(b's', "Salt expected.")?;
    let salt = message::decode(salt)
        .filter(|salt| !salt.is_empty())
        .ok_or(ScramError::Malformed("Invalid salt."))?;
    let iterations = attributes.expect(b'i', "Iteration count expected.")?;
    let iterations = message::parse_iterations(iterations)
        .ok_or(ScramError::Malformed("Invalid iteration count."))?;
    if iterations > MAX_ITERATIONS {
        return Err(ScramError::TooManyIterations);
    }
    attributes.skip_extensions()?;
    Ok((nonce, Challenge { salt, iterations }))
}

fn parse_server_final(message: &[u8]) -> Result<[u8; KEY_BYTES], ScramError> {
    let mut attributes = Attributes::new(message, MAX_SERVER_MESSAGE_BYTES)?;
    if attributes.peek() == Some(b'e') {
        let reason = attributes.expect(b'e', "Error expected.")?;
        return Err(ScramError::ServerRefused(printable(reason)));
    }
    let signature = attributes.expect(b'v', "Server signature expected.")?;
    let signature =
        message::decode_key(signature).ok_or(ScramError::Malformed("Invalid server signature."))?;
    attributes.skip_extensions()?;
    Ok(signature)
}

/// Returns a server's error text without control characters, for a log line.
fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    clean.take(REASON_CHARS_MAX).collect()
}
