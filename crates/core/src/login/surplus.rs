//! `max_login_clients`: the limit on connections that have not authenticated.
//!
//! Anybody can open connections and stay silent. These connections do not count as clients: `max_client_conn` and the
//! limits of databases and users count only clients that have authenticated. But each connection takes memory and a
//! descriptor. Above the limits, the connections for whose next message pgweir has waited longest are closed, so that
//! new ones can always log in. A login that waits for pgweir, or for a service that pgweir has asked, is never closed.
//!
//! This module owns no state. Each worker may have an equal part of each limit. At each check of the deadlines, the
//! worker compares its own logins with its part. Output: effects that refuse the logins above it.

use std::{
    collections::{BinaryHeap, HashMap},
    net::IpAddr,
};

use crate::{
    Address, Time, Token,
    base::fault::Fault,
    connections::{Conn, Connections},
    effect::{ClientEffect, Effect, Env},
    frontend::{Client, ClientDuty},
};

/// The time in microseconds for which pgweir always waits for a client's next message.
const GRACE: u64 = 1_000_000;
/// The same time, if there are more than twice as many logins as allowed.
const SHORT_GRACE: u64 = 100_000;

/// The logins that come from one address.
#[derive(Debug, Default)]
struct Origin {
    logins: usize,
    /// The logins for whose client pgweir waits, each with the time since which it has waited.
    silent: Vec<(Time, Token)>,
}

/// Returns effects that refuse the logins above the limits.
pub(crate) fn refuse(env: &Env<'_>, connections: &Connections) -> Vec<Effect> {
    let settings = &env.snapshot.config.settings;
    let workers = env.directory.workers().max(1);
    let part = |limit: u32, room: usize| match limit {
        0 => room.div_ceil(workers),
        limit => room.min(limit as usize).div_ceil(workers),
    };
    // Half of the descriptors are for clients that have logged in.
    let room = env.directory.client_room() / 2;
    let (most, most_per_address) = (
        part(settings.max_login_clients, room),
        part(settings.max_login_clients_per_address, room),
    );
    let under_way = || {
        connections.iter().filter_map(|(token, conn)| match conn {
            Conn::Client(client) if client.logs_in() => Some((token, &**client)),
            _ => None,
        })
    };
    let total = under_way().count();
    if total <= most.min(most_per_address) {
        return Vec::new();
    }
    let grace = match total / 2 > most {
        true => SHORT_GRACE,
        false => GRACE,
    };
    let mut origins: HashMap<Option<IpAddr>, Origin> = HashMap::new();
    for (token, client) in under_way() {
        let origin = origins.entry(address_of(client)).or_default();
        origin.logins += 1;
        let since = silent_since(client);
        origin.silent.extend(since.map(|since| (since, token)));
    }
    let mut origins: Vec<Origin> = origins.into_values().collect();
    let is_due = |since| env.now.since(since) >= grace;
    let chosen = choose(&mut origins, total, (most, most_per_address), is_due);
    let refuse =
        |token| Effect::Client(ClientEffect::Refuse(token, Box::new(Fault::TooManyLogins)));
    chosen.into_iter().map(refuse).collect()
}

/// Chooses logins: first the one for which pgweir has waited longest, of the address that has most of them, and so on.
///
/// A chosen login that is not due yet is left out: it is closed at a later check, unless its client speaks before. It
/// counts as closed, so that no older login of an address with fewer logins is closed in its place.
fn choose(
    origins: &mut [Origin],
    mut total: usize,
    (most, most_per_address): (usize, usize),
    is_due: impl Fn(Time) -> bool,
) -> Vec<Token> {
    for origin in origins.iter_mut() {
        origin.silent.sort_unstable_by(|one, other| other.cmp(one));
    }
    let by_logins = origins.iter().enumerate();
    let mut by_logins: BinaryHeap<(usize, usize)> = by_logins
        .map(|(index, origin)| (origin.logins, index))
        .collect();
    let mut chosen = Vec::new();
    while let Some((logins, index)) = by_logins.pop() {
        if total <= most && logins <= most_per_address {
            break;
        }
        // If none is silent, all other logins from this address stay.
        if let Some((since, token)) = origins[index].silent.pop() {
            total -= 1;
            by_logins.push((logins - 1, index));
            chosen.extend(is_due(since).then_some(token));
        }
    }
    chosen
}

fn address_of(client: &Client) -> Option<IpAddr> {
    match client.origin.remote {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix => None,
    }
}

/// Returns the time since which a client has had to send something before its login can continue.
fn silent_since(client: &Client) -> Option<Time> {
    match client.duty() {
        ClientDuty::Login(login) if login.awaits_client() => Some(login.waits_since),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(numbers: std::ops::Range<u32>) -> Origin {
        let silent = numbers.map(|number| {
            let token = Token {
                slot: number,
                generation: 0,
            };
            (Time(u64::from(number)), token)
        });
        let silent: Vec<_> = silent.collect();
        Origin {
            logins: silent.len(),
            silent,
        }
    }

    fn chosen(origins: Vec<Origin>, limits: (usize, usize)) -> Vec<u32> {
        chosen_before(origins, limits, 100)
    }

    fn chosen_before(mut origins: Vec<Origin>, limits: (usize, usize), due: u64) -> Vec<u32> {
        let total = origins.iter().map(|origin| origin.logins).sum();
        let tokens = choose(&mut origins, total, limits, |since| since < Time(due)).into_iter();
        tokens.map(|token| token.slot).collect()
    }

    #[test]
    fn the_connections_idle_longest_of_the_largest_address_are_closed_first() {
        let two = || vec![origin(0..5), origin(10..12)];
        assert!(chosen(two(), (7, 5)).is_empty());
        assert_eq!(chosen(two(), (5, 5)), [0, 1]);
        assert_eq!(chosen(two(), (100, 4)), [0]);
        let mut rest = chosen(two(), (0, 100));
        rest.sort_unstable();
        assert_eq!(rest, [0, 1, 2, 3, 4, 10, 11]);
    }

    #[test]
    fn no_older_login_of_another_address_is_closed_for_one_that_is_not_due() {
        let two = || vec![origin(0..5), origin(10..22)];
        assert!(chosen_before(two(), (10, 100), 10).is_empty());
        assert_eq!(chosen_before(two(), (10, 100), 12), [10, 11]);
        assert_eq!(chosen_before(two(), (8, 100), 10), [0]);
    }

    #[test]
    fn logins_that_wait_for_pgweir_are_spared() {
        let mut busy = origin(0..3);
        busy.logins = 50;
        assert_eq!(
            chosen(vec![busy, origin(10..12)], (10, 100)),
            [0, 1, 2, 10, 11]
        );
    }
}
