//! TLS on client connections: asked for by the client, or begun at once.

use super::{LoginStep, Next};
use crate::{Address, TlsFacts, TlsFault, TlsRole, base::fault::Fault, frontend::Stage};

/// The first byte of a TLS handshake: the type of its first record. As the first byte of a startup packet it would
/// stand for a length of 352 MB.
const HANDSHAKE: u8 = 0x16;

impl LoginStep<'_> {
    /// Returns whether the client gets TLS if it asks for it.
    pub(super) fn offers_tls(&self) -> bool {
        self.env.snapshot.tls.clients && matches!(self.client.origin.remote, Address::Tcp(_))
    }

    /// Checks that the client has the encryption that `client_tls_sslmode` demands.
    pub(super) fn demand_tls(&self) -> Result<(), Fault> {
        let is_plain = self.client.tls().is_none() && self.client.origin.remote != Address::Unix;
        match self.env.snapshot.tls.demanded && is_plain {
            true => Err(Fault::Tls(TlsFault::Required)),
            false => Ok(()),
        }
    }

    /// Accepts the client's request for TLS.
    pub(super) fn accept_tls(&mut self) {
        self.out.send_made(self.conn, |bytes| bytes.push(b'S'));
        self.start_tls(false, Vec::new());
    }

    /// Starts TLS for a client that begins with a handshake without an SSLRequest, which PostgreSQL accepts since
    /// version 17. Returns whether the client has begun with a handshake.
    pub(super) fn begins_with_tls(&mut self) -> bool {
        let login = &mut self.login;
        let is_first =
            matches!(login.stage, Stage::Startup) && !login.asked_ssl && !login.asked_gss;
        if !is_first || login.inbox.rest().first() != Some(&HANDSHAKE) || !self.offers_tls() {
            return false;
        }
        let login = &mut self.login;
        login.asked_ssl = true;
        let early = login.inbox.rest().to_vec();
        login.inbox.skip(early.len());
        self.start_tls(true, early);
        true
    }

    fn start_tls(&mut self, direct: bool, early: Vec<u8>) {
        self.login.stage = Stage::Handshake { direct };
        let (conn, role) = (self.conn, TlsRole::Accept { early });
        self.out.start_tls(conn, role);
    }

    /// Takes the facts about the TLS session: the handshake has ended.
    pub(super) fn take_tls(&mut self, facts: TlsFacts) -> Result<Next, Fault> {
        let Stage::Handshake { direct } = self.login.stage else {
            return Ok(Next::Awaited);
        };
        self.login.stage = Stage::Startup;
        self.login.end_point = facts.end_point.clone();
        let is_agreed = facts.is_agreed;
        self.client.note_encrypted(facts);
        self.results.client_tls += 1;
        match direct && !is_agreed {
            true => Err(Fault::Tls(TlsFault::NoAlpn)),
            false => Ok(Next::Awaited),
        }
    }
}
