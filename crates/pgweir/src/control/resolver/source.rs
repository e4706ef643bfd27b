//! The source of addresses: the system's resolver, or the name servers of a `resolv.conf` that an operator names.
//! Serials of zones always come from name servers.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    str::FromStr,
};

use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RData, RecordType},
    system_conf::parse_resolv_conf,
};

/// The system's `resolv.conf`.
const SYSTEM_CONF: &str = "/etc/resolv.conf";

/// The settings of look-ups.
#[derive(Debug)]
pub(super) struct Source {
    /// Another `resolv.conf`. Without one, the system's resolver is used, with everything in `nsswitch.conf`.
    resolv_conf: Option<PathBuf>,
}

/// The reason why a look-up failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// The system's resolver found no address.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The name servers found no address, or can't be asked.
    #[error("{0}")]
    Dns(#[from] NetError),
    /// The file of name servers can't be read.
    #[error("cannot read {0}: {1}")]
    Conf(PathBuf, #[source] io::Error),
    /// The file of name servers is invalid.
    #[error("{0}: {1}")]
    Syntax(PathBuf, #[source] NetError),
    /// The name exists, but has no address.
    #[error("the name has no address")]
    NoAddress,
    /// The name is no zone.
    #[error("no SOA record")]
    NoSerial,
}

impl Source {
    pub(super) fn new(resolv_conf: Option<&str>) -> Self {
        let named = resolv_conf.filter(|path| !path.is_empty());
        Self {
            resolv_conf: named.map(PathBuf::from),
        }
    }

    /// Returns the addresses of a host, with port 0, each once. Blocks.
    pub(super) fn addresses(&self, host: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let found: Vec<SocketAddr> = match &self.resolv_conf {
            None => (host, 0).to_socket_addrs()?.collect(),
            Some(path) => {
                let resolver = resolver(path)?;
                let found = wait(resolver.lookup_ip(host))??;
                found.iter().map(|ip| SocketAddr::new(ip, 0)).collect()
            }
        };
        let mut each_once: Vec<SocketAddr> = Vec::with_capacity(found.len());
        for address in found {
            if !each_once.contains(&address) {
                each_once.push(address);
            }
        }
        if each_once.is_empty() {
            return Err(LookupError::NoAddress);
        }
        Ok(each_once)
    }

    /// Returns the serial number of a zone. Blocks.
    pub(super) fn serial(&self, zone: &str) -> Result<u32, LookupError> {
        let path = self.resolv_conf.as_deref();
        let resolver = resolver(path.unwrap_or(Path::new(SYSTEM_CONF)))?;
        let zone = Name::from_str(zone).map_err(NetError::from)?;
        let found = wait(resolver.lookup(zone, RecordType::SOA))??;
        let serial = found
            .answers()
            .iter()
            .find_map(|record| match &record.data {
                RData::SOA(soa) => Some(soa.serial),
                _ => None,
            });
        serial.ok_or(LookupError::NoSerial)
    }
}

/// Creates a resolver from the present contents of the files, the system's hosts file included. Look-ups are rare, and
/// files change.
fn resolver(path: &Path) -> Result<TokioResolver, LookupError> {
    let (config, mut options) = read(path)?;
    // pgweir has its own cache.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    Ok(builder.build()?)
}

/// Checks that the file exists and names a name server.
///
/// # Errors
/// When the check fails.
pub(crate) fn check_resolv_conf(path: Option<&str>) -> Result<(), LookupError> {
    path.filter(|path| !path.is_empty())
        .map_or(Ok(()), |path| read(Path::new(path)).map(drop))
}

fn read(path: &Path) -> Result<(ResolverConfig, ResolverOpts), LookupError> {
    let text = fs::read_to_string(path).map_err(|error| LookupError::Conf(path.into(), error))?;
    parse(&text).map_err(|error| LookupError::Syntax(path.into(), error))
}

/// Parses a `resolv.conf`. As in other programs, a name server may be `[ADDRESS]:PORT`.
fn parse(text: &str) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    let mut ported = Vec::new();
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        match name_server(line) {
            Some((address, port)) => {
                // Replaces the real address, which the parser could not read, with 0.0.0.1 and so on.
                let stand_in = Ipv4Addr::from(1 + ported.len() as u32);
                ported.push((stand_in, address, port));
                plain.push_str(&format!("nameserver {stand_in}\n"));
            }
            None => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    let (mut config, options) = parse_resolv_conf(plain)?;
    for server in &mut config.name_servers {
        let stands_for = ported.iter().find(|(stand_in, ..)| server.ip == *stand_in);
        if let Some(&(_, address, port)) = stands_for {
            server.ip = address;
            for connection in &mut server.connections {
                connection.port = port;
            }
        }
    }
    Ok((config, options))
}

/// Parses `nameserver [ADDRESS]:PORT`.
fn name_server(line: &str) -> Option<(IpAddr, u16)> {
    let named = line.trim().strip_prefix("nameserver")?.trim();
    let (address, port) = named.strip_prefix('[')?.split_once("]:")?;
    Some((address.parse().ok()?, port.parse().ok()?))
}

/// Blocks until a look-up ends. A thread that looks names up has nothing else to do.
fn wait<T>(look_up: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(look_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_may_have_a_port() {
        let text = "search a.test\nnameserver 192.0.2.1\n nameserver [127.0.0.1]:5353 \n\
                    nameserver [::1]:54\nnameserver 127.0.0.1\noptions timeout:2 ndots:3\n";
        let (config, options) = parse(text).expect("it is a resolv.conf");
        let servers: Vec<_> = config
            .name_servers()
            .iter()
            .map(|server| (server.ip.to_string(), server.connections[0].port))
            .collect();
        let expected = [
            ("192.0.2.1", 53),
            ("127.0.0.1", 5353),
            ("::1", 54),
            ("127.0.0.1", 53),
        ];
        assert_eq!(servers, expected.map(|(ip, port)| (ip.to_owned(), port)));
        assert_eq!((options.ndots, options.timeout.as_secs()), (3, 2));
        assert_eq!(config.search()[0].to_string(), "a.test");
    }

    #[test]
    fn a_file_without_name_servers_is_reported() {
        assert!(parse("search a.test\n").is_err());
    }
}
