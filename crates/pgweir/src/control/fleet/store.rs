//! The fleet's keys in etcd. The account is the key `free`, and one key for each node; each change of it is one transaction.
//! Besides the account, there is one key for each peer, which ends with the etcd lease of its node. A command for all nodes has
//! a key, and each answer to the command has one; they end together with the command's etcd lease (`commands`).

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
};

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp,
};
use pgweir_fleet::{Account, Answer, Change, NodeId, Record, Refusal, Source, Terms};
use pgweir_formats::fleet_values::{AnswerValue, CommandValue, FreeValue, NodeValue, PeerValue};

use super::{access::FleetAccess, commands::CommandKeys};
use crate::clock::since_boot_us;

/// The most time that a connection may take, in microseconds.
const CONNECT_TIME_MAX: u64 = 10_000_000;

/// Why etcd has not carried out a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// etcd can't be reached, or refuses the request.
    #[error("{0}: {1}")]
    Etcd(String, #[source] etcd_client::Error),
    /// An answer has no header.
    #[error("{0}: an answer without a header")]
    NoHeader(String),
    /// A key has a value that nodes do not write.
    #[error(
        "the key {0} has a value that pgweir does not understand: delete the key if no node writes it"
    )]
    Garbage(String),
    /// The nodes have different settings.
    #[error(
        "the fleet has other values of max_server_conn, fleet_nodes, fleet_floor or fleet_lease: see the key {0}; to change them, stop all nodes and delete the fleet's keys"
    )]
    OtherTerms(String),
}

impl StoreError {
    /// Returns whether etcd does not know the token that it has given this connection.
    pub(super) fn is_old_token(&self) -> bool {
        match self {
            Self::Etcd(_, etcd_client::Error::GRpcStatus(status)) => {
                status.message().contains("invalid auth token")
            }
            _ => false,
        }
    }
}

/// The account in etcd, over a connection to one member.
pub(super) struct Store {
    access: FleetAccess,
    prefix: String,
    terms: Terms,
    version: &'static str,
    client: Option<Client>,
    connecting: Option<Connecting>,
    /// How long the next connection may take, in microseconds.
    connect_time: u64,
    /// The index of the member to which the client is connected.
    at: usize,
    /// How many connections were opened, plus how often the revision has gone back.
    serial: u64,
    revision: i64,
    /// The number of the instance that answered last. It changes when the store may have gone back in time.
    instance: u64,
    known: Known,
    peers: Peers,
    commands: CommandKeys,
}

/// A connection that is being opened. With TLS and a password, which etcd checks slowly on purpose, that may take longer than a
/// request may; so it goes on with the next request.
struct Connecting {
    /// When the connection was begun, in microseconds.
    since: u64,
    connects: Pin<Box<dyn Future<Output = Result<Client, etcd_client::Error>>>>,
}

/// The keys of peers as they were read last. They stay known while the account can't be used.
#[derive(Default)]
pub(super) struct Peers {
    /// The peers by `peer_id`, with the revisions of their last changes.
    pub(super) by_id: BTreeMap<u32, (PeerValue, i64)>,
    /// A key with a value that no node writes: it is ignored.
    pub(super) garbage: Option<String>,
}

/// The lease of a peer's key in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EtcdLease {
    pub(super) id: i64,
    /// How long the lease lasts without renewal, in seconds. etcd may give a longer time than it was asked for.
    pub(super) seconds: u64,
}

/// The account as it was read last.
#[derive(Default)]
struct Known {
    /// The value of `free`, and the revision of its last change.
    free: Option<(FreeValue, i64)>,
    nodes: BTreeMap<NodeId, NodeValue>,
    /// The revisions of the nodes' last changes.
    versions: BTreeMap<NodeId, i64>,
}

impl Store {
    pub(super) fn new(access: FleetAccess, name: &str, terms: Terms) -> Self {
        Self {
            access,
            prefix: format!("/pgweir/{name}/"),
            terms,
            version: env!("CARGO_PKG_VERSION"),
            client: None,
            connecting: None,
            connect_time: terms.timeout,
            at: 0,
            serial: 0,
            revision: 0,
            instance: 0,
            known: Known::default(),
            peers: Peers::default(),
            commands: CommandKeys::default(),
        }
    }

    /// Returns the nodes as they were read last.
    pub(super) fn nodes(&self) -> &BTreeMap<NodeId, NodeValue> {
        &self.known.nodes
    }

