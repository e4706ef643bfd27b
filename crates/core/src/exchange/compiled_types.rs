//! Servers whose PL/pgSQL functions keep types that other clients do not have.

use pgweir_config::Unclean;

use super::Exchange;
use crate::{
    Actions, Token,
    backend::Phase,
    connections::moves::enter,
    effect::{Effect, ServerEffect},
};

/// The reason for closing such a server.
const OTHER_TYPES: &str = "its functions may keep types of another search_path";

impl Exchange<'_> {
    /// Closes a server that is lent to a client if the server's functions may keep types of another `search_path`. Then
    /// the client gets another server.
    #[cold]
    pub(super) fn replace_for_types(
        &mut self,
        server_conn: Token,
        client_conn: Token,
        out: &mut Actions,
    ) -> Option<Effect> {
        let ignores = self.env.snapshot.config.settings.unclean == Unclean::Ignore;
        let (client, server) = self.connections.known_pair(client_conn, server_conn, out)?;
        let wanted = &client.context.as_ref()?.wanted;
        let pool = self.pools.get_mut(server.pool())?;
        pool.use_current_catalog();
        let certificates = &pool.catalog.certificates;
        if !certificates.types_depend_on_path() && !certificates.may_have_new_code() {
            // All search paths give the same types.
            server.session.lasting.types.forget();
            return None;
        }
        if ignores
            || !certificates.types_depend_on_path()
            || server.session.lasting.types.suit(wanted)
        {
            return None;
        }
        enter(Phase::Equipping, client_conn, client, server_conn, server);
        self.pools.retire_unclean(server, OTHER_TYPES);
        Some(Effect::Server(ServerEffect::FailCheck(
            server_conn,
            OTHER_TYPES,
        )))
    }
}
