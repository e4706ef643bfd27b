//! Disables core dumps: memory has passwords, keys, and clients' data, which must not get into a file.

use rustix::process::{Resource, Rlimit, setrlimit};

/// The limit is too small for a core dump. Unlike 0, it also holds where a program receives core dumps (`core_pattern`
/// with a pipe): Linux does not even start that program.
const LIMIT: u64 = 1;

/// Disables core dumps of this process and its children.
pub(crate) fn forbid_core_dumps() {
    // If the hard limit is 0 already, it can't be raised to 1.
    for limit in [LIMIT, 0] {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        if setrlimit(Resource::Core, limit).is_ok() {
            return;
        }
    }
}
