//! Startup packets that clients have sent before, with what was read from them. The clients of one application send equal
//! packets, and reading a packet takes longer than comparing it.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use pgweir_wire::ProtocolVersion;

use crate::{Snapshot, frontend::LoginRequest, pool::PoolKey};

/// The number of packets that a worker remembers.
const KNOWN_MAX: usize = 8;
/// The length in bytes of the longest packet that is remembered.
const PACKET_MAX: usize = 512;

/// A startup packet, and what was read from it.
pub(super) struct KnownStartup {
    packet: Box<[u8]>,
    pub(super) version: ProtocolVersion,
    pub(super) request: LoginRequest,
    /// The names under which the client is counted.
    pub(super) names: Arc<PoolKey>,
}

/// The startup packets that a worker remembers. What is read from a packet depends on the configuration, so all are
/// forgotten when the configuration changes.
#[derive(Debug, Default)]
pub(super) struct KnownStartups {
    /// The configuration under which the packets were read. An outdated one is not kept in memory.
    snapshot: Weak<Snapshot>,
    startups: Vec<KnownStartup>,
    /// The position of the packet that the next new one replaces.
    next: usize,
}

impl KnownStartup {
    /// Describes a packet that was read. Returns `None` if the packet is too long to be remembered, or rare: if its
    /// client needs an exclusive server, or has asked for unknown options.
    pub(super) fn new(
        packet: &[u8],
        version: ProtocolVersion,
        request: &LoginRequest,
        names: &Arc<PoolKey>,
    ) -> Option<Self> {
        let is_common = request.exclusive.is_none() && request.unknown_options.is_empty();
        (is_common && packet.len() <= PACKET_MAX).then(|| Self {
            packet: packet.into(),
            version,
            request: request.clone(),
            names: Arc::clone(names),
        })
    }
}

impl fmt::Debug for KnownStartup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of parameters may be secrets.
        f.debug_struct("KnownStartup")
            .field("user", &self.request.user)
            .field("database", &self.request.database)
            .finish_non_exhaustive()
    }
}

impl KnownStartups {
    /// Returns what was read from a packet with these bytes, under this configuration.
    pub(super) fn find(&self, packet: &[u8], snapshot: &Arc<Snapshot>) -> Option<&KnownStartup> {
        if !self.is_of(snapshot) {
            return None;
        }
        self.startups.iter().find(|known| *known.packet == *packet)
    }

    fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        std::ptr::eq(self.snapshot.as_ptr(), Arc::as_ptr(snapshot))
    }

    /// Remembers a packet that was read under this configuration. Above [`KNOWN_MAX`], the packet that was read first is
    /// forgotten.
    pub(super) fn keep(&mut self, known: Option<KnownStartup>, snapshot: &Arc<Snapshot>) {
        let Some(known) = known else {
            return;
        };
        if !self.is_of(snapshot) {
            self.snapshot = Arc::downgrade(snapshot);
            self.startups.clear();
            self.next = 0;
        }
        match self.startups.get_mut(self.next) {
            Some(oldest) => *oldest = known,
            None => self.startups.push(known),
        }
        self.next = (self.next + 1) % KNOWN_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExclusiveServer, session::TrackedNames};

    fn snapshot() -> Arc<Snapshot> {
        Arc::new(Snapshot {
            config: Default::default(),
            users: Default::default(),
            tls: Default::default(),
            rules: Default::default(),
        })
    }

    fn request(user: &str) -> LoginRequest {
        LoginRequest {
            user: user.into(),
            database: "d".into(),
            tracked: TrackedNames::new(&[]).unset(),
            unknown_options: Vec::new(),
            exclusive: None,
            asked: None,
        }
    }

    fn known(packet: &[u8], request: &LoginRequest) -> Option<KnownStartup> {
        let names = Arc::new(PoolKey {
            database: (*request.database).into(),
            user: (*request.user).into(),
        });
        KnownStartup::new(packet, ProtocolVersion::V3_0, request, &names)
    }

    #[test]
    fn a_packet_is_known_until_the_configuration_changes() {
        let (before, after) = (snapshot(), snapshot());
        let mut startups = KnownStartups::default();
        startups.keep(known(b"one", &request("u")), &before);
        startups.keep(known(b"two", &request("v")), &before);
        let user = |startups: &KnownStartups, packet: &[u8], snapshot| {
            let known = startups.find(packet, snapshot)?;
            Some(known.request.user.to_string())
        };
        assert_eq!(user(&startups, b"one", &before).as_deref(), Some("u"));
        assert_eq!(user(&startups, b"two", &before).as_deref(), Some("v"));
        assert_eq!(user(&startups, b"tw", &before), None);
        assert_eq!(user(&startups, b"one", &after), None);
        startups.keep(known(b"two", &request("w")), &after);
        assert_eq!(user(&startups, b"two", &after).as_deref(), Some("w"));
        assert_eq!(user(&startups, b"one", &after), None);
        assert_eq!(user(&startups, b"two", &before), None);
    }

    #[test]
    fn few_short_and_common_packets_are_kept() {
        let snapshot = snapshot();
        let mut startups = KnownStartups::default();
        for number in 0..=KNOWN_MAX as u8 {
            startups.keep(known(&[number], &request("u")), &snapshot);
        }
        assert_eq!(startups.startups.len(), KNOWN_MAX);
        assert!(startups.find(&[0], &snapshot).is_none());
        assert!(startups.find(&[KNOWN_MAX as u8], &snapshot).is_some());
        assert!(known(&[0; PACKET_MAX], &request("u")).is_some());
        assert!(known(&[0; PACKET_MAX + 1], &request("u")).is_none());
        let mut exclusive = request("u");
        exclusive.exclusive = Some(ExclusiveServer {
            replication: crate::Replication::Physical,
            bypass: false,
            parameters: Vec::new(),
        });
        assert!(known(b"x", &exclusive).is_none());
    }

    #[test]
    fn no_values_in_debug_output() {
        let mut with_secret = request("u");
        with_secret.asked = Some([(b"app.key".to_vec(), b"secret".to_vec())].into());
        let shown = format!("{:?}", known(b"app.key\0secret\0", &with_secret));
        assert!(shown.contains("\"u\"") && !shown.contains("secret"));
        assert!(!shown.contains("115"), "no bytes of the packet");
    }
}
