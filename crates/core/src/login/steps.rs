//! The steps of a login: startup packets, password messages and derived keys come in; a client goes on to its
//! authentication, is parked above a limit, has authenticated, or is refused.

use std::sync::Arc;

use pgweir_auth::scram::DerivedKeys;
use pgweir_config::{AuthType, Config};
use pgweir_wire::{LATEST, MessageWriter, ProtocolVersion, Startup, StartupParameters};

use super::{LoginStep, Next, authentication::is_own_user};
use crate::{
    Action, Level, ReadMode, Replication, Source,
    cancel::CancelKey,
    fault::Fault,
    frontend::{LoginRequest, Proof, Stage, StartupTerms},
    parked_logins::{ParkedLogin, limits_at_login},
    pool::PoolKey,
};

/// The most bytes that are read ahead of a login's next message.
const AHEAD_MAX: usize = 128 * 1024;

impl LoginStep<'_> {
    /// Handles bytes of the client.
    pub(super) fn take_bytes(&mut self, bytes: &[u8]) -> Result<Next, Fault> {
        self.login.inbox.push(bytes);
        self.run()
    }

    /// Handles the messages that have arrived completely.
    pub(super) fn run(&mut self) -> Result<Next, Fault> {
        let limit = self.env.snapshot.config.settings.startup_packet_limit as usize;
        while !self.begins_with_tls() {
            let next = match self.login.stage {
                Stage::Handshake { .. } => break,
                Stage::Startup => {
                    let rest = self.login.inbox.rest();
                    let Some((_, len)) = Startup::parse(rest, limit).map_err(Fault::Startup)?
                    else {
                        break;
                    };
                    // The packet is copied: the inbox is needed for what follows it.
                    let bytes = rest[..len].to_vec();
                    self.login.inbox.skip(len);
                    match Startup::parse(&bytes, limit).map_err(Fault::Startup)? {
                        Some((packet, _)) => self.take_startup(packet)?,
                        None => break,
                    }
                }
                Stage::Cleartext(_)
                | Stage::CleartextFor(_)
                | Stage::Md5(_)
                | Stage::Sasl { .. } => {
                    let Some(message) = self.login.take_password_message()? else {
                        break;
                    };
                    let start = self.out.scratch.len();
                    match self.login.password(&message, &mut self.out.scratch) {
                        Ok(proof) => self.take_proof(proof, start)?,
                        Err(fault) => self.check_again(message, fault)?,
                    }
                }
                Stage::MakingSecret { .. }
                | Stage::Checking(_)
                | Stage::Parked
                | Stage::LookingUp(_)
                | Stage::Verifying(_)
                | Stage::CheckingAuth(_) => {
                    let ahead = self.login.inbox.rest();
                    if ahead.len() > AHEAD_MAX {
                        return Err(Fault::TooLong(ahead[0]));
                    }
                    break;
                }
            };
            if !matches!(next, Next::Awaited) {
                return Ok(next);
            }
        }
        Ok(Next::Awaited)
    }

    fn take_startup(&mut self, packet: Startup<'_>) -> Result<Next, Fault> {
        match packet {
            Startup::SslRequest => {
                self.login.ask_encryption("SSL")?;
                match self.offers_tls() {
                    true => self.accept_tls(),
                    false => self.out.send_made(self.conn, |bytes| bytes.push(b'N')),
                }
                Ok(Next::Awaited)
            }
            Startup::GssEncRequest => {
                self.login.ask_encryption("GSSAPI encryption")?;
                self.out.send_made(self.conn, |bytes| bytes.push(b'N'));
                Ok(Next::Awaited)
            }
            Startup::Cancel { pid, secret } => Ok(Next::Cancel(CancelKey {
                pid,
                secret: secret.into(),
            })),
            Startup::Login {
                version,
                parameters,
            } => self.take_request(version, parameters),
        }
    }

    fn take_request(
        &mut self,
        version: ProtocolVersion,
        parameters: StartupParameters<'_>,
    ) -> Result<Next, Fault> {
        let config = &self.env.snapshot.config;
        let mut request = LoginRequest::read(
            parameters,
            self.env.directory.names(),
            &StartupTerms {
                ignored: &config.settings.ignore_startup_parameters,
                may_bypass: &|database, user| config.may_bypass(database, user),
                is_carried: &|database, user| is_carried(config, database, user),
            },
        )?;
        self.negotiate(version, &request);
        self.introduce(version, &mut request);
        self.log_attempt(&request);
        self.login.request = Some(request);
        self.login.stage = Stage::Parked;
        // A client whose user and database are known is counted or parked, even if it is then refused for another
        // reason.
        let room = self.count_client(false);
        self.demand_tls()?;
        match room {
            Ok(()) => self.authenticate(),
            // The process is shutting down, and workers may no longer answer.
            Err(fault) if self.env.shutdown.is_some() => Err(fault),
            Err(_) => Ok(Next::Park),
        }
    }

    /// Counts a client, if the limits allow it.
    ///
    /// # Errors
    /// The client is above a limit.
    fn count_client(&mut self, was_parked: bool) -> Result<(), Fault> {
        if let (Some(names), Some(request)) = (&self.client.names, &self.login.request) {
            let is_own = is_own_user(&request.user, self.client.origin.same_uid);
            let limits = limits_at_login(&self.env.snapshot.config, names, request, is_own);
            self.env
                .directory
                .admit_client(names, &limits, was_parked)?;
        }
        self.login.stage = Stage::Startup;
        Ok(())
    }

    /// Counts a parked login again, now that all workers have processed pending disconnects.
    pub(super) fn count_again(&mut self, parked: ParkedLogin) -> Result<Next, Fault> {
        if !self.login.is_parked() {
            return Ok(Next::Awaited);
        }
        if let Err(fault) = self.count_client(true) {
            return Ok(Next::ParkAgain(parked, fault));
        }
        self.out.read(self.conn, ReadMode::Deliver);
        self.authenticate_and_run()
    }

    /// Authenticates the client, and handles the messages that it has sent meanwhile.
    pub(super) fn authenticate_and_run(&mut self) -> Result<Next, Fault> {
        match self.authenticate()? {
            Next::Awaited => self.run(),
            next => Ok(next),
        }
    }

    /// Gives the client its user, its database and its cancel key.
    fn introduce(&mut self, version: ProtocolVersion, request: &mut LoginRequest) {
        let config = &self.env.snapshot.config;
        let database = config.database(&request.database);
        let forced = database.and_then(|database| database.user.as_deref());
        let user = match forced {
            // With `auth_type = any`, the name that the client claims proves nothing.
            Some(user) if config.settings.auth_type == AuthType::Any => user,
            _ => &request.user,
        };
        self.client.names = Some(Arc::new(PoolKey {
            database: request.database.as_str().into(),
            user: user.into(),
        }));
        let directory = self.env.directory;
        if config.settings.application_name_add_host {
            let address = self.client.origin.remote.with_port(self.client.origin.port);
            request.add_host(directory.names(), &address);
        }
        self.client.tracked = request.tracked.clone();
        let has_long_secret = version.minor >= ProtocolVersion::V3_2.minor;
        self.cancel_requests.give_key(
            self.env.worker,
            directory,
            config.settings.peer_id,
            self.conn,
            self.client,
            has_long_secret,
        );
    }

    /// Sends NegotiateProtocolVersion to a client with a later minor version or with unknown protocol options.
    fn negotiate(&mut self, version: ProtocolVersion, request: &LoginRequest) {
        if version.minor > LATEST.minor || !request.unknown_options.is_empty() {
            let unknown: Vec<&[u8]> = request.unknown_options.iter().map(Vec::as_slice).collect();
            self.out.send_made(self.conn, |bytes| {
                MessageWriter::new(bytes).negotiate_protocol_version(version.min(LATEST), &unknown);
            });
        }
    }

    fn log_attempt(&mut self, request: &LoginRequest) {
        if !self.env.snapshot.config.settings.log_connections {
            return;
        }
        let exclusive = request.exclusive.as_ref();
        let replication = exclusive.map_or(Replication::None, |exclusive| exclusive.replication);
        let (database, user) = match &self.client.names {
            Some(names) => (&*names.database, &*names.user),
            None => ("", ""),
        };
        let tls = self.client.tls.as_ref();
        let tls = tls.map_or_else(|| "no".to_owned(), |tls| tls.to_string());
        let text = format!(
            "login attempt: db={database} user={user} tls={tls} replication={}",
            replication.parameter()
        );
        self.log(Level::Log, text);
    }

    /// Takes the keys that [`Action::Derive`] asked for.
    pub(super) fn take_derived_keys(&mut self, keys: &DerivedKeys) -> Result<Next, Fault> {
        // Reading was held back meanwhile; what follows may hold it back again.
        self.out.read(self.conn, ReadMode::Deliver);
        let start = self.out.scratch.len();
        let (proof, made) = self.login.derived(keys, &mut self.out.scratch)?;
        let user = self.login.user();
        let snapshot = self.env.snapshot;
        if let (Some(made), Some(secret)) = (made, snapshot.users.get(user)) {
            let iterations = snapshot.config.settings.scram_iterations;
            let directory = self.env.directory;
            directory.keep_made_secret(user, Arc::clone(secret), iterations, made);
        }
        match self.take_proof(proof, start)? {
            Next::Awaited => self.run(),
            next => Ok(next),
        }
    }

    /// Sends what was appended from `start` on, and does what the proof asks for.
    pub(super) fn take_proof(&mut self, proof: Proof, start: usize) -> Result<Next, Fault> {
        let (conn, end) = (self.conn, self.out.scratch.len());
        if start < end {
            self.out.list.push(Action::Send {
                to: conn,
                source: Source::Scratch(start..end),
            });
        }
        match proof {
            Proof::More => {}
            Proof::Derive(job) => {
                self.out.read(conn, ReadMode::Hold);
                self.out.list.push(Action::Derive { conn, job });
            }
            Proof::Inquire(auth_check) => {
                self.out.read(conn, ReadMode::Hold);
                self.out.list.push(Action::CheckAuth { conn, auth_check });
            }
            Proof::Accepted(keys) => return self.complete(keys),
        }
        Ok(Next::Awaited)
    }
}

/// Returns whether the session state of clients of this database and user is carried from server to server.
fn is_carried(config: &Config, database: &str, user: &str) -> bool {
    let database = config.database(database);
    database.is_some_and(|database| config.carries_sessions(database, database.user_for(user)))
}
