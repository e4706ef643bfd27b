//! No file may get what is in memory: passwords, keys, what clients read and write.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Too small for a core dump; and, unlike 0, of meaning to Linux where a program takes core dumps
/// (`core_pattern` with a pipe): it is not even started.
const LIMIT: u64 = 1;

/// From here on neither this process nor its children leave core dumps.
pub(crate) fn forbid_core_dumps() {
    // Where the hard limit is 0 already, it can't be raised to 1.
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
