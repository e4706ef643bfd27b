//! Logins of clients: from the accepted connection to the end of the authentication. Startup packets, password
//! messages and derived keys come in; a client goes on to its pool, is parked above a limit, or is refused. Cancel
//! requests arrive here as well.

use std::sync::Arc;

use pgweir_auth::scram::{DerivedKeys, NONCE_BYTES};
use pgweir_config::{AuthType, Config};
use pgweir_wire::{LATEST, MessageWriter, ProtocolVersion, Startup, StartupParameters};

use super::{Worker, authenticate::is_own_user};
use crate::{
    Action, Actions, Peer, ReadMode, Replication, Source, Time, Token,
    cancel::CancelKey,
    cancel_requests::peers,
    client_counts::ClientLimits,
    connections::Conn,
    fault::Fault,
    frontend::{
        AuthPlan, Client, ClientDuty, Login, LoginRequest, Origin, Proof, Stage, StartupTerms,
    },
    parked_logins::limits_at_login,
    pool::PoolKey,
};

/// The most bytes that are read ahead of a login's next message.
const AHEAD_MAX: usize = 128 * 1024;

impl Worker {
    pub(crate) fn begin_login(&mut self, peer: &Peer, now: Time) -> Token {
        let (secret, rest) = peer.entropy.split_at(32);
        let (nonce, rest) = rest.split_at(NONCE_BYTES);
        let array = |bytes: &[u8]| std::array::from_fn(|at| bytes[at]);
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|at| nonce[at]);
        let login = Login::new(nonce, [rest[0], rest[1], rest[2], rest[3]]);
        let origin = Origin {
            id: self.directory.next_id(),
            remote: peer.remote,
            local: peer.local,
            port: peer.port,
            same_uid: peer.same_uid,
            uid: peer.uid,
            pid: peer.pid,
            connected_at: now,
        };
        let mut client = Client::new(&origin, self.directory.names().unset(), now);
        client.duty = ClientDuty::Login(Box::new(login));
        client.secret = array(secret);
        self.directory.client_came();
        self.clients += 1;
        self.schedule(now);
        let conn = self.table.insert(Conn::Client(Box::new(client)));
        self.suspension.add(conn);
        conn
    }

    /// Handles bytes of a client that logs in.
    pub(crate) fn login_bytes(&mut self, conn: Token, bytes: &[u8], now: Time, out: &mut Actions) {
        if let Some(login) = self.login(conn) {
            login.inbox.push(bytes);
        }
        if let Err(fault) = self.login_steps(conn, now, out) {
            self.refuse(conn, &fault, now, out);
        }
    }

    pub(crate) fn login_derived(
        &mut self,
        conn: Token,
        keys: &DerivedKeys,
        now: Time,
        out: &mut Actions,
    ) {
        // Reading was held back meanwhile; what follows may hold it back again.
        out.read(conn, ReadMode::Deliver);
        let outcome = self
            .login_go_on(conn, keys, now, out)
            .and_then(|()| self.login_steps(conn, now, out));
        if let Err(fault) = outcome {
            self.refuse(conn, &fault, now, out);
        }
    }

    pub(super) fn login(&mut self, conn: Token) -> Option<&mut Login> {
        match self.table.client(conn) {
            Some(Client {
                duty: ClientDuty::Login(login),
                ..
            }) => Some(login),
            _ => None,
        }
    }

    /// Handles the messages that have arrived completely.
    pub(super) fn login_steps(
        &mut self,
        conn: Token,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let limit = self.snapshot.config.settings.startup_packet_limit as usize;
        while !self.begins_with_tls(conn, out)
            && let Some(login) = self.login(conn)
        {
            match login.stage {
                Stage::Handshake { .. } => break,
                Stage::Startup => {
                    let parsed = Startup::parse(login.inbox.rest(), limit);
                    let Some((_, len)) = parsed.map_err(Fault::Startup)? else {
                        break;
                    };
                    // The packet is copied: the inbox is needed for what follows it.
                    let bytes = login.inbox.rest()[..len].to_vec();
                    login.inbox.skip(len);
                    let parsed = Startup::parse(&bytes, limit).map_err(Fault::Startup)?;
                    if let Some((packet, _)) = parsed {
                        self.startup(conn, packet, now, out)?;
                    }
                }
                Stage::Cleartext(_)
                | Stage::CleartextFor(_)
                | Stage::Md5(_)
                | Stage::Sasl { .. } => {
                    let Some(message) = login.take_password_message()? else {
                        break;
                    };
                    let start = out.scratch.len();
                    let proof = match login.password(&message, &mut out.scratch) {
                        Ok(proof) => proof,
                        Err(fault) => {
                            match self.check_claim_again(conn, message, &fault, now, out)? {
                                true => continue,
                                false => return Err(fault),
                            }
                        }
                    };
                    self.proven(conn, proof, start, now, out)?;
                }
                Stage::MakingSecret { .. }
                | Stage::Checking(_)
                | Stage::Parked
                | Stage::LookingUp(_)
                | Stage::Verifying(_)
                | Stage::CheckingAuth(_) => {
                    if login.inbox.rest().len() > AHEAD_MAX {
                        return Err(Fault::TooLong(login.inbox.rest()[0]));
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn startup(
        &mut self,
        conn: Token,
        packet: Startup<'_>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let Some(client) = self.table.client(conn) else {
            return Ok(());
        };
        let remote = client.remote;
        let ClientDuty::Login(login) = &mut client.duty else {
            return Ok(());
        };
        match packet {
            Startup::SslRequest => {
                login.ask_encryption("SSL")?;
                match self.offers_tls(remote) {
                    true => self.accept_tls(conn, out),
                    false => out.send_made(conn, |bytes| bytes.push(b'N')),
                }
                Ok(())
            }
            Startup::GssEncRequest => {
                login.ask_encryption("GSSAPI encryption")?;
                out.send_made(conn, |bytes| bytes.push(b'N'));
                Ok(())
            }
            Startup::Cancel { pid, secret } => {
                self.cancel_asked(
                    conn,
                    CancelKey {
                        pid,
                        secret: secret.into(),
                    },
                    now,
                    out,
                );
                Ok(())
            }
            Startup::Login {
                version,
                parameters,
            } => self.login_asked(conn, version, parameters, now, out),
        }
    }

    fn login_asked(
        &mut self,
        conn: Token,
        version: ProtocolVersion,
        parameters: StartupParameters<'_>,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let snapshot = Arc::clone(&self.snapshot);
        let settings = &snapshot.config.settings;
        let mut request = LoginRequest::read(
            parameters,
            self.directory.names(),
            &StartupTerms {
                ignored: &settings.ignore_startup_parameters,
                may_bypass: &|database, user| snapshot.config.may_bypass(database, user),
                is_carried: &|database, user| is_carried(&snapshot.config, database, user),
            },
        )?;
        negotiate(conn, version, &request, out);
        self.introduce(conn, version, &mut request);
        let replication = request
            .exclusive
            .as_ref()
            .map_or(Replication::None, |exclusive| exclusive.replication);
        self.log_login(conn, replication, out);
        if let Some(login) = self.login(conn) {
            login.request = Some(request);
            login.stage = Stage::Parked;
        }
        // A client whose user and database are known is counted or parked, even if it is then refused for another
        // reason.
        let room = self.admit_client(conn, false);
        self.demand_tls(conn)?;
        match room {
            Ok(()) => self.authenticate(conn, now, out),
            // The process is shutting down, and workers may no longer answer.
            Err(fault) if self.shutdown.is_some() => Err(fault),
            Err(_) => {
                out.read(conn, ReadMode::Hold);
                let parts = self.parts(now);
                parts.parked_logins.park(&parts.env, conn, out);
                Ok(())
            }
        }
    }

    /// Counts a client, if the limits allow it.
    ///
    /// # Errors
    /// The client is above a limit.
    fn admit_client(&mut self, conn: Token, was_parked: bool) -> Result<(), Fault> {
        let Some(client) = self.table.client(conn) else {
            return Ok(());
        };
        let (same_uid, names) = (client.same_uid, client.names.clone());
        let ClientDuty::Login(login) = &mut client.duty else {
            return Ok(());
        };
        if let Some(names) = &names {
            let limits = match &login.request {
                Some(request) => {
                    let is_own = is_own_user(&request.user, same_uid);
                    limits_at_login(&self.snapshot.config, names, request, is_own)
                }
                None => ClientLimits::default(),
            };
            self.directory.admit_client(names, &limits, was_parked)?;
        }
        login.stage = Stage::Startup;
        Ok(())
    }

    /// Counts parked logins again, now that all workers have processed pending disconnects.
    pub(super) fn count_parked(&mut self, now: Time, out: &mut Actions) {
        for parked in self.parked_logins.answered() {
            let conn = parked.conn;
            if !self.login(conn).is_some_and(|login| login.is_parked()) {
                continue;
            }
            let outcome = match self.admit_client(conn, true) {
                Ok(()) => {
                    out.read(conn, ReadMode::Deliver);
                    self.authenticate(conn, now, out)
                        .and_then(|()| self.login_steps(conn, now, out))
                }
                Err(fault) => {
                    let parts = self.parts(now);
                    match parts.parked_logins.park_again(&parts.env, parked) {
                        true => Ok(()),
                        false => Err(fault),
                    }
                }
            };
            if let Err(fault) = outcome {
                self.refuse(conn, &fault, now, out);
            }
        }
        let parts = self.parts(now);
        parts.parked_logins.ask(&parts.env, out);
    }

    /// Gives the client its user, its database and its cancel key.
    fn introduce(&mut self, conn: Token, version: ProtocolVersion, request: &mut LoginRequest) {
        let settings = &self.snapshot.config.settings;
        let database = self.snapshot.config.database(&request.database);
        let forced = database.and_then(|database| database.user.as_deref());
        let user = match forced {
            // With `auth_type = any`, the name that the client claims proves nothing.
            Some(user) if settings.auth_type == AuthType::Any => user,
            _ => &request.user,
        };
        let names = Arc::new(PoolKey {
            database: request.database.as_str().into(),
            user: user.into(),
        });
        let Some(client) = self.table.client(conn) else {
            return;
        };
        let has_long_secret = version.minor >= ProtocolVersion::V3_2.minor;
        if settings.application_name_add_host {
            let address = client.remote.with_port(client.port);
            request.add_host(self.directory.names(), &address);
        }
        client.tracked = request.tracked.clone();
        client.names = Some(names);
        let peer = self.snapshot.config.settings.peer_id;
        self.cancel_requests.give_key(
            self.id,
            &self.directory,
            peer,
            conn,
            client,
            has_long_secret,
        );
    }

    /// Reuses the SCRAM secret that was made for the user's last login.
    pub(super) fn with_made_secret(&self, plan: AuthPlan, user: &str) -> AuthPlan {
        let iterations = self.snapshot.config.settings.scram_iterations;
        match &plan {
            AuthPlan::MakeScram(secret) => {
                match self.directory.made_secret(user, secret, iterations) {
                    Some(made) => AuthPlan::Scram(made),
                    None => plan,
                }
            }
            _ => plan,
        }
    }

    fn login_go_on(
        &mut self,
        conn: Token,
        keys: &DerivedKeys,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let Some(login) = self.login(conn) else {
            return Ok(());
        };
        let start = out.scratch.len();
        let (proof, made) = login.derived(keys, &mut out.scratch)?;
        let user = login.user().to_owned();
        if let Some(made) = made
            && let Some(secret) = self.snapshot.users.get(&user)
        {
            let iterations = self.snapshot.config.settings.scram_iterations;
            self.directory
                .keep_made_secret(&user, Arc::clone(secret), iterations, made);
        }
        self.proven(conn, proof, start, now, out)
    }

    /// Sends what was appended from `start` on, and does what the proof asks for.
    pub(super) fn proven(
        &mut self,
        conn: Token,
        proof: Proof,
        start: usize,
        now: Time,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        let end = out.scratch.len();
        if start < end {
            out.list.push(Action::Send {
                to: conn,
                source: Source::Scratch(start..end),
            });
        }
        match proof {
            Proof::More => Ok(()),
            Proof::Derive(job) => {
                out.read(conn, ReadMode::Hold);
                out.list.push(Action::Derive { conn, job });
                Ok(())
            }
            Proof::Inquire(auth_check) => {
                out.read(conn, ReadMode::Hold);
                out.list.push(Action::CheckAuth { conn, auth_check });
                Ok(())
            }
            Proof::Accepted(keys) => self.admit(conn, keys, now, out),
        }
    }

    fn cancel_asked(&mut self, conn: Token, key: CancelKey, now: Time, out: &mut Actions) {
        let Some(client) = self.table.client(conn) else {
            return;
        };
        client.duty = ClientDuty::CancelRequest { sent: false };
        out.read(conn, ReadMode::Hold);
        let parts = self.parts(now);
        let effect = peers::route(&parts.env, parts.connections, conn, key, out);
        self.carry_out(effect, now, out);
    }
}

/// Returns whether the session state of clients of this database and user is carried from server to server.
fn is_carried(config: &Config, database: &str, user: &str) -> bool {
    let database = config.database(database);
    database.is_some_and(|database| config.carries_sessions(database, database.user_for(user)))
}

/// Sends NegotiateProtocolVersion to a client with a later minor version or with unknown protocol options.
fn negotiate(conn: Token, version: ProtocolVersion, request: &LoginRequest, out: &mut Actions) {
    if version.minor > LATEST.minor || !request.unknown_options.is_empty() {
        let unknown: Vec<&[u8]> = request.unknown_options.iter().map(Vec::as_slice).collect();
        out.send_made(conn, |bytes| {
            MessageWriter::new(bytes).negotiate_protocol_version(version.min(LATEST), &unknown);
        });
    }
}
