//! Password checks, SCRAM exchanges (both sides), the userlist and HBA rules, as pure values.
//!
//! Nothing here does I/O, reads a clock or draws a random number: salts, nonces and keys are
//! passed in. Secrets are compared in constant time, are wiped when dropped, and no `Debug`
//! output or error holds one.

pub mod hba;
mod ldap;
pub mod md5;
mod method;
mod pam;
mod plain;
mod saslprep;
pub mod scram;
pub mod userlist;

pub use ldap::{LdapMode, LdapOptions, LdapProblem, LdapScope};
pub use method::Method;
pub use pam::{PamOptions, PamProblem};
pub use plain::{PlainCheck, verify_plain};

/// The longest password or secret, in bytes, as in PgBouncer. PostgreSQL itself takes 65,530 in clear text: the
/// length field of its password message may be 65,535, and counts itself (4 bytes) and the final NUL.
pub const MAX_SECRET_BYTES: usize = 65_535;
