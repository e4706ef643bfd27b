//! The interface of the core for the driver, so that tests of the driver can use a smaller implementation.

use pgweir_auth::scram::DerivedKeys;
use pgweir_core::{
    Actions, Address, AuthCheckResult, Closed, ConnectError, Peer, TakenOverClient, Time, TlsFacts,
    Token, Worker, backend::Server, frontend::MovedClient, mail::Mail, takeover::ClientRecord,
};

/// One method per event; [`Worker`] documents them.
pub(crate) trait Pooler {
    fn accepted(&mut self, peer: &Peer, now: Time, out: &mut Actions) -> Token;
    fn note_client_tls(&mut self, conn: Token, facts: TlsFacts);
    fn readable(&mut self, conn: Token, now: Time, out: &mut Actions);
    fn received(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions);
    fn peeked(&mut self, conn: Token, first: Option<u8>, now: Time, out: &mut Actions);
    fn hung_up(&mut self, conn: Token, now: Time, out: &mut Actions);
    fn closed(&mut self, conn: Token, why: &Closed, now: Time, out: &mut Actions);
    fn blocked(&mut self, conn: Token, now: Time, out: &mut Actions);
    fn drained(&mut self, conn: Token, now: Time, out: &mut Actions);
    fn connected(
        &mut self,
        conn: Token,
        local: Address,
        remote: Address,
        nonce: [u8; 18],
        now: Time,
        out: &mut Actions,
    );
    fn secured(&mut self, conn: Token, facts: TlsFacts, now: Time, out: &mut Actions);
    fn connect_failed(&mut self, conn: Token, why: &ConnectError, now: Time, out: &mut Actions);
    fn derived(&mut self, conn: Token, keys: DerivedKeys, now: Time, out: &mut Actions);
    fn derive_refused(&mut self, conn: Token, now: Time, out: &mut Actions);
    fn auth_checked(&mut self, conn: Token, result: AuthCheckResult, now: Time, out: &mut Actions);
    fn mail(&mut self, mail: Mail, now: Time, out: &mut Actions);
    fn adopt(&mut self, server: Box<Server>, now: Time, out: &mut Actions) -> Token;
    fn take_client(&mut self, client: Box<MovedClient>, now: Time, out: &mut Actions) -> Token;
    fn take_over_client(
        &mut self,
        record: Box<ClientRecord>,
        blocked: bool,
        now: Time,
        out: &mut Actions,
    ) -> TakenOverClient;
    fn tick(&mut self, now: Time, out: &mut Actions);
    fn next_tick(&self) -> Option<Time>;
}

macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        impl Pooler for Worker {
            $(fn $name(&mut self, $($argument: $kind,)* now: Time, out: &mut Actions) $(-> $result)? {
                Worker::$name(self, $($argument,)* now, out)
            })*

            fn note_client_tls(&mut self, conn: Token, facts: TlsFacts) {
                Worker::note_client_tls(self, conn, facts);
            }

            fn next_tick(&self) -> Option<Time> {
                Worker::next_tick(self)
            }
        }
    };
}

forward! {
    fn accepted(peer: &Peer) -> Token;
    fn readable(conn: Token);
    fn received(conn: Token, bytes: &[u8]);
    fn peeked(conn: Token, first: Option<u8>);
    fn hung_up(conn: Token);
    fn closed(conn: Token, why: &Closed);
    fn blocked(conn: Token);
    fn drained(conn: Token);
    fn connected(conn: Token, local: Address, remote: Address, nonce: [u8; 18]);
    fn secured(conn: Token, facts: TlsFacts);
    fn connect_failed(conn: Token, why: &ConnectError);
    fn derived(conn: Token, keys: DerivedKeys);
    fn derive_refused(conn: Token);
    fn auth_checked(conn: Token, result: AuthCheckResult);
    fn mail(mail: Mail);
    fn adopt(server: Box<Server>) -> Token;
    fn take_client(client: Box<MovedClient>) -> Token;
    fn take_over_client(record: Box<ClientRecord>, blocked: bool) -> TakenOverClient;
    fn tick();
}
