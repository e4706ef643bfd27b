//! The steps of a login: each handles a startup packet, a password message or derived keys, after which the client
//! goes on with its authentication, is parked above a limit, has authenticated, or is refused.

use std::sync::Arc;

use pgweir_auth::scram::DerivedKeys;
use pgweir_config::{AuthType, Config};
use pgweir_wire::{LATEST, MessageWriter, ProtocolVersion, Startup, StartupParameters};

use super::{LoginStep, Next, known_startups::KnownStartup};
use crate::{
    Action, Level, ReadMode, Replication, Source,
    base::{fault::Fault, memory::MemoryRefusal},
    frontend::{LoginRequest, Proof, Stage, StartupTerms},
    pool::PoolKey,
    shared::cancel::CancelKey,
};

/// The estimated bytes that a client takes at least.
const LOGIN_COST: usize = 1024;

/// The largest number of bytes that are read ahead of a login's next message.
const AHEAD_MAX: usize = 128 * 1024;

impl LoginStep<'_> {
    /// Handles bytes of the client.
    pub(super) fn take_bytes(&mut self, bytes: &[u8]) -> Result<Next, Fault> {
        self.login.inbox.push(bytes);
        let most = self.env.snapshot.config.settings.login_memory.0;
        let buffered = self.login.buffered();
        if !(self.login.memory).set(self.env.directory.memory(), buffered, most) {
            return Err(Fault::LoginMemory);
        }
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
                    let Some(len) = Startup::length(rest, limit).map_err(Fault::Startup)? else {
                        break;
                    };
                    let snapshot = self.env.snapshot;
                    if let Some(known) = self.startups.find(&rest[..len], snapshot) {
                        let (version, request) = (known.version, known.request.clone());
                        let names = Arc::clone(&known.names);
                        self.login.inbox.skip(len);
                        self.take_request(version, request, names)?
                    } else {
                        // The packet is copied: the inbox is needed for what follows it.
                        let bytes = rest[..len].to_vec();
                        self.login.inbox.skip(len);
                        match Startup::parse(&bytes, limit).map_err(Fault::Startup)? {
                            Some((packet, _)) => self.take_startup(packet, &bytes)?,
                            None => break,
                        }
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
                | Stage::WrongPassword
                | Stage::TakingTime
                | Stage::Parked(_)
                | Stage::Refused { .. }
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

    /// Handles a startup packet, which has these bytes.
    fn take_startup(&mut self, packet: Startup<'_>, bytes: &[u8]) -> Result<Next, Fault> {
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
            } => {
                let request = self.read_request(parameters)?;
                let names = Arc::new(self.names_of(&request));
                let known = KnownStartup::new(bytes, version, &request, &names);
                self.startups.keep(known, self.env.snapshot);
                self.take_request(version, request, names)
            }
        }
    }

    fn read_request(&self, parameters: StartupParameters<'_>) -> Result<LoginRequest, Fault> {
        let config = &self.env.snapshot.config;
        LoginRequest::read(
            parameters,
            self.env.directory.names(),
            &StartupTerms {
                ignored: &config.settings.ignore_startup_parameters,
                may_bypass: &|database, user| config.may_bypass(database, user),
                is_carried: &|database, user| is_carried(config, database, user),
            },
        )
    }

    fn take_request(
        &mut self,
        version: ProtocolVersion,
        mut request: LoginRequest,
        names: Arc<PoolKey>,
    ) -> Result<Next, Fault> {
        self.negotiate(version, &request);
        self.client.set_names(names);
        self.introduce(version, &mut request);
        self.log_attempt(&request);
        self.login.request = Some(request);
        self.demand_tls()?;
        self.refuse_if_banned()?;
        self.demand_memory()?;
        self.authenticate()
    }

    /// Refuses the login while `memory_limit` is reached. The console stays open to operators.
    fn demand_memory(&self) -> Result<(), Fault> {
        let request = self.login.request.as_ref();
        let is_console =
            request.is_some_and(|request| pgweir_config::is_console(&request.database));
        let memory = self.env.directory.memory();
        match is_console || memory.allows(LOGIN_COST, MemoryRefusal::Login) {
            true => Ok(()),
            false => Err(Fault::OutOfMemory),
        }
    }

    /// Authenticates the client, and handles the messages that it has sent meanwhile.
    pub(super) fn authenticate_and_run(&mut self) -> Result<Next, Fault> {
        match self.authenticate()? {
            Next::Awaited => self.run(),
            next => Ok(next),
        }
    }

    /// Returns the database and the user under which a client with this request is counted.
    fn names_of(&self, request: &LoginRequest) -> PoolKey {
        let config = &self.env.snapshot.config;
        let database = config.database(&request.database);
        let forced = database.and_then(|database| database.user.as_deref());
        let user = match forced {
            // With `auth_type = any`, the name that the client claims proves nothing.
            Some(user) if config.settings.auth_type == AuthType::Any => user,
            _ => &request.user,
        };
        PoolKey {
            database: (*request.database).into(),
            user: user.into(),
        }
    }

    /// Gives the client the values that it has asked for, and its cancel key.
    fn introduce(&mut self, version: ProtocolVersion, request: &mut LoginRequest) {
        let config = &self.env.snapshot.config;
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
        let (database, user) = match self.client.names() {
            Some(names) => (&*names.database, &*names.user),
            None => ("", ""),
        };
        let tls = self.client.tls();
        let tls = tls.map_or_else(|| "no".to_owned(), |tls| tls.to_string());
        let text = format!(
            "login attempt: db={database} user={user} tls={tls} replication={}",
            replication.parameter()
        );
        self.log(Level::Log, text);
    }

    /// Takes the keys that [`Action::Derive`] asked for.
    pub(super) fn take_derived_keys(&mut self, keys: &DerivedKeys) -> Result<Next, Fault> {
        // Reading was held back meanwhile. The next step may hold it back again.
        self.out.read(self.conn, ReadMode::Deliver);
        let start = self.out.scratch.len();
        let (proof, made) = self.login.derived(keys, &mut self.out.scratch)?;
        let user = self.login.user();
        let snapshot = self.env.snapshot;
        if let (Some(made), Some(secret)) = (made, snapshot.users.get(user)) {
            let iterations = snapshot.config.settings.scram_iterations;
            let directory = self.env.directory;
            directory.keep_derived_secret(user, Arc::clone(secret), iterations, made);
        }
        match self.take_proof(proof, start)? {
            Next::Awaited => self.run(),
            next => Ok(next),
        }
    }

    /// Sends the bytes that were appended from `start` on, and carries out the result of the proof.
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
                self.out.list.push(Action::Derive {
                    conn,
                    job: Box::new(job),
                });
            }
            Proof::Inquire(auth_check) => {
                self.out.read(conn, ReadMode::Hold);
                self.out.list.push(Action::CheckAuth {
                    conn,
                    auth_check: Box::new(auth_check),
                });
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
