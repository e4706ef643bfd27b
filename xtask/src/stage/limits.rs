//! The limit of open files, which children inherit.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::StageError;

/// Raises the soft limit of open files to the hard one and returns it.
///
/// # Errors
/// When fewer than `need` files can be open at once.
pub(crate) fn raise_descriptor_limit(need: u64) -> Result<u64, StageError> {
    let failed = |e| StageError::new(format!("cannot read the limit of open files: {e}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    let mut limit = soft;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        limit = hard;
    }
    if limit < need && setrlimit(Resource::RLIMIT_NOFILE, need, need).is_ok() {
        limit = need; // root may raise the hard limit
    }
    if limit < need {
        return Err(StageError::with_next(
            format!("at most {limit} files may be open at once here; this needs {need}"),
            format!(
                "raise the limit, e.g. `ulimit -Hn {need}` as root in the shell that calls this, \
                 or a line `* hard nofile {need}` in /etc/security/limits.conf and a new login"
            ),
        ));
    }
    Ok(limit)
}
