//! Parsers of what pgweir reads besides PostgreSQL's protocol and its own configuration: values in etcd, parts of HTTP
//! requests, certificates, and files of other programs.
//!
//! The crate does no I/O and reads no clock: callers pass the bytes in. So a fuzz target (`crates/fuzz`) can call each
//! parser with any bytes.
//!
//! - etcd: `fleet_values` and `etcd_entries`.
//! - HTTP requests: `accept`, `credentials`, `tokens`, `query`, `body`, `command_body` and `entry_body`.
//! - TLS: `certificate`.
//! - Files: `ldap_conf`, `pgpass`, `pgcat`.

pub mod accept;
pub mod body;
pub mod certificate;
pub mod command_body;
pub mod credentials;
pub mod entry_body;
pub mod etcd_entries;
pub mod fleet_values;
pub mod ldap_conf;
pub mod pgcat;
pub mod pgpass;
pub mod query;
pub mod tokens;
