//! TLS on server connections, when the configuration asks for it.

use std::sync::Arc;

use super::Worker;
use crate::{
    Action, Actions, Address, Level, ReadMode, Source, Time, TlsFacts, TlsRole, Token,
    backend::{Duty, TlsAnswer},
};

impl Worker {
    /// Records that a new client came to another listener of this process by TLS, which passes the client's bytes on
    /// over a local socket. Channel binding is impossible for such a client.
    pub fn came_by_tls(&mut self, conn: Token, facts: TlsFacts) {
        if let Some(client) = self.table.client(conn) {
            client.tls = Some(Box::new(facts));
        }
    }

    /// Begins the login on a new server connection, or asks for TLS first. `nonce` is for the login.
    pub(super) fn open_login(&mut self, conn: Token, nonce: [u8; 18], out: &mut Actions) {
        let terms = self.snapshot.tls.servers;
        let Some(server) = self.table.server(conn) else {
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
    pub(super) fn server_answers_tls(&mut self, conn: Token, now: Time, out: &mut Actions) -> bool {
        let Some(server) = self.table.server(conn) else {
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
        server.link.tls = Some(Box::new(facts));
        self.logins.results_mut().server_tls += 1;
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
