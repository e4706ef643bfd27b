//! Why an exchange failed.

use std::fmt;

/// Why an exchange failed. `Display` is what a client may be told; no variant holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramError {
    /// A message is not of the form that RFC 5802 demands; says which part.
    Malformed(&'static str),
    /// The client asked for something that we do not do; says what.
    Unsupported(&'static str),
    /// The client chose a mechanism that was not offered.
    Mechanism,
    /// The client believes that we can't bind the exchange to the connection: somebody has told it so.
    Downgrade,
    /// The client has seen another certificate than ours.
    Binding,
    /// The peer did not repeat the nonce.
    Nonce,
    /// The client does not know the password, or there is no such user.
    Failed,
    /// The server asks for more iterations than [`MAX_ITERATIONS`](super::MAX_ITERATIONS).
    TooManyIterations,
    /// The server ended the exchange with this error (printable, at most 200 characters).
    ServerRefused(String),
    /// The server could not prove that it knows the password's keys: it may be an impostor.
    ServerSignature,
    /// A message came at a time when none was expected.
    OutOfOrder,
}

impl ScramError {
    /// The SQLSTATE that PostgreSQL reports for this.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Mechanism | Self::Nonce | Self::OutOfOrder => "08P01",
            Self::TooManyIterations => "08P01",
            Self::Unsupported(_) => "0A000",
            Self::Failed => "28P01",
            Self::ServerRefused(_) | Self::ServerSignature | Self::Downgrade | Self::Binding => {
                "28000"
            }
        }
    }

    /// What belongs in the DETAIL field.
    #[must_use]
    pub fn detail(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(detail) => Some(detail),
            Self::Nonce => Some("Nonce does not match."),
            Self::Downgrade => Some(
                "The client supports SCRAM channel binding but thinks the server does not.  However, this server does \
                 support channel binding.",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(_) => f.write_str("malformed SCRAM message"),
            Self::Unsupported(what) => f.write_str(what),
            Self::Mechanism => {
                f.write_str("client selected an invalid SASL authentication mechanism")
            }
            Self::Downgrade => f.write_str("SCRAM channel binding negotiation error"),
            Self::Binding => f.write_str("SCRAM channel binding check failed"),
            Self::Nonce => f.write_str("invalid SCRAM response"),
            Self::Failed => f.write_str("password authentication failed"),
            Self::TooManyIterations => write!(
                f,
                "the server asks for more than {} SCRAM iterations",
                super::MAX_ITERATIONS
            ),
            Self::ServerRefused(reason) => {
                write!(f, "the server ended the SCRAM exchange: {reason}")
            }
            Self::ServerSignature => f.write_str("the server's SCRAM signature is wrong"),
            Self::OutOfOrder => f.write_str("SCRAM message out of order"),
        }
    }
}

impl std::error::Error for ScramError {}
