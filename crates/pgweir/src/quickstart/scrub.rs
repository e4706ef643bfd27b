//! Removes a password from the command line, where every user of the machine can read it.
//!
//! A process can't safely write over its own arguments, so it starts itself again in the same
//! process (`exec`), without the password in the URL. The second start reads the password from standard input, an
//! anonymous file in memory.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use rustix::fs::{MemfdFlags, memfd_create};
use zeroize::Zeroizing;

/// The environment variable that is set if standard input has the password. Its value is empty.
pub(super) const PASSWORD_ON_STDIN: &str = "PGWEIR_PASSWORD_ON_STDIN";

/// The password could not be hidden. pgweir does not start with a visible password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScrubError {
    #[error("cannot start again without the password in the command line: {0}")]
    Start(#[source] io::Error),
    #[error("cannot read the password that was removed from the command line: {0}")]
    Take(#[source] io::Error),
}

/// Starts this program again with `scrubbed` in place of `url`. Returns only if that fails.
pub(super) fn start_again<T>(url: &str, scrubbed: &str, password: &str) -> Result<T, ScrubError> {
    let file = file_with(password).map_err(ScrubError::Start)?;
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("pgweir"));
    let replaced = arguments.map(|argument| {
        if argument == url {
            scrubbed.into()
        } else {
            argument
        }
    });
    // The real path instead of /proc/self/exe, which would become the process's name.
    let program = env::current_exe().ok().filter(|path| path.exists());
    let error = Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")))
        .arg0(name)
        .args(replaced)
        .env(PASSWORD_ON_STDIN, "1")
        .stdin(Stdio::from(file))
        .exec();
    Err(ScrubError::Start(error))
}

/// Reads the password that the first start left. Afterwards standard input is empty.
pub(super) fn take_password() -> Result<Zeroizing<String>, ScrubError> {
    let mut password = Zeroizing::new(String::new());
    io::stdin()
        .lock()
        .read_to_string(&mut password)
        .map_err(ScrubError::Take)?;
    let nothing = File::open("/dev/null").map_err(ScrubError::Take)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|errno| ScrubError::Take(errno.into()))?;
    Ok(password)
}

fn file_with(password: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("password", MemfdFlags::CLOEXEC)?);
    file.write_all(password.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
