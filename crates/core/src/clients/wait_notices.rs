//! Wait notices: clients that wait for long are sent the reason.
//!
//! This module owns no state. Input: pools in which clients wait for long, and diagnoses, which travel as mail.
//! Output: notices to clients, log lines, and effects that refuse the clients whose `query_wait_timeout` is over.
//!
//! A diagnosis visits every worker, which adds its servers of the pool. Its result goes into the notice after
//! `query_wait_notify`, into the error after `query_wait_timeout`, and into the log.

use std::sync::Arc;

use crate::{
    Actions, Level, Token, WorkerId,
    base::fault::{Fault, Reason},
    clients::timeouts::Timeouts,
    connections::{Conn, Connections},
    diagnosis::{Diagnosis, Holder, State},
    effect::{ClientEffect, Effect, Effects, Env},
    frontend::ClientDuty,
    loan::pins_of,
    mail::Mail,
    pool::{PoolId, WaitReason},
    pooling::LocalPools,
    shared::events::EventKind,
};
use pgweir_wire::{MessageWriter, sqlstate};

/// The notice that PgBouncer sends to a client that waits.
const NOTICE: &str = "No server connection available in postgres backend, client being queued";
/// The largest number of clients that are named, of those that have had a server for longest.
const NAMED_MAX: usize = 3;
/// The time in microseconds to wait for the answers of all workers. After this time, clients get their error without
/// these answers.
const PATIENCE: u64 = 1_000_000;
/// The shortest time between two log lines about the same pool, in microseconds.
const LOG_INTERVAL: u64 = 1_000_000;

