use std::{fs, io::Write, sync::Arc};

use pgweir_config::{Settings, SslMode};
use pgweir_core::{Endpoint, TlsRole};
use rustls::{ClientConnection, pki_types::ServerName};

use super::super::{Contexts, TlsSession};

/// A self-signed certificate of `localhost`, and its key: for these tests only.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBlTCCATugAwIBAgIUGOPQ6vasw3wDuFO2B5nPtVhW4V8wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzA1MDIyM1oYDzIxMjYxMTAz
MDUwMjIzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASnpfRTqluQCzhjR3T7kexsCYzTzUzDN98W/JIooK/yNVZ6m+Z2QcGt
rlVp31Z+jKsKf+g0XMSZkbM6YGV51pSfo2kwZzAdBgNVHQ4EFgQUWfAdzsl6+Unh
WwZzsJY8AlbQ5D0wHwYDVR0jBBgwFoAUWfAdzsl6+UnhWwZzsJY8AlbQ5D0wDwYD
VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglsb2NhbGhvc3QwCgYIKoZIzj0EAwID
SAAwRQIhAPtLvyh+gIQab++trJtCU7N59OK7X0cI6wQQ08ouHub5AiAVra4LggT6
uhX28n7H+3b5VTANc4P/OMlbNi5lqmkDHw==
-----END CERTIFICATE-----
";
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgvOnrnLy9pTOq/BUi
SLuUsS5PHVHItfuwmIpExa8utiyhRANCAASnpfRTqluQCzhjR3T7kexsCYzTzUzD
N98W/JIooK/yNVZ6m+Z2QcGtrlVp31Z+jKsKf+g0XMSZkbM6YGV51pSf
-----END PRIVATE KEY-----
";

/// Creates contexts of both sides that speak this version with this cipher.
fn contexts(protocol: &str, cipher: &str) -> Contexts {
    let folder = tempfile::tempdir().expect("a folder");
    let [key, certificate] = [("key", KEY), ("certificate", CERTIFICATE)].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        Some(path.display().to_string())
    });
    let mut settings = Settings {
        client_tls_sslmode: SslMode::Require,
        client_tls_key_file: key,
        client_tls_cert_file: certificate,
        client_tls_protocols: protocol.to_owned(),
        server_tls_sslmode: SslMode::Require,
        server_tls_protocols: protocol.to_owned(),
        ..Settings::default()
    };
    match protocol {
        "tlsv1.2" => settings.client_tls_ciphers = cipher.to_owned(),
        _ => settings.client_tls13_ciphers = Some(cipher.to_owned()),
    }
    Contexts::load(&settings, &Contexts::default(), &mut Vec::new()).expect("contexts")
}

/// Gives a session bytes of its peer. Returns the plaintext, and the bytes for the peer.
fn feed(session: &mut TlsSession, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut buffer = vec![0; 64 * 1024];
    let kept = session.put_partial(&mut buffer);
    let end = kept + bytes.len();
    buffer[kept..end].copy_from_slice(bytes);
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    session
        .receive(&mut buffer[..end], &mut plain, &mut out)
        .expect("right bytes");
    (plain, out)
}

fn pass(from: &mut TlsSession, to: &mut TlsSession, text: &[u8]) {
    let mut sealed = Vec::new();
    from.seal(text, &mut sealed).expect("sealed");
    // The bytes come in two pieces, so that the beginning of a record is kept.
    let (head, tail) = sealed.split_at(sealed.len() / 2);
    let mut plain = feed(to, head).0;
    plain.extend(feed(to, tail).0);
    assert!(plain == text);
}

fn moved(session: TlsSession) -> TlsSession {
    let state = session.save().expect("saved");
    assert_eq!(format!("{state:?}"), "TlsState");
    TlsSession::resume(&state).expect("resumed")
}

