//! TLS on client connections, when the client asks for it, and on server connections, when the configuration does.

use std::sync::Arc;

use super::Worker;
use crate::{
    Action, Actions, Address, Level, ReadMode, Source, Time, TlsFacts, TlsFault, TlsRole, Token,
    backend::{Duty, TlsAnswer},
    fault::Fault,
    frontend::{ClientDuty, Stage},
};

/// The first byte of a TLS handshake: the type of its first record. As the first byte of a startup packet it would
/// stand for a length of 352 MB.
const HANDSHAKE: u8 = 0x16;

impl Worker {
    /// Returns whether a client with this address gets TLS if it asks for it.
    pub(super) fn offers_tls(&self, client: Address) -> bool {
        self.snapshot.tls.clients && matches!(client, Address::Tcp(_))
    }

    /// Checks that the client has the encryption that `client_tls_sslmode` demands.
    pub(super) fn demand_tls(&mut self, conn: Token) -> Result<(), Fault> {
        let required = self.snapshot.tls.demanded;
        match self.table.client(conn) {
            Some(client) if required && client.tls.is_none() && client.remote != Address::Unix => {
                Err(Fault::Tls(TlsFault::Required))
            }
            _ => Ok(()),
        }
    }

    /// Accepts a client's request for TLS.
    pub(super) fn accept_tls(&mut self, conn: Token, out: &mut Actions) {
        if let Some(login) = self.login(conn) {
            login.stage = Stage::Handshake { direct: false };
            out.send_made(conn, |bytes| bytes.push(b'S'));
            let role = TlsRole::Accept { early: Vec::new() };
            out.list.push(Action::StartTls { conn, role });
        }
    }

    /// Starts TLS for a client that begins with a handshake without having asked first, as PostgreSQL does since
    /// version 17. Returns whether the client did so.
    pub(super) fn begins_with_tls(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(client) = self.table.client(conn) else {
            return false;
        };
        let remote = client.remote;
        if !self.offers_tls(remote) {
            return false;
        }
        let Some(login) = self.login(conn) else {
            return false;
        };
        let is_first =
            matches!(login.stage, Stage::Startup) && !login.asked_ssl && !login.asked_gss;
        if !is_first || login.inbox.rest().first() != Some(&HANDSHAKE) {
            return false;
        }
        login.asked_ssl = true;
        login.stage = Stage::Handshake { direct: true };
        let early = login.inbox.rest().to_vec();
        login.inbox.skip(early.len());
        let role = TlsRole::Accept { early };
        out.list.push(Action::StartTls { conn, role });
        true
    }

    /// Records that a new client came to another listener of this process by TLS, which passes the client's bytes on
    /// over a local socket. Channel binding is impossible for such a client.
    pub fn came_by_tls(&mut self, conn: Token, facts: TlsFacts) {
        if let Some(client) = self.table.client(conn) {
            client.tls = Some(Box::new(facts));
        }
    }

    pub(super) fn client_secured(
        &mut self,
        conn: Token,
        facts: TlsFacts,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let ClientDuty::Login(login) = &mut client.duty else {
            return;
        };
        let Stage::Handshake { direct } = login.stage else {
            return;
        };
        login.stage = Stage::Startup;
        login.end_point = facts.end_point.clone();
        let is_agreed = facts.is_agreed;
        client.tls = Some(Box::new(facts));
        self.logins.client_tls += 1;
        if direct && !is_agreed {
            self.refuse(conn, &Fault::Tls(TlsFault::NoAlpn), now, out);
        }
    }

    /// Begins the login on a new server connection, or asks for TLS first. `nonce` is for the login.
    pub(super) fn open_login(&mut self, conn: Token, nonce: [u8; 18], out: &mut Actions) {
        let terms = self.snapshot.tls.servers;
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let is_remote = matches!(server.addresses, Some((_, Address::Tcp(_))));
        let endpoint = Arc::clone(&server.endpoint);
        if let Duty::Login(login) = &mut server.duty {
            match terms.filter(|_| is_remote) {
                None => out.send_made(conn, |bytes| login.start(nonce, bytes)),
                Some(terms) if terms.direct => {
                    login.await_tls(nonce);
                    let role = TlsRole::Connect { endpoint };
                    out.list.push(Action::StartTls { conn, role });
                }
                Some(terms) => out.send_made(conn, |bytes| {
                    login.ask_for_tls(nonce, terms.required, bytes);
                }),
            }
        }
        out.read(conn, ReadMode::Deliver);
    }

    /// Handles a server's answer to the request for TLS, if it was asked. Returns whether the login goes on later.
    pub(super) fn server_answers_tls(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        let Some(server) = self.table.server(conn) else {
            return true;
        };
        let endpoint = Arc::clone(&server.endpoint);
        let Duty::Login(login) = &mut server.duty else {
            return true;
        };
        let start = out.scratch.len();
        match login.tls_answer(&mut out.scratch) {
            Ok(TlsAnswer::None) => false,
            Ok(TlsAnswer::Awaited) => true,
            Ok(TlsAnswer::Yes) => {
                let role = TlsRole::Connect { endpoint };
                out.list.push(Action::StartTls { conn, role });
                true
            }
            Ok(TlsAnswer::No) => {
                let source = Source::Scratch(start..out.scratch.len());
                out.list.push(Action::Send { to: conn, source });
                true
            }
            Err(error) => {
                self.server_refused(conn, &error, now, out);
                true
            }
        }
    }

    pub(super) fn server_secured(
        &mut self,
        conn: Token,
        facts: TlsFacts,
        now: Time,
        out: &mut Actions,
    ) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        let Duty::Login(login) = &mut server.duty else {
            return;
        };
        let text = format!("SSL established: {facts}");
        let start = out.scratch.len();
        let outcome = login.secured(&facts, &mut out.scratch);
        server.tls = Some(Box::new(facts));
        self.logins.server_tls += 1;
        if let Err(error) = outcome {
            return self.server_refused(conn, &error, now, out);
        }
        let source = Source::Scratch(start..out.scratch.len());
        out.list.push(Action::Send { to: conn, source });
        if self.snapshot.config.settings.log_connections {
            out.log(Level::Log, self.server_subject(conn), text);
        }
    }
}
