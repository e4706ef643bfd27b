//! Logins of clients: from the accepted connection to the client's place in its pool, or to the console.
//!
//! This module owns the counts of a worker's clients and of the results of their logins ([`ClientLogins`]), the logins
//! that are parked above a limit, and the state of each login, which lies in the client's connection
//! ([`ClientDuty::Login`](crate::frontend::ClientDuty::Login)).
//!
//! Input: accepted connections, bytes of clients that log in, the end of TLS handshakes, derived keys, results of
//! checks by LDAP, PAM and the operating system, and the answers of databases to `auth_query`. [`LoginStep`] handles
//! one of these for one client, and decides about the next step; [`LoginEvent`] carries the step out with the worker's
//! other parts. Cancel requests arrive here as well, since they begin like logins.
//!
//! Output: actions for the driver, and effects. A client that has authenticated joins its pool
//! ([`ClientEffect::JoinPool`]), waits for a server of its own ([`ClientEffect::Wait`]), or is served by the console
//! ([`ConsoleEffect::Serve`](crate::effect::ConsoleEffect::Serve)). A client whose user must be looked up waits for a
//! server that answers. Every other login ends with [`ClientEffect::Refuse`].

mod admission;
mod authentication;
mod bans;
mod client_tls;
mod greetings;
mod known_startups;
pub(crate) mod parked;
mod server_failure;
mod steps;
pub(crate) mod surplus;
mod user_lookup;

use std::sync::Arc;

use pgweir_auth::scram::{DerivedKeys, NONCE_BYTES};

use self::{
    admission::{Admission, ConsoleLogin},
    greetings::Greetings,
    known_startups::KnownStartups,
};
pub(crate) use self::{
    server_failure::{check_hosts, refuse_waiters},
    user_lookup::{cache_limits, note_lost_lookup, note_neutral_session},
};
use crate::{
    Actions, AuthCheckResult, Level, Peer, ReadMode, SharedPool, TlsFacts, Token,
    base::{fault::Fault, stats::Logins},
    cancel_requests::{CancelRequests, peers},
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Effects, Env},
    frontend::{Client, ClientKey, Login, Origin},
    login::parked::{ParkedLogin, ParkedLogins},
    pooling::{LocalPool, LocalPools},
    shared::{auth_cache::UserQuery, cancel::CancelKey},
};

/// The user and database that a client names when it logs in, and facts about its connection. These decide how the
/// client has to authenticate.
#[derive(Debug, Clone)]
struct Claim {
    user: Arc<str>,
    database: Arc<str>,
    to_console: bool,
    is_physical: bool,
    is_tls: bool,
    same_uid: bool,
    /// The client's address, if it connects by TCP.
    address: Option<std::net::IpAddr>,
}

/// The counts of a worker's clients, and the logins that are parked.
#[derive(Debug, Default)]
pub(crate) struct ClientLogins {
    /// The number of the worker's clients.
    clients: usize,
    /// Counts of logins and TLS handshakes by result.
    results: Logins,
    parked: ParkedLogins,
    /// Startup packets that were read before.
    startups: KnownStartups,
    /// Ends of logins that were made before.
    greetings: Greetings,
}

impl ClientLogins {
    /// Counts a client that another process has handed over.
    pub(crate) fn client_taken_over(&mut self) {
        self.clients += 1;
    }

    /// Counts the end of a client.
    pub(crate) fn client_left(&mut self) {
        self.clients -= 1;
    }

    /// Returns whether clients that have logged in have to be checked for timeouts, or have to leave in a pause.
    pub(crate) fn have_timeouts(&self, env: &Env<'_>) -> bool {
        let may_end = env.snapshot.config.has_client_timeouts()
            || env.directory.operator().departures().are_ordered();
        self.clients > 0 && may_end
    }

    /// Returns the counts of logins and TLS handshakes.
    pub(crate) fn results(&self) -> Logins {
        self.results
    }

    /// Returns the counts of logins and TLS handshakes, to count one more.
    pub(crate) fn results_mut(&mut self) -> &mut Logins {
        &mut self.results
    }

    /// Notes that a worker has processed pending disconnects. Returns the logins to count again, once all workers
    /// have.
    pub(crate) fn pending_processed(&mut self) -> Vec<ParkedLogin> {
        self.parked.answered()
    }

    /// Asks all workers to process pending disconnects if logins were parked meanwhile.
    pub(crate) fn ask_for_pending(&mut self, env: &Env<'_>, out: &mut Actions) {
        self.parked.ask(env, out);
    }
}

/// The next step for a client that logs in.
#[derive(Debug)]
enum Next {
    /// The login waits for more bytes, or for the result of a check.
    Awaited,
    /// The login is above a limit: it is parked.
    Park,
    /// The login is above a limit again: it is parked again, or refused with this error.
    ParkAgain(ParkedLogin, Fault),
    /// The connection has sent a cancel request.
    Cancel(CancelKey),
    /// A database has to be asked about the user.
    LookUp(UserQuery),
    /// The client has authenticated, and has asked for the console.
    Console(ConsoleLogin),
    /// The client has authenticated, and gets a place in its pool.
    Admit(Box<Admission>),
}

