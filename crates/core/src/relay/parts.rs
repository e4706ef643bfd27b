//! A text that ends a failed transaction, and then speaks of prepared statements which the server lacks:
//! it can be given them only in between. So the end goes first, and the rest once that is answered.

use pgweir_wire::{HEADER_LEN, Header, MessageWriter};

use super::upward::Upward;
use crate::{
    Actions, Token,
    session::{
        Dialect, Suspicion,
        scan::{Phrase, phrases, statements},
    },
    worker::Worker,
};

impl Upward<'_> {
    /// Sends the first statement of such a text; the rest waits. `false` if it is another kind of text.
    /// `header` and `rest` are of its message.
    #[cold]
    pub(super) fn sends_end_first(
        &mut self,
        text: &[u8],
        suspicion: Suspicion,
        header: Header,
        rest: &[u8],
        out: &mut Actions,
    ) -> bool {
        let ends = matches!(
            phrases(text).next(),
            Some(Phrase::Commit | Phrase::Rollback | Phrase::Savepoint)
        );
        let can_be_cut = self.server.session.dialect != Dialect::Unreadable
            && !self.server.replies.is_unsynced();
        if self.server.status != b'E' || !ends || !can_be_cut || !self.lacks_names(text, suspicion)
        {
            return false;
        }
        let Some(end) = statements(text).and_then(|ranges| Some(ranges.first()?.end)) else {
            return false;
        };
        let (first, later) = text.split_at(end);
        self.note(suspicion, text);
        self.note_ddl(suspicion, text);
        self.forget_unnamed();
        out.send_made(self.server_conn, |made| {
            MessageWriter::new(made).query(first);
        });
        self.server.replies.part_sent();
        // Positions in it are those in the whole.
        let mut body = vec![b' '; self.server.session.dialect.chars(first)];
        body.extend_from_slice(later);
        body.push(0);
        let behind = rest.get(header.body_len as usize..).unwrap_or_default();
        let header = Header {
            body_len: body.len() as u32,
            ..header
        };
        self.server.replies.wait_for_all();
        self.put_off(header, &[&body, behind], out);
        true
    }
}

impl Worker {
    /// Something has failed. If that was the first part of a text, the rest of it is not run.
    #[cold]
    pub(super) fn part_failed(&mut self, conn: Token) {
        let Some((_, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        if !server.replies.part_failed() {
            return;
        }
        if let Some(mut early) = client.early.take() {
            let header = Header::parse(&early).ok().flatten();
            let len = header.map_or(HEADER_LEN, |header| header.message_len());
            early.drain(..len.min(early.len()));
            client.early = (!early.is_empty()).then_some(early);
        }
    }
}
