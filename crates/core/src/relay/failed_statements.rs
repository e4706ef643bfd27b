//! Statements that a server could not make: what it has said is for their client, should it use them.

use pgweir_wire::{MessageWriter, tag::backend};

use crate::{
    Token,
    backend::{Change, InternalQuery, Mark, Request},
    worker::Worker,
};

impl Worker {
    /// Something has failed: if that is a statement which we have tried to make, this is what is to be
    /// told of it.
    #[cold]
    pub(super) fn note_failed_statement(&mut self, conn: Token, marks: &[Mark], body: &[u8]) {
        let Some((_, client, server)) = self.table.pair_of(conn) else {
            return;
        };
        let Some(context) = client.context.as_deref_mut() else {
            return;
        };
        match (
            server.replies.current(),
            marks.first().and_then(Mark::change),
        ) {
            (Some(Request::Internal(InternalQuery::Statements)), Some(Change::Given(name))) => {
                context.failed_statements.note(name, body);
            }
            (Some(Request::Internal(InternalQuery::Sql(at))), _) => {
                if let Some(name) = context.sql.name(at) {
                    context.failed_statements.note(name, body);
                }
            }
            _ => {}
        }
    }

    /// A server did not get a statement under the client's name.
    pub(super) fn note_missing_statement(&mut self, conn: Token, name: &[u8]) {
        let Some(server) = self.table.server(conn) else {
            return;
        };
        server.session.client_names.miss(name);
    }

    /// A client has used a statement that its server does not know. If that is one which could not be
    /// made, the message that tells why.
    #[cold]
    pub(super) fn error_of_failed_statement(
        &mut self,
        conn: Token,
        name: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let name = name?;
        let bindings = &self.bindings;
        let (_, client, server) = self.table.pair_of(conn)?;
        let session = &server.session;
        let is_own = matches!(server.replies.current(), Some(Request::Internal(_)));
        let context = client.context.as_deref()?;
        let has = context.sql.has(name) || client.statements.find(bindings, name).is_some();
        if is_own || !has || session.sql.has(name) || session.client_names.is_prepared(name) {
            return None;
        }
        let said = context
            .failed_statements
            .get(name)
            .filter(|said| !said.is_empty())?;
        let mut message = Vec::new();
        MessageWriter::new(&mut message)
            .message(backend::ERROR_RESPONSE, |out| out.extend_from_slice(said));
        Some(message)
    }
}
