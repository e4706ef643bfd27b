//! TLS on server connections, when the configuration asks for it.

use std::sync::Arc;

use super::ServerConnections;
use crate::{
    Action, Actions, Address, Level, ReadMode, Source, TlsFacts, TlsRole, Token,
    backend::{Duty, TlsAnswer},
};

impl ServerConnections<'_> {
    /// Begins the login on a new server connection, or asks for TLS first. `nonce` is for the login.
    pub(super) fn open_login(&mut self, conn: Token, nonce: [u8; 18], out: &mut Actions) {
        let terms = self.env.snapshot.tls.servers;
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        let is_remote = matches!(server.link.addresses, Some((_, Address::Tcp(_))));
        let endpoint = Arc::clone(&server.link.endpoint);
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
    pub(super) fn take_tls_answer(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(server) = self.connections.server(conn) else {
            return true;
        };
        let endpoint = Arc::clone(&server.link.endpoint);
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
                self.refused(conn, &error, out);
                true
            }
        }
    }

    /// Goes on with the login after the TLS handshake.
    pub(crate) fn secured(&mut self, conn: Token, facts: TlsFacts, out: &mut Actions) {
        let Some(server) = self.connections.server(conn) else {
            return;
        };
        let Duty::Login(login) = &mut server.duty else {
            return;
        };
        let text = format!("SSL established: {facts}");
        let start = out.scratch.len();
        let outcome = login.secured(&facts, &mut out.scratch);
        server.link.tls = Some(Box::new(facts));
        self.results.server_tls += 1;
        if let Err(error) = outcome {
            return self.refused(conn, &error, out);
        }
        let source = Source::Scratch(start..out.scratch.len());
        out.list.push(Action::Send { to: conn, source });
        if self.env.snapshot.config.settings.log_connections {
            out.log(Level::Log, self.subject(conn), text);
        }
    }
}
