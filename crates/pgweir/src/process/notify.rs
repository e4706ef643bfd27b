//! Reports the state of the process to the service manager, if there is one (`sd_notify`).

use std::{
    ffi::OsStr,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The socket of the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// Creates the connection to the socket of this name (`NOTIFY_SOCKET`): a path, or `@` and an abstract name.
    pub(crate) fn new(name: Option<&OsStr>) -> Self {
        Self(name.and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(name),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        }))
    }

    /// Returns whether there is a service manager.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.is_some()
    }

    /// Reports that clients are served.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports that the configuration is read again. [`ready`](Self::ready) follows.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// Reports that this process is the service from now on.
    pub(crate) fn main_pid(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}"));
    }

    /// Reports that the shutdown has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Reports one line about the state.
    pub(crate) fn status(&self, text: &str) {
        self.tell(&format!("STATUS={text}"));
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // A service manager that does not listen misses the message.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_notified() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::new(Some(path.as_os_str()));
        let received = || {
            let mut text = [0; 200];
            let length = manager.recv(&mut text).expect("received");
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        notifier.ready();
        assert_eq!(received(), "READY=1");
        notifier.reloading();
        assert!(received().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.status("fine");
        assert_eq!(received(), "STATUS=fine");
        drop(manager);
        notifier.stopping();
        Notifier::default().stopping();
    }
}