    /// Closes the connection. The next request goes to the next member over a new connection. A connection that is being
    /// opened is given up when it has taken too long. Each time this has happened with all members, the next
    /// connections get twice the time.
    pub(super) fn disconnect(&mut self) {
        let pending = self
            .connecting
            .take_if(|it| since_boot_us() - it.since >= self.connect_time);
        if self.connecting.is_some() {
            return;
        }
        self.client = None;
        self.at += 1;
        if pending.is_some() && self.at.is_multiple_of(self.access.urls.len()) {
            self.connect_time = (self.connect_time * 2).min(CONNECT_TIME_MAX);
        }
    }

    /// Reads the account. Returns it with the number of the store's instance. The first node of a fleet creates the
    /// account.
    ///
    /// # Errors
    /// etcd does not answer, or the account is not valid.
    pub(super) async fn read(&mut self) -> Result<(u64, Answer), StoreError> {
        loop {
            let instance = self.read_once().await?;
            let Some((free, _)) = self.known.free else {
                self.create().await?;
                continue;
            };
            let key = format!("{}free", self.prefix);
            if !free.has_terms(&self.terms) {
                return Err(StoreError::OtherTerms(key));
            }
            return Ok((instance, Answer::Account(self.account(free.free))));
        }
    }

    async fn read_once(&mut self) -> Result<u64, StoreError> {
        let prefix = self.prefix.clone();
        let options = GetOptions::new().with_prefix();
        let answer = self.client().await?.get(prefix, Some(options)).await;
        let answer = answer.map_err(|error| self.failed(error))?;
        let instance = self.note_instance(answer.header())?;
        let (peers, others): (Vec<_>, Vec<_>) = answer
            .kvs()
            .iter()
            .partition(|pair| self.name_in(pair, "peer/").is_some());
        self.peers = self.parse_peers(&peers);
        self.commands = CommandKeys::default();
        let account = others.into_iter().filter(|pair| {
            let name = pair.key().strip_prefix(self.prefix.as_bytes());
            !name.is_some_and(|name| self.commands.add(name, pair))
        });
        let account: Vec<_> = account.collect();
        let mut known = Known::default();
        self.known = Known::default();
        for pair in account {
            let key = String::from_utf8_lossy(pair.key()).into_owned();
            let garbage = || StoreError::Garbage(key.clone());
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            if name == "free" {
                let value = FreeValue::parse(pair.value()).ok_or_else(garbage)?;
                known.free = Some((value, pair.mod_revision()));
            } else {
                let id = name.strip_prefix("node/");
                let id = id.and_then(|id| NodeId::from_str_radix(id, 16).ok());
                let value = NodeValue::parse(pair.value());
                let (id, value) = id.zip(value).ok_or_else(garbage)?;
                known.versions.insert(id, pair.mod_revision());
                known.nodes.insert(id, value);
            }
        }
        self.known = known;
        Ok(instance)
    }

