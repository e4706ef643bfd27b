//! A cancel request for a client that waits for a server: the client's request is discarded, with PostgreSQL's error.

use pgweir_wire::{MessageWriter, Severity};

use super::Disconnect;
use crate::{
    Actions, ReadMode, Token,
    base::fault::Fault,
    client_listen,
    effect::{ClientEffect, Effect, RestartEffect},
    frontend::End,
};

impl Disconnect<'_> {
    /// Takes a client out of the queue with its request, if it waits with one.
    pub(crate) fn discard_request(&mut self, conn: Token, out: &mut Actions) {
        let client = self.connections.client(conn);
        if !client.is_some_and(|client| client.waits_with_request()) {
            return;
        }
        (self.pools).leave_queue(self.env.worker, self.connections, conn, out);
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        client.begin_discarding();
        client.request.take_lost_hosts();
        let early = client.socket.take_early();
        out.read(conn, ReadMode::Deliver);
        if let Some(bytes) = early {
            self.discard(conn, &bytes, out);
        }
    }

    /// Reads the rest of a request that will not be served.
    pub(crate) fn discard(&mut self, conn: Token, bytes: &[u8], out: &mut Actions) {
        let longest = self.env.snapshot.config.settings.longest_message();
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        let found = match client.discard(bytes, longest) {
            None => return,
            Some(Ok(found)) => found,
            Some(Err(fault)) => return self.refuse(conn, &fault, out),
        };
        if found.is_query {
            // If it had been carried out, the request would have replaced the unnamed statement.
            client.unnamed.forget();
        }
        if found.fails {
            out.send_made(conn, |bytes| {
                Fault::CommandCanceled.write(Severity::Error, bytes)
            });
        }
        match found.end {
            None => {}
            Some(End::At(at)) => self.discarded(conn, &bytes[at..], out),
            Some(End::Terminated) => self.dismiss(conn, "client close request", out),
        }
    }

    /// Makes the client idle again; it may have sent another request already.
    fn discarded(&mut self, conn: Token, rest: &[u8], out: &mut Actions) {
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).ready_for_query(b'I');
        });
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        client.become_idle();
        client.request.note_sent(self.env.now);
        let (is_blocked, listens) = (client.socket.is_blocked(), client.listening.is_some());
        let asks_more = !rest.is_empty();
        client.socket.keep_early(rest.to_vec());
        out.read(
            conn,
            if asks_more || is_blocked {
                ReadMode::Hold
            } else {
                ReadMode::Notify
            },
        );
        if listens {
            client_listen::send_backlog_if_idle(self.connections, conn, out);
        }
        if asks_more {
            self.effects
                .push(Effect::Client(ClientEffect::CheckOut(conn)));
        }
        if self.env.hands_clients_over {
            let done = Effect::Restart(RestartEffect::RequestDone(conn));
            self.effects.push(done);
        }
    }
}
