//! Finds the sender of a request: the owner of a token, a user of the console with a password, or pgweir's own
//! system user on a Unix socket. An address that sends too many wrong tokens or passwords has to wait.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::IpAddr,
    rc::Rc,
};

use hyper::{HeaderMap, header::AUTHORIZATION};
use pgweir_core::Time;
use pgweir_formats::credentials::Credentials;
use sha2::{Digest, Sha256};
use tokio::time;
use zeroize::Zeroizing;

use super::{
    access::Role,
    pages::Sender,
    state::{State, count},
};
use crate::console_link::{LinkError, Origin};

/// The largest number of passwords that are trusted without another check. Any others are checked each time.
const TRUSTED_MAX: usize = 64;
const MINUTE_US: u64 = 60_000_000;

/// A sender with rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) role: Role,
    /// The sender's name in the log: `user "ann"`, `token 5f0c2a1b`, `user id 0`.
    pub(super) name: Rc<str>,
    /// The sender's name in SHOW EVENTS: the user, or `name` if the sender is no user of the console.
    pub(super) user: Rc<str>,
}

/// The reason why a sender has no rights.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unidentified {
    /// The request has no credentials.
    None,
    /// The token is unknown, or the console refuses the login.
    Wrong,
    /// Too many wrong tokens or passwords have come from this address. The next attempt is allowed after this
    /// number of seconds.
    Throttled(u64),
    /// The login could not be checked.
    Unavailable(String),
}

/// Passwords that the console has accepted lately, by their hashes with a random salt.
#[derive(Debug)]
pub(super) struct Trusted {
    salt: [u8; 32],
    /// The time for which a password is trusted, in microseconds (`http_login_cache`).
    trust_us: Cell<u64>,
    until: RefCell<HashMap<[u8; 32], Time>>,
}

impl Default for Trusted {
    fn default() -> Self {
        Self {
            salt: rand::random(),
            trust_us: Cell::default(),
            until: RefCell::default(),
        }
    }
}

impl Trusted {
    /// Returns the hash of a login. `origin`: the sender's address, and the facts about its TLS session, on which the
    /// rules for logins depend.
    fn key(&self, user: &str, password: &str, origin: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        // No user has a zero byte in its name: [`Credentials`] accepts none.
        for part in [user, password] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.update(origin);
        hash.finalize().into()
    }

    fn has(&self, key: &[u8; 32], now: Time) -> bool {
        self.until
            .borrow()
            .get(key)
            .is_some_and(|until| *until > now)
    }

    fn add(&self, key: [u8; 32], now: Time) {
        let mut until = self.until.borrow_mut();
        until.retain(|_, until| *until > now);
        if until.len() < TRUSTED_MAX {
            until.insert(key, now.after(self.trust_us.get()));
        }
    }

    /// Forgets all passwords, since the configuration has changed.
    pub(super) fn configure(&self, trust_us: u64) {
        self.trust_us.set(trust_us);
        self.until.borrow_mut().clear();
    }
}

/// The number of failed logins of each address. The number falls at the rate of the limit per minute.
#[derive(Debug, Default)]
pub(super) struct Failures {
    by_address: RefCell<HashMap<Option<IpAddr>, Level>>,
    /// The largest number of failures a minute (`http_max_login_failures`).
    most: Cell<u32>,
    /// The largest number of addresses (`http_login_addresses`).
    addresses_max: Cell<usize>,
    forgotten: Cell<u64>,
}

/// The number of failures at a time.
#[derive(Debug, Clone, Copy)]
struct Level {
    failures: u32,
    at: Time,
}

impl Level {
    /// Subtracts the failures that have expired since that time.
    fn settle(&mut self, interval: u64, now: Time) {
        let forgotten = now.since(self.at) / interval;
        let left = u64::from(self.failures).saturating_sub(forgotten);
        self.failures = u32::try_from(left).unwrap_or(u32::MAX);
        self.at = match left {
            0 => now,
            _ => self.at.after(forgotten * interval),
        };
    }
}

impl Failures {
    pub(super) fn configure(&self, most: u32, addresses_max: usize) {
        self.most.set(most);
        self.addresses_max.set(addresses_max);
    }

    /// Returns the number of addresses that were removed to make room for others.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.get()
    }

    fn interval(&self) -> u64 {
        MINUTE_US / u64::from(self.most.get().max(1))
    }

    /// Returns the seconds for which an address has to wait before its next attempt, if it has failed too often.
    pub(super) fn pause(&self, address: Option<IpAddr>, now: Time) -> Option<u64> {
        let mut by_address = self.by_address.borrow_mut();
        let level = by_address.get_mut(&network(address))?;
        level.settle(self.interval(), now);
        let passed = now.since(level.at);
        let is_full = level.failures >= self.most.get();
        is_full.then(|| self.interval().saturating_sub(passed).div_ceil(1_000_000))
    }

    pub(super) fn add(&self, address: Option<IpAddr>, now: Time) {
        let interval = self.interval();
        let mut by_address = self.by_address.borrow_mut();
        let address = network(address);
        let most = self.addresses_max.get().max(1);
        if by_address.len() >= most && !by_address.contains_key(&address) {
            by_address.retain(|_, level| {
                level.settle(interval, now);
                level.failures > 0
            });
            while by_address.len() >= most {
                let fewest_failures = by_address.iter().min_by_key(|(_, level)| level.failures);
                let Some(fewest_failures) = fewest_failures.map(|(address, _)| *address) else {
                    break;
                };
                by_address.remove(&fewest_failures);
                count(&self.forgotten);
            }
        }
        let fresh = Level {
            failures: 0,
            at: now,
        };
        let level = by_address.entry(address).or_insert(fresh);
        level.settle(interval, now);
        level.failures += 1;
    }
}

