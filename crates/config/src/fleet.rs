//! The part of `max_server_conn` that one node of a fleet may use.
//!
//! Without `fleet_etcd`, the nodes do not know of each other, so each of the `fleet_nodes` nodes gets the same whole
//! number of servers: `max_server_conn / fleet_nodes`, rounded down. The sum over the nodes never exceeds the limit.
//! The remainder, fewer servers than there are nodes, is used by no node. With `fleet_etcd`, each node may always have
//! `fleet_floor` servers, and more by demand.

use std::{fmt, net::IpAddr};

use crate::{
    Config, Settings,
    url::{UrlParts, authority, parse_list},
    value::{BadValue, Value},
};

/// The port of etcd's clients.
const PORT: u16 = 2379;
/// The longest host name, as in DNS.
const HOST_LENGTH_MAX: usize = 253;
/// The shortest lease, in microseconds.
const LEASE_MIN: u64 = 1_000_000;
/// The longest lease, in microseconds: a lost node's servers stay reserved for that time.
const LEASE_MAX: u64 = 600_000_000;

/// The client URLs of an etcd cluster, such as `https://10.0.0.5:2379`; none is set by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdUrls(Vec<String>);

impl EtcdUrls {
    /// Returns the URLs.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.0
    }

    /// Returns whether there is a URL.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether one of the URLs begins with `https://`.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        self.0.iter().any(|url| url.starts_with("https://"))
    }

    fn parse_url(text: &str) -> Result<String, BadValue> {
        let wrong = |why: &str| {
            let expected = "http://HOST:PORT or https://HOST:PORT, or a list of these";
            BadValue::new(format!("{expected} (\"{text}\" {why})"))
        };
        let schemes = ["http://", "https://"];
        let found = schemes
            .iter()
            .find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?)));
        let (scheme, rest) =
            found.ok_or_else(|| wrong("does not begin with http:// or https://"))?;
        let UrlParts { host, port, path } = UrlParts::parse(rest, PORT).map_err(wrong)?;
        match path.is_empty() {
            true => Ok(format!("{scheme}{}", authority(&host, port))),
            false => Err(wrong("has a path")),
        }
    }
}

impl fmt::Display for EtcdUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl Value for EtcdUrls {
    const KIND: &'static str = "URL, or a list of URLs";

