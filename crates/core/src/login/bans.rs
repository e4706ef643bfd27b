//! Failed logins are counted by address and user. The error for the client comes later each time, and at the limit the
//! user is banned from the address.
//!
//! Clients on Unix sockets have no address, and are neither delayed nor banned.

use std::net::IpAddr;

use super::{LoginStep, Next};
use crate::{
    Action, Address, Level, ReadMode,
    base::fault::{Fault, LoginFault},
    frontend::{Client, Stage},
    shared::{bans::BanTerms, events::EventKind},
};

impl LoginStep<'_> {
    /// Refuses the client if its user is banned from its address.
    pub(super) fn refuse_if_banned(&self) -> Result<(), Fault> {
        let Some((address, user)) = self.counted() else {
            return Ok(());
        };
        match (self.env.directory.bans()).refuses(address, user, self.env.now) {
            true => Err(Fault::Login(LoginFault::Banned)),
            false => Ok(()),
        }
    }

    /// Forgets the failed logins of a client that has authenticated.
    pub(super) fn forget_failures(&self) {
        if let Some((address, user)) = self.counted() {
            self.env.directory.bans().succeeded(address, user);
        }
    }

    /// Returns the address and user for which failures of this login count; `None` if they don't.
    fn counted(&self) -> Option<(IpAddr, &str)> {
        BanTerms::of(&self.env.snapshot.config.settings)?;
        Some((address_of(self.client)?, self.login.user()))
    }

    /// Refuses the login: at once, or, if the client has failed to authenticate, after the delay that follows from its
    /// earlier failures.
    ///
    /// # Errors
    ///
    /// The client gets the error at once.
    pub(super) fn refuse(&mut self, fault: Fault) -> Result<Next, Fault> {
        let iterations = self.env.snapshot.config.settings.scram_iterations;
        let process_key = self.env.directory.process_key();
        if fault == Fault::Password
            && let Some(job) = self.login.remaining_work(process_key, iterations)
        {
            let conn = self.conn;
            self.out.read(conn, ReadMode::Hold);
            self.out.list.push(Action::Derive {
                conn,
                job: Box::new(job),
            });
            return Ok(Next::Awaited);
        }
        let delay = match fault.is_failed_proof() {
            true => self.count_failure(),
            false => 0,
        };
        if delay == 0 {
            return Err(fault);
        }
        self.login.stage = Stage::Refused {
            fault: Box::new(fault),
            at: self.env.now.after(delay),
        };
        self.out.read(self.conn, ReadMode::Hold);
        Ok(Next::Awaited)
    }

    /// Counts a failed login. Returns the delay after which the client gets the error, in microseconds.
    fn count_failure(&mut self) -> u64 {
        let snapshot = self.env.snapshot;
        let terms = BanTerms::of(&snapshot.config.settings);
        let (Some(terms), Some((address, user))) = (terms, self.counted()) else {
            return 0;
        };
        let (directory, now) = (self.env.directory, self.env.now);
        let next = directory.bans().failed(address, user, &terms, now);
        if let Some(failures) = next.banned_after {
            let seconds = snapshot.config.settings.auth_ban_time.0 / 1_000_000;
            let text = format!("{failures} failed logins from {address}: banned for {seconds} s");
            // The user is named only if it exists: anybody can invent names.
            let listed = snapshot.users.get(user).map_or("", |_| user);
            directory.note_event(EventKind::LoginBanned, ("", listed), &text, now);
            self.log(Level::Warning, text);
        }
        next.delay
    }
}

fn address_of(client: &Client) -> Option<IpAddr> {
    match client.origin.remote {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix => None,
    }
}
