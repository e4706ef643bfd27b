//! Startup values that a client's texts take away come back within the same request.

use pgweir_wire::{MessageWriter, tag::backend, tag::frontend};

use super::upward::{Cursor, Upward, send_parse, send_target};
use crate::{
    Actions, Time, Token,
    backend::{Mark, MarkKind, Own, Reset},
    frontend::Head,
    session::{Insertions, TakenBack},
    worker::Worker,
};

/// What brings them back, as a statement and as a portal. Names of statements of ours end in digits.
const NAME: &[u8] = b"PGWEIR_R";

impl Upward<'_> {
    /// Does a text take startup values away, while what comes before it is not answered yet? What that
    /// undoes or settles is told from what this does only once it is.
    #[cold]
    pub(super) fn takes_back_too_early(&self, text: &[u8]) -> bool {
        let replies = &self.server.replies;
        let base = self.client.context.as_ref().map(|context| &context.base);
        let Some(base) = base.filter(|base| !base.is_empty()) else {
            return false;
        };
        !replies.is_unsynced()
            && !replies.is_copy_in()
            && replies.owed_to_client() > 0
            && TakenBack::default().note(text, base, 0)
    }

    /// A text of several statements goes to the server. If some read what others take away, it goes
    /// with what brings that back: `true` if it was sent so.
    #[cold]
    pub(super) fn restores_in_text(&mut self, text: &[u8], out: &mut Actions) -> bool {
        let Some(context) = self
            .client
            .context
            .as_ref()
            .filter(|own| !own.base.is_empty() && self.server.session.lack.is_none())
        else {
            return false;
        };
        let dialect = self.server.session.dialect;
        let Some((text, insertions)) = Insertions::make(text, &context.base, dialect) else {
            return false;
        };
        self.server.session.taken_back.restored();
        self.server.replies.startup_values_restored();
        self.server.segment.spoil();
        self.forget_unnamed();
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(&text);
        });
        self.server.replies.inserted_sent(insertions);
        true
    }

    /// Startup values are taken away by what came before this message: `true` if it waits for them.
    #[cold]
    pub(super) fn comes_behind_reset(
        &mut self,
        head: &Head,
        cursor: &mut Cursor,
        out: &mut Actions,
    ) -> bool {
        let replies = &mut self.server.replies;
        if replies.holds_back() {
            return true;
        }
        if replies.comes_behind_reset(head.header.tag) {
            cursor.flush(self.server_conn, head, out);
            if self.server.replies.reset() == Reset::Executed {
                self.fence(out);
                self.server.replies.set_reset(Reset::Fenced);
                return true;
            }
            let taken_back = &self.server.session.taken_back;
            if !taken_back.is_due() {
                // It was another statement that was executed. This may be it.
                self.server.replies.set_reset(match head.header.tag {
                    frontend::EXECUTE => Reset::Executed,
                    _ => Reset::Said,
                });
                return false;
            }
            if taken_back.discards() {
                self.restore_between(out);
            } else {
                self.restore_here(out);
            }
            self.server.replies.set_reset(Reset::Restored);
        }
        false
    }

    /// It was `DISCARD ALL`, a transaction of its own. So is what brings startup values back.
    fn restore_between(&mut self, out: &mut Actions) {
        let Some(context) = &self.client.context else {
            return;
        };
        let taken_back = &mut self.server.session.taken_back;
        let text = taken_back.take_statements_between(&context.base);
        self.server.segment.spoil();
        // What the extension says of it is said in answer to us.
        self.server.session.has_reported = true;
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).sync();
        });
        self.server.replies.own_synced(Own::Restore);
        self.server.ask(Own::Restore);
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(&text);
        });
    }

    /// A RESET has been executed, and the client's request goes on: what follows finds its startup values.
    #[cold]
    fn restore_here(&mut self, out: &mut Actions) {
        let Some(context) = &self.client.context else {
            return;
        };
        let taken_back = &mut self.server.session.taken_back;
        self.server.segment.spoil();
        for text in taken_back.take_statements_within(&context.base) {
            send_parse(self.server_conn, NAME, &[&text[..], &[0; 3]].concat(), out);
            out.send_made(self.server_conn, |made| {
                let target = |kind: u8| {
                    move |body: &mut Vec<u8>| {
                        body.push(kind);
                        body.extend_from_slice(NAME);
                        body.push(0);
                    }
                };
                MessageWriter::new(made)
                    .message(frontend::BIND, |body| {
                        body.extend_from_slice(&[NAME, &[0], NAME, &[0; 7]].concat());
                    })
                    .message(frontend::EXECUTE, |body| {
                        body.extend_from_slice(&[NAME, &[0; 5]].concat());
                    })
                    .message(frontend::CLOSE, target(b'P'));
            });
            send_target(self.server_conn, frontend::CLOSE, NAME, out);
            self.server.replies.mark_sent(Mark {
                swallow: true,
                ..Mark::plain(MarkKind::Restore(0))
            });
        }
    }
}

impl Worker {
    /// ErrorResponse: `true` if the client is to see it as it is. If the text had statements of ours in it,
    /// the position is another one for the client.
    #[cold]
    pub(super) fn server_complained(
        &mut self,
        conn: Token,
        body: &[u8],
        now: Time,
        out: &mut Actions,
    ) -> bool {
        let server = self.table.server(conn);
        let insertions = server.and_then(|server| server.replies.insertions());
        let Some(moved) = insertions.and_then(|insertions| insertions.moved(body)) else {
            return self.complained(conn, body, now, out);
        };
        if self.complained(conn, &moved, now, out)
            && let Some(client) = self.table.server(conn).and_then(|server| server.client())
        {
            out.send_made(client, |made| {
                MessageWriter::new(made).message(backend::ERROR_RESPONSE, |made| {
                    made.extend_from_slice(&moved)
                });
            });
        }
        false
    }
}
