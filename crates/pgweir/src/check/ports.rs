//! Checks whether other processes listen on the configured addresses. The check binds a port, but never listens on it.

use std::fs;

use pgweir_config::Settings;
use rustix::{io::Errno, net::bind, process::geteuid};

use crate::net::{
    addresses_of,
    port_owner::{self, Holder},
    tcp_socket, unix_path,
};

/// Returns warnings about the addresses and the Unix socket on which the pooler would listen.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let port = settings.listen_port;
    let mut warnings = Vec::new();
    let mut needs_right = geteuid().is_root() && port < first_of_everybody();
    let names = settings.listen_addr.iter().filter(|_| port != 0);
    // `start_errors` reports names that can't be resolved.
    let addresses = names.filter_map(|name| addresses_of(name, port).ok());
    for address in addresses.flatten() {
        // Binds the port as a listener would: this fails if a process listens there. No client can connect to a socket
        // that is only bound.
        let bound = tcp_socket(address, settings.so_reuseport).and_then(|fd| bind(&fd, &address));
        match bound {
            Err(Errno::ADDRINUSE) => {
                let holder = port_owner::of_tcp(address);
                warnings.push(in_use("listen_addr", &address.to_string(), holder));
            }
            Err(Errno::ACCESS) => needs_right = true,
            // `start_errors` reports addresses that this machine does not have.
            _ => {}
        }
    }
    if needs_right && port != 0 && !settings.listen_addr.is_empty() {
        warnings.push(format!(
            "listen_port = {port}: a port below {} is for who has CAP_NET_BIND_SERVICE (in a unit of systemd: \
             CapabilityBoundingSet= and AmbientCapabilities=); this process has it not, or only as root",
            first_of_everybody()
        ));
    }
    let dir = settings.unix_socket_dir.as_deref().unwrap_or_default();
    if !dir.is_empty() {
        let path = unix_path(dir, port);
        if port_owner::is_held(&path) {
            warnings.push(in_use("unix_socket_dir", &path, port_owner::of_unix(&path)));
        }
    }
    warnings
}

/// Returns the lowest port that needs no privilege.
fn first_of_everybody() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

fn in_use(key: &str, place: &str, holder: Option<Holder>) -> String {
    match holder {
        Some(by) if by.name.starts_with("systemd") => format!(
            "{key}: {place} is held by {by}, for socket activation: a service that it starts listens \
             where its socket unit says, whatever this file says"
        ),
        Some(by) => format!(
            "{key}: {place} is in use by {by}: a start fails unless that has ended, or is a pgweir \
             that this one takes over from (-R)"
        ),
        None => format!(
            "{key}: {place} is in use, by whom root can tell: a start fails unless that has ended, is a pgweir that \
             this one takes over from (-R), or is systemd, for socket activation"
        ),
    }
}