    fn parse(text: &str) -> Result<Self, BadValue> {
        parse_list(text, Self::parse_url).map(Self)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

/// Where the other nodes of a fleet reach a process: `HOST` or `HOST:PORT`; not set by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddress(Option<(String, Option<u16>)>);

impl NodeAddress {
    /// Returns whether a text is a host name or an address.
    #[must_use]
    pub fn is_host(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
        (1..=HOST_LENGTH_MAX).contains(&text.len()) && text.bytes().all(is_plain)
    }
}

impl Value for NodeAddress {
    const KIND: &'static str = "HOST, or HOST:PORT";

    fn parse(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: &str| {
            BadValue::new(format!(
                "HOST, HOST:PORT or [ADDRESS]:PORT (\"{text}\" {why})"
            ))
        };
        // An IPv6 address may stand without brackets.
        if text.parse::<IpAddr>().is_ok() {
            return Ok(Self(Some((text.to_owned(), None))));
        }
        let UrlParts { host, port, path } = UrlParts::parse(text, 0).map_err(wrong)?;
        match path.is_empty() && Self::is_host(&host) {
            true => Ok(Self(Some((host, (port != 0).then_some(port))))),
            false => Err(wrong("has a character that no host name has")),
        }
    }

    fn show(&self) -> String {
        match &self.0 {
            None => String::new(),
            Some((host, None)) => host.clone(),
            Some((host, Some(port))) => authority(host, *port),
        }
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

impl Settings {
    /// Returns the host and port at which the other nodes of the fleet reach this process: `fleet_address`, or else the first
    /// address of `listen_addr` that is neither a loopback address nor a wildcard.
    #[must_use]
    pub fn address_in_fleet(&self) -> Option<(String, u16)> {
        let (host, port) = match &self.fleet_address.0 {
            Some((host, port)) => (host.clone(), *port),
            None => {
                let addresses = self.listen_addr.iter();
                let addresses =
                    addresses.filter_map(|text| text.trim_matches(['[', ']']).parse().ok());
                let is_known_elsewhere =
                    |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
                let mut addresses = addresses.filter(is_known_elsewhere);
                (addresses.next()?.to_string(), None)
            }
        };
        let port = port.unwrap_or(self.listen_port);
        (port != 0).then_some((host, port))
    }

    /// Returns the largest number of servers of this process: its equal share of `max_server_conn`. 0 is no limit, or a
    /// limit in percent, of which [`ServerLimit::share_of_host`](crate::ServerLimit::share_of_host) is the share.
    #[must_use]
    pub fn fleet_share(&self) -> u32 {
        self.max_server_conn.count() / self.fleet_nodes.max(1)
    }

    /// Returns the row `fleet_share` of SHOW CONFIG.
    pub(crate) fn fleet_share_text(&self) -> String {
        let limit = self.max_server_conn;
        match (limit.is_percentage(), self.fleet_nodes) {
            (false, _) => self.fleet_share().to_string(),
            (true, 0 | 1) => limit.show(),
            (true, nodes) => format!("{} / {nodes}", limit.show()),
        }
    }

    /// Returns the servers that this process may always have, if it shares the limit by demand.
    #[must_use]
    pub fn floor_of_node(&self) -> u32 {
        match self.fleet_floor {
            0 => (self.fleet_share() / 2).max(1),
            floor => floor,
        }
    }

    /// Checks that each node of the fleet has at least one server: a share of 0 would be no limit.
    ///
    /// # Errors
    /// `max_server_conn` is smaller than `fleet_nodes`, but not 0.
    pub(crate) fn check_fleet(&self) -> Result<(), BadValue> {
        match self.max_server_conn.count() > 0 && self.fleet_share() == 0 {
            true => Err(BadValue::new(format!(
                "0 (no limit), or at least fleet_nodes ({}), so that each node has a server",
                self.fleet_nodes
            ))),
            false => Ok(()),
        }
    }

    /// Checks the files for connections to these URLs of `key`. Returns the setting that is wrong, its value, and the right
    /// form.
    fn etcd_tls_problem(
        &self,
        key: &'static str,
        urls: &EtcdUrls,
    ) -> Option<(&'static str, String, String)> {
        let certificate = &self.fleet_etcd_tls_cert_file;
        if certificate.is_some() != self.fleet_etcd_tls_key_file.is_some() {
            let value = certificate.clone().unwrap_or_default();
            let expected = "also fleet_etcd_tls_key_file".to_owned();
            return Some(("fleet_etcd_tls_cert_file", value, expected));
        }
        let lacks_authorities = urls.needs_tls() && self.fleet_etcd_tls_ca_file.is_none();
        lacks_authorities.then(|| {
            let expected = "fleet_etcd_tls_ca_file, for a URL with https".to_owned();
            (key, urls.to_string(), expected)
        })
    }

    /// Checks the other settings that `config_etcd` depends on. Returns the setting that is wrong, its value, and the right
    /// form.
    pub(crate) fn shared_entries_problem(&self) -> Option<(&'static str, String, String)> {
        let urls = &self.config_etcd;
        if !urls.is_set() {
            return None;
        }
        if self.api_config_file.is_none() {
            let expected = "api_config_file, the file for the last correct entries".to_owned();
            return Some(("config_etcd", urls.to_string(), expected));
        }
        self.etcd_tls_problem("config_etcd", urls)
    }
}

impl Config {
    /// Checks the other settings that `fleet_etcd` depends on. Returns the setting that is wrong, its value, and the
    /// right form.
    pub(crate) fn fleet_problem(&self) -> Option<(&'static str, String, String)> {
        let settings = &self.settings;
        if let Err(bad) = settings.check_fleet() {
            let value = settings.max_server_conn.show();
            return Some(("max_server_conn", value, bad.expected));
        }
        if !settings.fleet_etcd.is_set() {
            return None;
        }
        let problem = |key, value: String, expected: &str| Some((key, value, expected.to_owned()));
        if settings.max_server_conn.count() == 0 {
            return problem(
                "max_server_conn",
                settings.max_server_conn.show(),
                "a number above 0, since fleet_etcd is set: the nodes share one number of servers",
            );
        }
        if settings.floor_of_node() > settings.fleet_share() {
            let text = format!(
                "at most max_server_conn / fleet_nodes ({})",
                settings.fleet_share()
            );
            return problem("fleet_floor", settings.fleet_floor.to_string(), &text);
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&settings.fleet_lease.0) {
            return problem(
                "fleet_lease",
                settings.fleet_lease.show(),
                "1 to 600 seconds",
            );
        }
        if let Some(wrong) = settings.etcd_tls_problem("fleet_etcd", &settings.fleet_etcd) {
            return Some(wrong);
        }
        // The backends of a lost node are counted on one PostgreSQL.
        let mut databases = self.databases.values().chain(&self.fallback);
        let first = databases.next().map(|entry| (&entry.host, &entry.port));
        let is_same = |entry: &crate::Database| first == Some((&entry.host, &entry.port));
        let is_single = first.is_none_or(|(host, _)| host.len() < 2);
        if !is_single || !databases.all(is_same) {
            let value = settings.fleet_etcd.to_string();
            let text = "databases that all have the same host and port, and no list of hosts";
            return problem("fleet_etcd", value, text);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    /// Returns the settings of a node.
    fn node(limit: u32, nodes: u32) -> Settings {
        Settings {
            max_server_conn: Share::Number(limit).into(),
            fleet_nodes: nodes,
            ..Settings::default()
        }
    }

    #[test]
    fn urls_of_etcd() {
        for (text, shown) in [
            ("", ""),
            ("http://a", "http://a:2379"),
            ("http://a:1, https://[::1]", "http://a:1,https://[::1]:2379"),
        ] {
            let urls = EtcdUrls::parse(text).unwrap();
            assert_eq!(urls.show(), shown, "{text}");
            assert_eq!(urls.needs_tls(), text.contains("https"));
            assert_eq!(urls.is_set(), !text.is_empty());
        }
        for text in ["a:2379", "http://a,", "http://a/v3", "https://u:p@a"] {
            assert!(EtcdUrls::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_of_nodes() {
        let mut settings = Settings {
            listen_addr: ["*", "0.0.0.0", "::", "127.0.0.1", "localhost", "[fd00::1]"]
                .map(str::to_owned)
                .into(),
            ..Settings::default()
        };
        let own = Some(("fd00::1".to_owned(), 6432));
        assert_eq!(settings.address_in_fleet(), own);
        settings.listen_addr.pop();
        assert_eq!(settings.address_in_fleet(), None);
        for (text, shown, host, port) in [
            ("db-1", "db-1", "db-1", 6432),
            ("db-1:7", "db-1:7", "db-1", 7),
            ("fd00::1", "fd00::1", "fd00::1", 6432),
            ("[fd00::1]:7", "[fd00::1]:7", "fd00::1", 7),
            ("127.0.0.1", "127.0.0.1", "127.0.0.1", 6432),
        ] {
            settings.fleet_address = NodeAddress::parse(text).unwrap();
            assert_eq!(settings.fleet_address.show(), shown);
            assert_eq!(settings.address_in_fleet(), Some((host.to_owned(), port)));
        }
        // The system chooses the port of each address that pgweir listens on.
        settings.listen_port = 0;
        assert_eq!(settings.address_in_fleet(), None);
        for text in ["/tmp", "a/b", "a:0", "a b", ":7", "u@a", "a;b"] {
            assert!(NodeAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_get_equal_shares_and_no_more_than_there_is() {
        for limit in (0..200).chain([u32::MAX]) {
            for nodes in 1..=50 {
                let settings = node(limit, nodes);
                let share = settings.fleet_share();
                let sum = u64::from(share) * u64::from(nodes);
                assert!(sum <= limit.into(), "{limit} for {nodes}");
                assert!(u64::from(limit) - sum < nodes.into(), "{limit} for {nodes}");
                // A share of 0 is no limit: only without a limit for the fleet.
                let is_refused = settings.check_fleet().is_err();
                assert_eq!(share == 0, is_refused || limit == 0, "{limit} for {nodes}");
            }
        }
        assert_eq!(node(61, 3).fleet_share(), 20);
        assert_eq!(node(60, 1).fleet_share(), 60);
    }
}