/// An event of clients that wait, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct WaitNotices<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl WaitNotices<'_> {
    /// Finds the reason why clients of this worker wait in a pool, to send it to them.
    pub(crate) fn diagnose(&mut self, id: PoolId, out: &mut Actions) {
        let (worker, now) = (self.env.worker, self.env.now);
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        match pool.diagnosis.began_at() {
            Some(at) if now.since(at) < PATIENCE => return,
            // No answer has come: clients whose time is over get their error without it.
            Some(_) => {
                pool.diagnosis.end();
                return self.send_wait_notice(id, None, out);
            }
            None => pool.diagnosis.begin(now),
        }
        let wait_reason = pool.shared.ledger.lock().wait_reason(now);
        let diagnosis = Diagnosis {
            cap: match wait_reason {
                WaitReason::Cap { by, .. } => Some(by),
                _ => None,
            },
            others: [0; State::ALL.len()],
            others_held: 0,
            pool: Arc::clone(&pool.shared),
            origin: worker,
            visited: 0,
            counts: [0; State::ALL.len()],
            longest: Vec::new(),
        };
        self.examine(diagnosis, out);
    }

    /// Adds this worker's part of the pool, and passes the diagnosis on.
    pub(crate) fn examine(&mut self, mut diagnosis: Diagnosis, out: &mut Actions) {
        let workers = self.env.directory.workers();
        if diagnosis.visited < workers {
            diagnosis.visited += 1;
            self.add_servers(&mut diagnosis);
        }
        let to = match diagnosis.visited < workers {
            true => WorkerId(((self.env.worker.index() + 1) % workers) as u8),
            false => diagnosis.origin,
        };
        if diagnosis.visited < workers || to != self.env.worker {
            let mail = Mail::Diagnose(Box::new(diagnosis));
            return out.mail(to, mail);
        }
        let reason = diagnosis.reason(self.env.now);
        let id = diagnosis.pool.id;
        if let Some(pool) = self.pools.get_mut(id) {
            pool.diagnosis.end();
        }
        self.send_wait_notice(id, Some(reason), out);
    }

    fn add_servers(&self, diagnosis: &mut Diagnosis) {
        let now = self.env.now;
        let id = diagnosis.pool.id;
        let hosts = self.env.directory.hosts();
        let entry = |name: &str| self.env.snapshot.config.database(name);
        let own = entry(&diagnosis.pool.key.database);
        let shares = |name: &str| hosts.share_server_limit(own, entry(name));
        for (_, conn) in self.connections.iter() {
            let Conn::Server(server) = conn else { continue };
            if server.purpose().bypasses_limits() {
                continue;
            }
            let client = self.connections.client_of(server);
            let pins = client.and_then(pins_of);
            let state = match State::of(server) {
                State::IdleInSession if pins.is_some() => State::Pinned,
                state => state,
            };
            if server.pool() != id {
                if diagnosis.shares_cap(server, shares) {
                    diagnosis.others[state as usize] += 1;
                    if server.client().is_some() {
                        let held = now.since(server.times.lent_at());
                        diagnosis.others_held = diagnosis.others_held.max(held);
                    }
                }
                continue;
            }
            diagnosis.counts[state as usize] += 1;
            if let Some(client) = client {
                diagnosis.longest.push(Holder {
                    held: now.since(server.times.lent_at()),
                    state,
                    pins,
                    client: client.origin.id,
                });
            }
        }
        diagnosis
            .longest
            .sort_by_key(|holder| std::cmp::Reverse(holder.held));
        diagnosis.longest.truncate(NAMED_MAX);
    }

    /// Sends the reason to the clients of this worker that wait in the pool, and closes those past their timeout.
    fn send_wait_notice(&mut self, id: PoolId, reason: Option<Reason>, out: &mut Actions) {
        let (mut leave, mut stay) = (Vec::new(), Vec::new());
        let timeouts = Timeouts {
            env: self.env,
            connections: self.connections,
            pools: self.pools,
        };
        for (token, conn) in self.connections.iter() {
            let Conn::Client(client) = conn else { continue };
            if client.pool() != Some(id) || !matches!(*client.duty(), ClientDuty::Waiting { .. }) {
                continue;
            }
            if let Some(Fault::QueryWaitTimeout(_)) = timeouts.overdue(client) {
                leave.push(token);
            } else if timeouts.is_wait_notice_due(client) {
                stay.push(token);
            }
        }
        if let Some(reason) = &reason
            && !(leave.is_empty() && stay.is_empty())
        {
            self.explain(id, reason, out);
        }
        for client in stay {
            self.notify(client, reason.as_ref(), out);
        }
        let fault = Fault::QueryWaitTimeout(reason.map(Box::new));
        let refused = leave.into_iter();
        self.effects.extend(
            refused.map(|client| {
                Effect::Client(ClientEffect::Refuse(client, Box::new(fault.clone())))
            }),
        );
    }

    fn notify(&mut self, conn: Token, reason: Option<&Reason>, out: &mut Actions) {
        let Some(client) = self.connections.known_client(conn, out) else {
            return;
        };
        client.request.note_wait_notice();
        let detail = reason.map_or("", |reason| &reason.detail);
        out.send_made(conn, |bytes| {
            let code = sqlstate::SUCCESSFUL_COMPLETION;
            MessageWriter::new(bytes).notice_with_detail(code, NOTICE, detail);
        });
    }

    fn explain(&mut self, id: PoolId, reason: &Reason, out: &mut Actions) {
        let now = self.env.now;
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        if !pool.diagnosis.log(now, LOG_INTERVAL) {
            return;
        }
        let shared = Arc::clone(&pool.shared);
        let key = &shared.key;
        let limit = shared.ledger.lock().wait_reason(now).name();
        let text = format!(
            "clients wait: {}",
            limit.unwrap_or("all servers are in use")
        );
        let about = (&*key.database, &*key.user);
        self.env
            .directory
            .note_event(EventKind::ClientsWait, about, &text, now);
        let subject = format!("{}/{}", key.database, key.user);
        out.log(
            Level::Warning,
            subject,
            format!("clients wait: {}", reason.detail),
        );
    }
}
