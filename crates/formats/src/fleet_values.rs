//! The values of the fleet's keys in etcd, as JSON.

use std::{collections::BTreeSet, net::IpAddr};

use pgweir_config::NodeAddress;
use pgweir_core::shared::fleet::FleetPeer;
use pgweir_fleet::{NodeId, Source, Terms};
use serde_json::{Value, json};

/// The value of a node's key: its record, its addresses and its version of pgweir.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeValue {
    /// How many spare servers the node holds.
    pub extra: u32,
    /// How often the node has written its record.
    pub renewals: u64,
    /// How many servers the node could use.
    pub wanted: u32,
    /// The weight of the node's demand.
    pub weight: u32,
    /// The addresses that the node's servers come from.
    pub sources: BTreeSet<Source>,
    /// The node's version of pgweir.
    pub version: String,
}

impl NodeValue {
    /// Parses a value. `None`: no node writes such a value.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let number = |key: &str| value.get(key)?.as_u64();
        let small = |key: &str| u32::try_from(number(key)?).ok();
        let sources = value.get("sources")?.as_array()?.iter();
        let sources = sources.map(|source| parse_source(source.as_str()?));
        Some(Self {
            extra: small("extra")?,
            renewals: number("renewals")?,
            wanted: small("wanted")?,
            weight: small("weight")?,
            sources: sources.collect::<Option<_>>()?,
            version: value.get("version")?.as_str()?.to_owned(),
        })
    }

    /// Writes the value.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let sources: Vec<_> = self
            .sources
            .iter()
            .map(|source| show_source(*source))
            .collect();
        let value = json!({
            "extra": self.extra,
            "renewals": self.renewals,
            "wanted": self.wanted,
            "weight": self.weight,
            "sources": sources,
            "version": self.version,
        });
        value.to_string().into_bytes()
    }
}

/// The value of the key `free`: the spare servers that no node holds, and the terms of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeValue {
    /// The number of spare servers that no node holds.
    pub free: i64,
    budget: u32,
    nodes: u32,
    floor: u32,
    lease: u64,
}

impl FreeValue {
    /// Creates the value for this number of free spare servers, with the terms of the fleet.
    #[must_use]
    pub fn new(free: i64, terms: &Terms) -> Self {
        Self {
            free,
            budget: terms.budget,
            nodes: terms.nodes,
            floor: terms.floor,
            lease: terms.lease,
        }
    }

    /// Parses a value. `None`: no node writes such a value.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let small = |key: &str| u32::try_from(value.get(key)?.as_u64()?).ok();
        Some(Self {
            free: value.get("free")?.as_i64()?,
            budget: small("max_server_conn")?,
            nodes: small("fleet_nodes")?,
            floor: small("fleet_floor")?,
            lease: value.get("fleet_lease_us")?.as_u64()?,
        })
    }

    /// Writes the value.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let value = json!({
            "free": self.free,
            "max_server_conn": self.budget,
            "fleet_nodes": self.nodes,
            "fleet_floor": self.floor,
            "fleet_lease_us": self.lease,
        });
        value.to_string().into_bytes()
    }

    /// Returns whether the fleet has these terms.
    #[must_use]
    pub fn has_terms(&self, terms: &Terms) -> bool {
        *self == Self::new(self.free, terms)
    }
}

/// The value of the key of a peer: the node that has this `peer_id`, and where other nodes reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerValue {
    /// The node that has this `peer_id`.
    pub node: NodeId,
    /// Where other nodes reach it.
    pub address: FleetPeer,
}

impl PeerValue {
    /// Parses a value. `None`: no node writes such a value.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let host = value.get("host")?.as_str()?;
        let port = u16::try_from(value.get("port")?.as_u64()?).ok()?;
        let is_valid = NodeAddress::is_host(host) && port != 0;
        is_valid.then_some(Self {
            node: NodeId::from_str_radix(value.get("node")?.as_str()?, 16).ok()?,
            address: FleetPeer {
                host: host.to_owned(),
                port,
            },
        })
    }

    /// Writes the value.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let node = format!("{:016x}", self.node);
        let FleetPeer { host, port } = &self.address;
        let value = json!({ "node": node, "host": host, "port": port });
        value.to_string().into_bytes()
    }
}

/// The value of the key of a command for all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandValue {
    /// The command in the console's language.
    pub text: String,
    /// The user who has given the command.
    pub user: String,
    /// The address that the user has connected from.
    pub address: String,
    /// The node whose console the command was given on.
    pub from: NodeId,
    /// The nodes that have to carry the command out.
    pub nodes: BTreeSet<NodeId>,
}

