//! The reasons why an exchange fails.

use std::fmt;

/// The reason why an exchange failed. The text of `Display` may be sent to clients; no variant contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramError {
    /// A message has not the form of RFC 5802: the part that is wrong.
    Malformed(&'static str),
    /// The client asked for a feature that pgweir does not support: the feature.
    Unsupported(&'static str),
    /// The client chose a mechanism that was not offered.
    Mechanism,
    /// The client believes that pgweir does not support channel binding: an attacker has removed the offer on the way.
    Downgrade,
    /// The client has seen another certificate than pgweir's.
    Binding,
    /// The peer did not repeat the nonce.
    Nonce,
    /// The password is wrong, or the user does not exist.
    Failed,
    /// The server asks for more iterations than [`MAX_ITERATIONS`](super::MAX_ITERATIONS).
    TooManyIterations,
    /// The server ended the exchange with this error (printable, at most 200 characters).
    ServerRefused(String),
    /// The server could not prove that it knows the password's keys, and may be an impostor.
    ServerSignature,
    /// A message arrived when none was expected.
    OutOfOrder,
}

impl ScramError {
    /// Returns the SQLSTATE that PostgreSQL reports for this error.
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

    /// Returns the text for the DETAIL field.
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
