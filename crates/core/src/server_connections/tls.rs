//! TLS on server connections, when the configuration asks for it.

use std::sync::Arc;

use super::ServerConnections;
use crate::{
    Action, Actions, Address, Level, ReadMode, Source, TlsFacts, TlsRole, Token, backend::TlsAnswer,
};

/// Reported when a server does not log in while TLS begins.
const NO_LOGIN: &str = "the login of a server that begins with TLS";

impl ServerConnections<'_> {
    /// Begins the login on a new server connection, or asks for TLS first. `nonce` is for the login.
    pub(super) fn open_login(&mut self, conn: Token, nonce: [u8; 18], out: &mut Actions) {
        let terms = self.env.snapshot.tls.servers;
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let is_remote = matches!(server.link.addresses(), Some((_, Address::Tcp(_))));
        let endpoint = Arc::clone(server.link.endpoint());
        if let Some(login) = server.login_mut() {
            match terms.filter(|_| is_remote) {
                None => out.send_made(conn, |bytes| login.start(nonce, bytes)),
                Some(terms) if terms.direct => {
                    login.await_tls(nonce);
                    let role = TlsRole::Connect { endpoint };
                    out.start_tls(conn, role);
                }
                Some(terms) => out.send_made(conn, |bytes| {
                    login.ask_for_tls(nonce, terms.required, bytes);
                }),
            }
        }
        out.read(conn, ReadMode::Deliver);
    }

    /// Handles a server's answer to the request for TLS, if there was one. Returns whether the login goes on later.
    pub(super) fn take_tls_answer(&mut self, conn: Token, out: &mut Actions) -> bool {
        let Some(server) = self.connections.known_server(conn, out) else {
            return true;
        };
        let endpoint = Arc::clone(server.link.endpoint());
        let Some(login) = server.login_mut() else {
            out.report_missing(NO_LOGIN);
            return true;
        };
        let start = out.scratch.len();
        match login.tls_answer(&mut out.scratch) {
            Ok(TlsAnswer::None) => false,
            Ok(TlsAnswer::Awaited) => true,
            Ok(TlsAnswer::Yes) => {
                let role = TlsRole::Connect { endpoint };
                out.start_tls(conn, role);
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

    /// Continues the login after the TLS handshake.
    pub(crate) fn secured(&mut self, conn: Token, facts: TlsFacts, out: &mut Actions) {
        let Some(server) = self.connections.known_server(conn, out) else {
            return;
        };
        let Some(login) = server.login_mut() else {
            return out.report_missing(NO_LOGIN);
        };
        let text = format!("SSL established: {facts}");
        let start = out.scratch.len();
        let outcome = login.secured(&facts, &mut out.scratch);
        server.link.note_encrypted(facts);
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