    /// Returns the text after `folder` in a key, if the key is in this folder.
    fn name_in<'a>(&self, pair: &'a KeyValue, folder: &str) -> Option<&'a [u8]> {
        pair.key()
            .strip_prefix(self.prefix.as_bytes())?
            .strip_prefix(folder.as_bytes())
    }

    fn parse_peers(&self, pairs: &[&KeyValue]) -> Peers {
        let mut peers = Peers::default();
        for pair in pairs {
            let number = self.name_in(pair, "peer/").unwrap_or_default();
            let number = str::from_utf8(number).ok().and_then(|id| id.parse().ok());
            match number.zip(PeerValue::parse(pair.value())) {
                Some((id, value)) => {
                    peers.by_id.insert(id, (value, pair.mod_revision()));
                }
                None => peers.garbage = Some(String::from_utf8_lossy(pair.key()).into_owned()),
            }
        }
        peers
    }

    /// Returns the peers as they were read last.
    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Asks for a lease of this many seconds.
    ///
    /// # Errors
    /// etcd can't be asked.
    pub(super) async fn grant_lease(&mut self, seconds: i64) -> Result<EtcdLease, StoreError> {
        let answer = self.client().await?.lease_grant(seconds, None).await;
        let answer = answer.map_err(|error| self.failed(error))?;
        Ok(EtcdLease {
            id: answer.id(),
            seconds: answer.ttl().max(1).unsigned_abs(),
        })
    }

    /// Renews a lease. Returns whether the lease was still there.
    ///
    /// # Errors
    /// etcd can't be asked.
    pub(super) async fn renew_lease(&mut self, lease: EtcdLease) -> Result<bool, StoreError> {
        match self.client().await?.lease_keep_alive(lease.id).await {
            Ok(_) => Ok(true),
            Err(etcd_client::Error::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Ends a lease, and removes its key.
    ///
    /// # Errors
    /// etcd can't be asked.
    pub(super) async fn revoke_lease(&mut self, lease: EtcdLease) -> Result<(), StoreError> {
        let answer = self.client().await?.lease_revoke(lease.id).await;
        answer.map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Writes the key of a peer, if its last change is still the one that was read. Returns whether it was.
    ///
    /// # Errors
    /// etcd can't be asked. Nobody knows then whether the key was written.
    pub(super) async fn put_peer(
        &mut self,
        id: u32,
        value: &PeerValue,
        lease: EtcdLease,
    ) -> Result<bool, StoreError> {
        let key = format!("{}peer/{id}", self.prefix);
        let same = match self.peers.by_id.get(&id) {
            None => Compare::create_revision(key.clone(), CompareOp::Equal, 0),
            Some((_, revision)) => Compare::mod_revision(key.clone(), CompareOp::Equal, *revision),
        };
        let options = PutOptions::new().with_lease(lease.id);
        let put = TxnOp::put(key, value.write(), Some(options));
        let txn = Txn::new().when([same]).and_then([put]);
        let answer = self.client().await?.txn(txn).await;
        let answer = answer.map_err(|error| self.failed(error))?;
        self.note_instance(answer.header())?;
        if answer.succeeded() {
            let known = (value.clone(), self.revision);
            self.peers.by_id.insert(id, known);
        }
        Ok(answer.succeeded())
    }

    /// Returns the commands for all nodes, and the answers to them, as they were read last.
    pub(super) fn commands(&self) -> &CommandKeys {
        &self.commands
    }

    /// Writes a command for all nodes. Its key ends with the lease.
    ///
    /// # Errors
    /// etcd can't be asked. Nobody knows then whether the key was written.
    pub(super) async fn put_command(
        &mut self,
        number: u64,
        value: &CommandValue,
        lease: EtcdLease,
    ) -> Result<(), StoreError> {
        let key = format!("{}command/{number:016x}", self.prefix);
        let options = PutOptions::new().with_lease(lease.id);
        let answer = self.client().await?.put(key, value.write(), Some(options));
        let answer = answer.await;
        answer.map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Writes a node's answer to a command, if the key of the command still exists. The answer ends with the lease of the
    /// command.
    ///
    /// # Errors
    /// etcd can't be asked. Nobody knows then whether the key was written.
    pub(super) async fn put_answer(
        &mut self,
        (number, lease): (u64, i64),
        node: NodeId,
        value: &AnswerValue,
    ) -> Result<(), StoreError> {
        let command = format!("{}command/{number:016x}", self.prefix);
        let key = format!("{}answer/{number:016x}/{node:016x}", self.prefix);
        let exists = Compare::create_revision(command, CompareOp::Greater, 0);
        let options = PutOptions::new().with_lease(lease);
        let put = TxnOp::put(key, value.write(), Some(options));
        let txn = Txn::new().when([exists]).and_then([put]);
        let answer = self.client().await?.txn(txn).await;
        answer.map_err(|error| self.failed(error))?;
        Ok(())
    }

    fn account(&self, free: i64) -> Account {
        let records = self.known.nodes.iter().map(|(&id, value)| {
            let record = Record {
                version: self
                    .known
                    .versions
                    .get(&id)
                    .map_or(0, |version| version.cast_unsigned()),
                extra: value.extra,
                renewals: value.renewals,
                wanted: value.wanted,
                weight: value.weight,
            };
            (id, record)
        });
        Account {
            free,
            revision: self.revision.cast_unsigned(),
            records: records.collect(),
        }
    }

    /// Writes the free number of a new fleet.
    async fn create(&mut self) -> Result<(), StoreError> {
        let held: i64 = self
            .known
            .nodes
            .values()
            .map(|node| i64::from(node.extra))
            .sum();
        let value = FreeValue::new(i64::from(self.terms.spare()) - held, &self.terms);
        let key = format!("{}free", self.prefix);
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let put = TxnOp::put(key, value.write(), None);
        let txn = Txn::new().when([absent]).and_then([put]);
        let answer = self.client().await?.txn(txn).await;
        answer.map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Carries out a change. `sources` has the addresses that the node's servers come from.
    ///
    /// # Errors
    /// etcd does not answer. Then the change may have been made or not.
    pub(super) async fn change(
        &mut self,
        change: &Change,
        sources: &BTreeSet<Source>,
    ) -> Result<(u64, Answer), StoreError> {
        let &(Change::Write {
            node,
            version,
            extra,
            ..
        }
        | Change::Correct {
            node,
            version,
            extra,
        }) = change;
        let before = self.known.nodes.get(&node);
        let held = before.map_or(0, |node| node.extra);
        let mut value = NodeValue {
            extra,
            renewals: before.map_or(0, |node| node.renewals),
            weight: 1,
            sources: sources.clone(),
            version: before.map_or_else(String::new, |node| node.version.clone()),
            wanted: 0,
        };
        let (mut raises, mut removes) = (false, extra == 0);
        if let &Change::Write {
            raises: is_raised,
            wanted,
            weight,
            ..
        } = change
        {
            value.renewals += 1;
            (value.wanted, value.weight) = (wanted, weight);
            value.version = self.version.to_owned();
            (raises, removes) = (is_raised, false);
        }
        let key = format!("{}node/{node:016x}", self.prefix);
        let mut compares = vec![match version {
            None => Compare::create_revision(key.clone(), CompareOp::Equal, 0),
            Some(version) => {
                let version = version.cast_signed();
                Compare::mod_revision(key.clone(), CompareOp::Equal, version)
            }
        }];
        let mut operations = vec![match removes {
            true => TxnOp::delete(key, None),
            false => TxnOp::put(key, value.write(), None),
        }];
        if extra != held || raises {
            let Some((free, revision)) = self.known.free else {
                return Err(StoreError::Garbage(format!("{}free", self.prefix)));
            };
            let left = free.free + i64::from(held) - i64::from(extra);
            let is_full = (raises || extra > held) && left < 0;
            let is_write = matches!(change, Change::Write { .. });
            if is_write && is_full {
                return Ok((self.instance, Answer::Changed(Err(Refusal::Full))));
            }
            let free_key = format!("{}free", self.prefix);
            let same = Compare::mod_revision(free_key.clone(), CompareOp::Equal, revision);
            compares.push(same);
            let value = FreeValue::new(left, &self.terms).write();
            operations.push(TxnOp::put(free_key, value, None));
        }
        let txn = Txn::new().when(compares).and_then(operations);
        let answer = self.client().await?.txn(txn).await;
        let answer = answer.map_err(|error| self.failed(error))?;
        let instance = self.note_instance(answer.header())?;
        let record = Record {
            version: self.revision.cast_unsigned(),
            extra,
            renewals: value.renewals,
            wanted: value.wanted,
            weight: value.weight,
        };
        let changed = match answer.succeeded() {
            true => Ok((!removes).then_some(record)),
            false => Err(Refusal::Outdated),
        };
        Ok((instance, Answer::Changed(changed)))
    }

    /// Returns the number of the instance that answered last.
    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    /// Returns a connection to a member.
    async fn client(&mut self) -> Result<&mut Client, StoreError> {
        if self.client.is_none() {
            let url = self.url();
            let connecting = self.connecting.get_or_insert_with(|| {
                let (options, urls) = (self.access.options(), [url.clone()]);
                let key = format!("{}free", self.prefix);
                let connects = async move {
                    let mut client = Client::connect(urls, Some(options)).await?;
                    // Without a password, the client connects with its first request.
                    client.get(key, None).await?;
                    Ok(client)
                };
                Connecting {
                    since: since_boot_us(),
                    connects: Box::pin(connects),
                }
            });
            let connected = connecting.connects.as_mut().await;
            self.connecting = None;
            let client = connected.map_err(|error| StoreError::Etcd(url, error))?;
            self.connect_time = self.terms.timeout;
            self.serial += 1;
            return Ok(self.client.insert(client));
        }
        let url = self.url();
        self.client.as_mut().ok_or(StoreError::NoHeader(url))
    }

    fn url(&self) -> String {
        let urls = &self.access.urls;
        urls[self.at % urls.len()].clone()
    }

    fn failed(&self, error: etcd_client::Error) -> StoreError {
        StoreError::Etcd(self.url(), error)
    }

    /// Notes which instance has answered.
    fn note_instance(&mut self, header: Option<&ResponseHeader>) -> Result<u64, StoreError> {
        let header = header.ok_or_else(|| StoreError::NoHeader(self.url()))?;
        if header.revision() < self.revision {
            self.serial += 1;
        }
        self.revision = header.revision();
        let mut hasher = DefaultHasher::new();
        (header.cluster_id(), header.raft_term(), self.serial).hash(&mut hasher);
        self.instance = hasher.finish();
        Ok(self.instance)
    }
}