impl CommandValue {
    /// Parses a value. `None`: no node writes such a value.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let id = |value: &Value| NodeId::from_str_radix(value.as_str()?, 16).ok();
        let nodes = value.get("nodes")?.as_array()?.iter();
        Some(Self {
            text: text("command")?,
            user: text("user")?,
            address: text("address")?,
            from: id(value.get("from")?)?,
            nodes: nodes.map(id).collect::<Option<_>>()?,
        })
    }

    /// Writes the value.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let shown = |node: &NodeId| format!("{node:016x}");
        let value = json!({
            "command": self.text,
            "user": self.user,
            "address": self.address,
            "from": shown(&self.from),
            "nodes": self.nodes.iter().map(shown).collect::<Vec<_>>(),
        });
        value.to_string().into_bytes()
    }
}

/// The value of the key of a node's answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerValue {
    /// Whether the node has carried the command out.
    pub is_ok: bool,
    /// `ok`, or why the node has not carried the command out.
    pub result: String,
}

impl AnswerValue {
    /// Parses a value. `None`: no node writes such a value.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        Some(Self {
            is_ok: value.get("ok")?.as_bool()?,
            result: value.get("result")?.as_str()?.to_owned(),
        })
    }

    /// Writes the value.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let value = json!({ "ok": self.is_ok, "result": self.result });
        value.to_string().into_bytes()
    }
}

/// Parses the source of a connection: an address, `socket` or `hidden`.
#[must_use]
pub fn parse_source(text: &str) -> Option<Source> {
    match text {
        "socket" => Some(Source::Socket),
        "hidden" => Some(Source::Hidden),
        text => Some(Source::Address(text.parse::<IpAddr>().ok()?)),
    }
}

/// Writes the source of a connection, as [`parse_source`] reads it.
#[must_use]
pub fn show_source(source: Source) -> String {
    match source {
        Source::Address(address) => address.to_string(),
        Source::Socket => "socket".to_owned(),
        Source::Hidden => "hidden".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_written() {
        let sources = ["10.0.0.1", "fe80::1", "socket", "hidden"];
        let node = NodeValue {
            extra: 5,
            renewals: u64::MAX,
            wanted: 9,
            weight: 1,
            sources: sources.map(|source| parse_source(source).unwrap()).into(),
            version: "0.1".to_owned(),
        };
        assert_eq!(NodeValue::parse(&node.write()), Some(node));
        let terms = Terms {
            budget: 60,
            nodes: 3,
            floor: 5,
            lease: 3_000_000,
            interval: 200_000,
            timeout: 600_000,
        };
        let free = FreeValue::new(-3, &terms);
        assert_eq!(FreeValue::parse(&free.write()), Some(free));
        assert!(free.has_terms(&terms));
        assert!(!free.has_terms(&Terms { floor: 4, ..terms }));
        for text in ["", "{}", "[]", r#"{"extra":-1}"#, "\u{0}"] {
            assert_eq!(NodeValue::parse(text.as_bytes()), None);
            assert_eq!(FreeValue::parse(text.as_bytes()), None);
            assert_eq!(CommandValue::parse(text.as_bytes()), None);
            assert_eq!(AnswerValue::parse(text.as_bytes()), None);
        }
        let peer = PeerValue {
            node: 7,
            address: FleetPeer {
                host: "fd00::1".to_owned(),
                port: 6432,
            },
        };
        assert_eq!(PeerValue::parse(&peer.write()), Some(peer.clone()));
        assert_eq!(peer.address.to_string(), "[fd00::1]:6432");
        let command = CommandValue {
            text: "PAUSE \"app\"".to_owned(),
            user: "ann".to_owned(),
            address: "10.0.0.7:53412".to_owned(),
            from: u64::MAX,
            nodes: [1, u64::MAX].into(),
        };
        assert_eq!(CommandValue::parse(&command.write()), Some(command));
        let answer = AnswerValue {
            is_ok: false,
            result: "no such database: app".to_owned(),
        };
        assert_eq!(AnswerValue::parse(&answer.write()), Some(answer));
        // Neither the folder of a Unix socket nor a port that no process can have.
        for (host, port) in [
            ("/tmp", "1"),
            ("", "1"),
            ("a\\nb", "1"),
            ("a", "0"),
            ("a", "65536"),
        ] {
            let text = format!(r#"{{"node":"7","host":"{host}","port":{port}}}"#);
            assert_eq!(PeerValue::parse(text.as_bytes()), None, "{text}");
        }
    }
}
