//! Checks about clients that may block: passwords by LDAP or PAM, and names of system users. The checks run on their
//! own threads.

use std::{io, sync::Arc};

use nix::unistd::{Uid, User};
use pgweir_config::Settings;
use pgweir_core::{
    AuthCheck, AuthCheckResult, Service, Token, WorkerId, shared::occupancy::Occupancy,
};

use super::{Overloaded, ldap, pam, threads::Threads};
use crate::net::{Mailboxes, WorkerMessage};

/// Accepts checks. The results are sent to the worker's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct AuthChecker(Threads<(Token, AuthCheck)>);

impl AuthChecker {
    /// Starts `auth_threads` threads, for which `auth_queue` checks may wait. The threads end when the last
    /// `AuthChecker` is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        settings: &Settings,
        mailboxes: &Mailboxes,
        occupancy: &Arc<Occupancy>,
    ) -> io::Result<Self> {
        let (count, queue) = (settings.auth_threads as usize, settings.auth_queue as usize);
        Threads::start("auth", count, queue, mailboxes, occupancy, found).map(Self)
    }

    /// Accepts a check.
    ///
    /// # Errors
    /// When the queue is full.
    pub(crate) fn submit(
        &self,
        worker: WorkerId,
        conn: Token,
        auth_check: AuthCheck,
    ) -> Result<(), Overloaded> {
        self.0
            .submit(worker, (conn, auth_check))
            .map_err(|_| Overloaded)
    }
}

fn found((conn, auth_check): (Token, AuthCheck)) -> WorkerMessage {
    let result = answer(auth_check);
    WorkerMessage::Found { conn, result }
}

fn answer(auth_check: AuthCheck) -> AuthCheckResult {
    match auth_check {
        AuthCheck::SystemUser(uid) => AuthCheckResult::SystemUser(system_user(uid)),
        AuthCheck::Password {
            service,
            user,
            password,
            address,
        } => AuthCheckResult::Password(match service {
            Service::Ldap(options) => ldap::check(&options, &user, &password),
            Service::Pam(options) => pam::check(&options, &user, &password, address),
        }),
    }
}

fn system_user(uid: u32) -> Result<String, String> {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(format!("the system has no user with the id {uid}")),
        Err(error) => Err(format!(
            "cannot look up the user with the id {uid}: {error}"
        )),
    }
}