/// Returns the network whose failures are counted together: an IPv4 address, or a /64 of IPv6, since one host can use
/// all of its addresses.
fn network(address: Option<IpAddr>) -> Option<IpAddr> {
    address.map(|address| match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    })
}

/// Identifies the sender of a request, and logs a failure.
pub(super) async fn identify(
    state: &State,
    sender: &Sender,
    headers: &HeaderMap,
) -> Result<Identity, Unidentified> {
    let authorization = headers.get(AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    let Some(credentials) = authorization.and_then(Credentials::parse) else {
        return match sender.is_own_user && !headers.contains_key(AUTHORIZATION) {
            true => Ok(Identity {
                role: Role::Admin,
                name: Rc::clone(&sender.name),
                user: Rc::clone(&sender.name),
            }),
            false => Err(Unidentified::None),
        };
    };
    let address = sender.address();
    if let Some(seconds) = state.failures.pause(address, state.now()) {
        count(&state.counters.throttled);
        return Err(Unidentified::Throttled(seconds));
    }
    let outcome = match credentials {
        Credentials::Token(token) => by_token(state, &token),
        Credentials::Password { user, password } => {
            by_password(state, sender, &user, password).await
        }
    };
    if outcome == Err(Unidentified::Wrong) {
        state.failures.add(address, state.now());
    }
    outcome
}

fn by_token(state: &State, token: &str) -> Result<Identity, Unidentified> {
    let tokens = state.tokens();
    let found = tokens.and_then(|tokens| tokens.find(token));
    let (role, name) = found.ok_or(Unidentified::Wrong)?;
    let name: Rc<str> = format!("token {name}").into();
    Ok(Identity {
        role,
        user: Rc::clone(&name),
        name,
    })
}

async fn by_password(
    state: &State,
    sender: &Sender,
    user: &str,
    password: Zeroizing<String>,
) -> Result<Identity, Unidentified> {
    let key = state.trusted.key(user, &password, &sender.origin.digest());
    if !state.trusted.has(&key, state.now()) {
        let login = state
            .links
            .connector
            .open_as(user, password, &sender.origin);
        match time::timeout(state.patience(), login).await {
            Ok(Ok(_)) => state.trusted.add(key, state.now()),
            Ok(Err(LinkError::Refused(error))) if is_denial(&error.code) => {
                return Err(Unidentified::Wrong);
            }
            Ok(Err(error)) => return Err(Unidentified::Unavailable(error.to_string())),
            Err(_) => {
                let what = "the login was not answered in time".to_owned();
                return Err(Unidentified::Unavailable(what));
            }
        }
    }
    let snapshot = state.directory.snapshot();
    let is_admin = {
        let mut admins = snapshot.config.settings.admin_users.iter();
        admins.any(|admin| admin == user)
    };
    Ok(Identity {
        role: if is_admin { Role::Admin } else { Role::Stats },
        name: format!("user {user:?}").into(),
        user: user.into(),
    })
}

/// Returns whether an error refuses this user. Other errors mean that nobody can log in at present.
fn is_denial(code: &str) -> bool {
    // Too many connections, an operator's intervention, a failed connection, an error of the system.
    const OTHERS: [&str; 4] = ["53", "57", "58", "08006"];
    !OTHERS.iter().any(|other| code.starts_with(other))
}

impl Sender {
    /// Returns the IP address of a sender, if the connection is TCP.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match &self.origin {
            Origin::Tcp { remote, .. } => Some(remote.ip()),
            Origin::Unix { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_address_and_forgotten() {
        let failures = Failures::default();
        failures.configure(2, 10);
        let (one, other) = (Some(IpAddr::from([10, 0, 0, 1])), None);
        let at = |seconds: u64| Time(seconds * 1_000_000);
        failures.add(one, at(1));
        assert_eq!(failures.pause(one, at(1)), None);
        failures.add(one, at(2));
        assert_eq!(failures.pause(one, at(2)), Some(29));
        assert_eq!(failures.pause(other, at(2)), None);
        assert_eq!(failures.pause(one, at(30)), Some(1));
        assert_eq!(failures.pause(one, at(31)), None);
        failures.add(one, at(31));
        assert_eq!(failures.pause(one, at(31)), Some(30));
        assert_eq!(failures.pause(one, at(1000)), None);
    }

    #[test]
    fn addresses_are_bounded() {
        let failures = Failures::default();
        failures.configure(1, 100);
        for number in 0..120_u32 {
            failures.add(Some(IpAddr::from(number.to_be_bytes())), Time(0));
        }
        assert_eq!(failures.by_address.borrow().len(), 100);
        assert_eq!(failures.forgotten(), 20);
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let address = |text: &str| network(text.parse().ok());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }

    #[test]
    fn a_checked_password_is_trusted_for_a_while() {
        let trusted = Trusted::default();
        trusted.configure(60);
        let key = trusted.key("ann", "secret", "tcp");
        let now = Time(1_000_000);
        assert!(!trusted.has(&key, now));
        trusted.add(key, now);
        assert!(trusted.has(&key, now));
        assert!(!trusted.has(&trusted.key("ann", "secre", "tcp"), now));
        assert!(!trusted.has(&trusted.key("anns", "ecret", "tcp"), now));
        assert!(!trusted.has(&trusted.key("ann", "secret", "tls"), now));
        assert!(!trusted.has(&key, now.after(60)));
        trusted.configure(60);
        assert!(!trusted.has(&key, now));
    }
}