const SUITES: [(&str, &str); 6] = [
    ("tlsv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("tlsv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("tlsv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("tlsv1.3", "TLS_AES_128_GCM_SHA256"),
    ("tlsv1.3", "TLS_AES_256_GCM_SHA384"),
    ("tlsv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
];

fn connected(contexts: &Contexts) -> [TlsSession; 2] {
    let endpoint = Arc::new(Endpoint::Tcp {
        host: "localhost".to_owned(),
        port: 5432,
    });
    let role = TlsRole::Accept { early: Vec::new() };
    let mut server = TlsSession::new(role, contexts).expect("a context");
    let mut client = TlsSession::new(TlsRole::Connect { endpoint }, contexts).expect("a context");
    let mut to_server = feed(&mut client, &[]).1;
    while !to_server.is_empty() || !client.is_established() {
        let to_client = feed(&mut server, &to_server).1;
        to_server = feed(&mut client, &to_client).1;
    }
    assert!(server.is_established());
    [server, client]
}

#[test]
fn each_side_moves_several_times() {
    for (protocol, cipher) in SUITES {
        let [mut server, mut client] = connected(&contexts(protocol, cipher));
        let name = server.facts().expect("own").cipher;
        let is_meant = name.replace(['-', '_'], "") == cipher.replace(['-', '_'], "");
        assert!(is_meant, "{name} for {cipher}");
        let long = vec![b'x'; 50_000];
        for _ in 0..3 {
            for text in [&b"question"[..], &long[..16_384], b""] {
                pass(&mut client, &mut server, text);
                pass(&mut server, &mut client, text);
            }
            server = moved(server);
            pass(&mut client, &mut server, b"to the new one");
            pass(&mut server, &mut client, b"from the new one");
            client = moved(client);
        }
        let mut sealed = Vec::new();
        client.close(&mut sealed);
        let _ = feed(&mut server, &sealed);
        assert!(server.has_ended() && !client.has_ended());
        assert!(moved(server).has_ended(), "the next process knows, too");
    }
}

/// A client of rustls, which can ask for new keys.
struct Peer(ClientConnection);

impl Peer {
    fn connected(contexts: &Contexts) -> (Self, TlsSession) {
        let connect = contexts.connect().expect("a context");
        let config = connect.config.clone().expect("a version");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut peer = Self(ClientConnection::new(config, name).expect("a client"));
        let role = TlsRole::Accept { early: Vec::new() };
        let mut session = TlsSession::new(role, contexts).expect("a context");
        while peer.0.is_handshaking() || !session.is_established() {
            peer.exchange(&mut session, b"");
        }
        (peer, session)
    }

    /// Sends all bytes that wait, and takes the answer.
    fn exchange(&mut self, session: &mut TlsSession, expect: &[u8]) {
        let mut sent = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut sent).expect("written");
        }
        let (plain, answer) = feed(session, &sent);
        assert_eq!(plain, expect);
        self.take(&answer);
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes).expect("read");
            self.0.process_new_packets().expect("right bytes");
        }
    }

    fn ask(&mut self, session: &mut TlsSession) {
        self.0.writer().write_all(b"question").expect("written");
        self.exchange(session, b"question");
        let mut sealed = Vec::new();
        session.seal(b"answer", &mut sealed).expect("sealed");
        self.take(&sealed);
        let mut got = [0; 6];
        std::io::Read::read_exact(&mut self.0.reader(), &mut got).expect("plaintext");
        assert_eq!(&got, b"answer");
    }
}

#[test]
fn keys_are_updated_before_and_after_a_move() {
    for (protocol, cipher) in &SUITES[3..] {
        let (mut peer, mut session) = Peer::connected(&contexts(protocol, cipher));
        peer.ask(&mut session);
        for _ in 0..3 {
            peer.0.refresh_traffic_keys().expect("new keys");
            peer.ask(&mut session);
            session = moved(session);
            peer.ask(&mut session);
            peer.0.refresh_traffic_keys().expect("new keys");
            peer.ask(&mut session);
        }
    }
}

#[test]
fn a_session_in_its_handshake_does_not_move() {
    let contexts = contexts("tlsv1.3", "TLS_AES_128_GCM_SHA256");
    let role = TlsRole::Accept { early: Vec::new() };
    let session = TlsSession::new(role, &contexts).expect("a context");
    assert!(session.save().is_err());
}
