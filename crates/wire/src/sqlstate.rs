//! The SQLSTATEs that pgweir itself reports (PostgreSQL's manual, appendix "Error Codes").
#![allow(missing_docs, reason = "the names are those of PostgreSQL's manual")]

pub const ADMIN_SHUTDOWN: &str = "57P01";
pub const CANNOT_CONNECT_NOW: &str = "57P03";
pub const CONFIG_FILE_ERROR: &str = "F0000";
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
pub const CONNECTION_FAILURE: &str = "08006";
pub const CRASH_SHUTDOWN: &str = "57P02";
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
pub const INVALID_AUTHORIZATION: &str = "28000";
pub const INVALID_CATALOG_NAME: &str = "3D000";
pub const INVALID_PARAMETER_VALUE: &str = "22023";
pub const INVALID_PASSWORD: &str = "28P01";
pub const OUT_OF_MEMORY: &str = "53200";
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
pub const PROTOCOL_VIOLATION: &str = "08P01";
pub const QUERY_CANCELED: &str = "57014";
pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
pub const SUCCESSFUL_COMPLETION: &str = "00000";
pub const TOO_MANY_CONNECTIONS: &str = "53300";
pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