/// A client that logs in, and the data that one step of its login may use.
#[derive(Debug)]
struct LoginStep<'w> {
    env: Env<'w>,
    conn: Token,
    client: &'w mut Client,
    /// The login of this client.
    login: Box<Login>,
    cancel_requests: &'w mut CancelRequests,
    results: &'w mut Logins,
    startups: &'w mut KnownStartups,
    out: &'w mut Actions,
}

/// An event of a login, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct LoginEvent<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) cancel_requests: &'w mut CancelRequests,
    pub(crate) logins: &'w mut ClientLogins,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl LoginEvent<'_> {
    /// Takes a new connection.
    pub(crate) fn begin(&mut self, peer: &Peer) -> Token {
        let (secret, rest) = peer.entropy.split_at(32);
        let (nonce, rest) = rest.split_at(NONCE_BYTES);
        let array = |bytes: &[u8]| std::array::from_fn(|at| bytes[at]);
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|at| nonce[at]);
        let login = Login::new(nonce, [rest[0], rest[1], rest[2], rest[3]], self.env.now);
        let directory = self.env.directory;
        let origin = Origin {
            id: directory.next_id(),
            remote: peer.remote,
            local: peer.local,
            port: peer.port,
            same_uid: peer.same_uid,
            is_internal: peer.is_internal,
            uid: peer.uid,
            pid: peer.pid,
            connected_at: self.env.now,
        };
        let mut client = Client::new(&origin, directory.names().unset(), self.env.now);
        client.begin_login(Box::new(login));
        client.set_key(ClientKey::new(array(secret)));
        directory.note_connection();
        self.logins.clients += 1;
        let conn = Conn::Client(Box::new(client));
        self.connections.insert(conn, self.env.now)
    }

    /// Handles bytes of a client that logs in.
    pub(crate) fn received(&mut self, conn: Token, bytes: &[u8], out: &mut Actions) {
        self.step(conn, out, |step| step.take_bytes(bytes));
    }

    /// Handles the end of the client's TLS handshake.
    pub(crate) fn secured(&mut self, conn: Token, facts: TlsFacts, out: &mut Actions) {
        self.step(conn, out, |step| step.take_tls(facts));
    }

    /// Takes the keys that [`Action::Derive`](crate::Action::Derive) asked for.
    pub(crate) fn keys_derived(&mut self, conn: Token, keys: &DerivedKeys, out: &mut Actions) {
        self.step(conn, out, |step| step.take_derived_keys(keys));
    }

    /// Takes the answer to [`Action::CheckAuth`](crate::Action::CheckAuth).
    pub(crate) fn auth_checked(&mut self, conn: Token, result: AuthCheckResult, out: &mut Actions) {
        self.step(conn, out, |step| step.take_check(result));
    }

    /// Counts a parked login again, now that all workers have processed pending disconnects.
    pub(crate) fn count_again(&mut self, parked: ParkedLogin, out: &mut Actions) {
        self.step(parked.conn, out, |step| step.count_again(parked));
    }

    /// Lets the login of a client take a step, and carries out the result. A connection that is gone, or no longer logs
    /// in, takes no step: it was closed, or refused, after its check had begun.
    fn step(
        &mut self,
        conn: Token,
        out: &mut Actions,
        step: impl FnOnce(&mut LoginStep<'_>) -> Result<Next, Fault>,
    ) {
        let Some(client) = self.connections.client(conn) else {
            return;
        };
        let Some(login) = client.take_login() else {
            return;
        };
        let mut under_way = LoginStep {
            env: self.env,
            conn,
            client,
            login,
            cancel_requests: self.cancel_requests,
            results: &mut self.logins.results,
            startups: &mut self.logins.startups,
            out,
        };
        let next = step(&mut under_way).or_else(|fault| under_way.refuse(fault));
        let LoginStep {
            client, mut login, ..
        } = under_way;
        login.waits_since = self.env.now;
        client.end_step(login);
        let outcome = next.and_then(|next| self.go_on(conn, next, out));
        if let Err(fault) = outcome {
            self.effects
                .push(Effect::Client(ClientEffect::Refuse(conn, Box::new(fault))));
        }
    }

    fn go_on(&mut self, conn: Token, next: Next, out: &mut Actions) -> Result<(), Fault> {
        match next {
            Next::Awaited => {}
            Next::Park => {
                out.read(conn, ReadMode::Hold);
                self.logins.parked.park(&self.env, conn, out);
            }
            Next::ParkAgain(parked, fault) => {
                if !self.logins.parked.park_again(&self.env, parked) {
                    return Err(fault);
                }
            }
            Next::Cancel(key) => {
                if let Some(client) = self.connections.client(conn) {
                    client.become_cancel_request();
                }
                out.read(conn, ReadMode::Hold);
                let effect = peers::route(&self.env, self.connections, conn, key, out);
                self.effects.extend(effect);
            }
            Next::LookUp(query) => return self.ask_database(conn, query, out),
            Next::Console(console) => self.open_console(conn, console, out),
            Next::Admit(admission) => self.admit(conn, *admission, out),
        }
        Ok(())
    }

    /// Returns this worker's part of a pool, and creates it if need be.
    fn open_pool(&mut self, shared: &Arc<SharedPool>) -> &mut LocalPool {
        self.pools.open(&self.env, self.connections, shared)
    }
}

impl LoginStep<'_> {
    /// Logs a line about the client.
    fn log(&mut self, level: Level, text: String) {
        self.out.log(level, self.client.subject(), text);
    }
}
