//! Password checks, SCRAM exchanges (both sides), the userlist and HBA rules, as pure values.
//!
//! The crate does no I/O, reads no clock and draws no random numbers: callers pass salts, nonces and keys in. Secrets are
//! compared in constant time and wiped when dropped. No `Debug` output and no error contains a secret.

pub mod hba;
mod ldap;
pub mod md5;
mod method;
mod pam;
mod saslprep;
pub mod scram;
pub mod userlist;
mod verify;

pub use ldap::{LdapMode, LdapOptions, LdapProblem, LdapScope};
pub use method::Method;
pub use pam::{PamOptions, PamProblem};
pub use verify::{PlainCheck, verify_md5, verify_plain};

/// The longest password or secret, in bytes, as in PgBouncer. PostgreSQL itself takes 65,530 in clear text: the
/// length field of its password message may be 65,535, and counts itself (4 bytes) and the final NUL.
pub const MAX_SECRET_BYTES: usize = 65_535;
