//! Finds the process that listens at an address or on a Unix socket, by the kernel's tables.

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// The state of a listening socket in /proc/net/tcp.
const LISTENS: &str = "0A";
/// The flag of a listening socket in /proc/net/unix.
const ACCEPTS: u32 = 0x1_0000;

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: u32,
    /// The name of the process's program.
    pub(crate) name: String,
}

/// Returns the process that listens at this address.
pub(crate) fn of_tcp(address: SocketAddr) -> Option<Holder> {
    tcp_inode(address).and_then(holder)
}

/// Returns the process that listens on the Unix socket at this path, without a connection to the socket: the process
/// would notice it.
pub(crate) fn of_unix(path: &str) -> Option<Holder> {
    unix_inode(path).and_then(holder)
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// Finds the process that has this socket open. Returns `None` if pgweir's user may not inspect that process.
fn holder(inode: u64) -> Option<Holder> {
    let wanted = format!("socket:[{inode}]");
    let is_it = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path());
        target.is_ok_and(|target| target == Path::new(&wanted))
    };
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse().ok())
        else {
            continue;
        };
        let Ok(mut files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        if files.any(|entry| entry.is_ok_and(is_it)) {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            let name = name.trim_end().to_owned();
            return Some(Holder { pid, name });
        }
    }
    None
}

/// Returns the socket that listens at this address, or at an address that includes it: an IPv6 socket may listen for
/// IPv4.
fn tcp_inode(address: SocketAddr) -> Option<u64> {
    let find = |table| find_tcp(&fs::read_to_string(table).ok()?, address);
    let in_four = || find("/proc/net/tcp").filter(|_| address.is_ipv4());
    in_four().or_else(|| find("/proc/net/tcp6"))
}

fn find_tcp(table: &str, address: SocketAddr) -> Option<u64> {
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[_, local, _, LISTENS, _, _, _, _, _, inode, ..] = fields.as_slice() else {
            return None;
        };
        let (ip, port) = local.split_once(':')?;
        let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
        let (ip, is_all) = (ip.to_canonical(), ip.is_unspecified());
        let may_be = ip.is_ipv4() == address.is_ipv4() && address.ip().is_unspecified();
        let overlaps = ip == address.ip() || is_all || may_be;
        (overlaps && port == address.port()).then(|| inode.parse().ok())?
    })
}

/// Parses an address as the kernel prints it: words of 32 bits, as they lie in memory.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for start in (0..text.len()).step_by(8) {
        let word = u32::from_str_radix(text.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let four: Result<[u8; 4], _> = bytes.as_slice().try_into();
    let sixteen: Result<[u8; 16], _> = bytes.as_slice().try_into();
    four.map(IpAddr::from).or(sixteen.map(IpAddr::from)).ok()
}

/// Returns whether a process listens on the Unix socket at this path.
pub(crate) fn is_held(path: &str) -> bool {
    unix_inode(path).is_some()
}

fn unix_inode(path: &str) -> Option<u64> {
    find_unix(&fs::read_to_string("/proc/net/unix").ok()?, path)
}

fn find_unix(table: &str, path: &str) -> Option<u64> {
    let end = format!(" {path}");
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[_, _, _, flags, _, _, inode, _, ..] = fields.as_slice() else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        (line.ends_with(&end) && flags & ACCEPTS != 0).then(|| inode.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1920 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 11 1 0 100 0 0 10 0
   1: 00000000:1921 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 0100007F:1922 0100007F:8A8A 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   3: 00000000000000000000000001000000:1920 00000000000000000000000000000000:0000 0A 0:0 00:0 0 101 0 14 1 0 100
   4: 00000000000000000000000000000000:1923 00000000000000000000000000000000:0000 0A 0:0 00:0 0 101 0 15 1 0 100
   5: 0000000000000000FFFF00000100007F:1924 00000000000000000000000000000000:0000 0A 0:0 00:0 0 101 0 16 1 0 100
   6: 0100007F:19
";
    const UNIX: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01    21 /tmp/.s.PGSQL.1
0000000000000000: 00000003 00000000 00000000 0001 03    22 /tmp/.s.PGSQL.2
0000000000000000: 00000003 00000000 00000000 0001 03    23
0000000000000000: 00000002 00000000 00010000 0001 01    24 /a folder/.s.PGSQL.3
";

    #[test]
    fn sockets_that_listen_are_found() {
        let tcp = |address: &str| find_tcp(TCP, address.parse().expect("an address"));
        // A machine of the other byte order would print the address differently.
        if cfg!(target_endian = "little") {
            assert_eq!(tcp("127.0.0.1:6432"), Some(11));
            assert_eq!(tcp("127.0.0.2:6432"), None);
            assert_eq!(tcp("[::1]:6432"), Some(14));
            assert_eq!(tcp("127.0.0.1:6436"), Some(16));
            assert_eq!(tcp("127.0.0.2:6436"), None);
        }
        assert_eq!(tcp("0.0.0.0:6432"), Some(11));
        assert_eq!(tcp("127.0.0.1:6433"), Some(12));
        assert_eq!(
            tcp("127.0.0.1:6435"),
            Some(15),
            "that of IPv6 is everybody's"
        );
        assert_eq!(tcp("0.0.0.0:6436"), Some(16));
        assert_eq!(tcp("127.0.0.1:6434"), None, "it is connected");
        let unix = |path| find_unix(UNIX, path);
        assert_eq!(unix("/tmp/.s.PGSQL.1"), Some(21));
        assert_eq!(unix("/tmp/.s.PGSQL.2"), None);
        assert_eq!(unix("/a folder/.s.PGSQL.3"), Some(24));
    }
}
