//! The socket on which a running process is asked to hand over.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

/// The socket that a new process connects to, which is handed over, too.
#[derive(Debug)]
pub(crate) struct TakeoverSocket {
    listener: UnixListener,
    path: PathBuf,
    given: AtomicBool,
}

impl TakeoverSocket {
    /// Opens the socket, and removes a file that an ended process has left there.
    ///
    /// # Errors
    /// A process answers there, or the socket can't be made.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        match UnixStream::connect(&path) {
            Ok(_) => return Err(io::Error::from(io::ErrorKind::AddrInUse)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path)?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self::of(listener, path))
    }

    /// Creates the socket of the old process from its descriptor.
    pub(super) fn inherited(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let listener = UnixListener::from(fd);
        listener.set_nonblocking(false)?;
        Ok(Self::of(listener, path))
    }

    fn of(listener: UnixListener, path: PathBuf) -> Self {
        Self {
            listener,
            path,
            given: AtomicBool::new(false),
        }
    }

    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().map(|(stream, _)| stream)
    }

    /// Notes whether the socket's file belongs to another process, or to this one again.
    pub(crate) fn set_given(&self, given: bool) {
        self.given.store(given, Ordering::Relaxed);
    }

    /// Removes the socket's file at the end of the process, if it still belongs to this process.
    pub(crate) fn remove(&self) {
        if !self.given.load(Ordering::Relaxed) {
            // The file may have been removed already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsFd for TakeoverSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
