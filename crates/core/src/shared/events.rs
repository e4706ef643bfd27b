//! The latest events of the process, for SHOW EVENTS: reloads, commands of operators, lost servers, failed logins, and
//! the like. No code on the data path records an event.
//!
//! Equal events that follow each other soon are one entry with a count, so that a storm of one kind of event does not
//! push the others out.

mod sources;

use std::collections::VecDeque;

use parking_lot::Mutex;

pub use self::sources::{EventSource, EventSources};
use crate::Time;

/// The number of latest entries among which an equal event is looked for.
const COMPARED: usize = 64;
/// The time after the last occurrence, in microseconds, within which an equal event is counted with the earlier one.
const SAME_WITHIN: u64 = 60_000_000;
/// The largest number of bytes of a text that are kept.
const TEXT_MAX: usize = 300;
/// The largest number of bytes of a name that are kept, as in PostgreSQL.
pub(crate) const NAME_MAX: usize = 63;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The process has started.
    Started,
    /// A new configuration is in force.
    Reloaded,
    /// The configuration could not be read.
    ReloadFailed,
    /// A command of the console, or an order over HTTP, was carried out.
    Command,
    /// A command of the console, or an order over HTTP, was refused.
    CommandFailed,
    /// A signal was handled.
    Signal,
    /// A step of an online restart.
    Restart,
    /// An online restart has failed.
    RestartFailed,
    /// A server connection was lost that pgweir did not close.
    ServerLost,
    /// A login to a server has failed.
    PoolError,
    /// A pool has no server, and no host can be used.
    Outage,
    /// A server has logged in after an outage.
    OutageEnded,
    /// Patroni has reported another leader, or another state of a member.
    PatroniReported,
    /// Patroni does not answer any more, or with something that can't be used.
    PatroniFailed,
    /// etcd does not answer this node of a fleet, or with something that can't be used.
    FleetFailed,
    /// etcd answers again.
    FleetInContact,
    /// The lease of this node has ended: it has its floor of servers.
    FleetLeaseLost,
    /// Clients of a pool wait for long.
    ClientsWait,
    /// A client's login has failed.
    LoginFailed,
    /// A user is banned from an address after failed logins.
    LoginBanned,
    /// `memory_limit` is reached.
    MemoryFull,
    /// The memory is below `memory_limit` again.
    MemoryFreed,
}

impl EventKind {
    /// The name in SHOW EVENTS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Reloaded => "reloaded",
            Self::ReloadFailed => "reload_failed",
            Self::Command => "command",
            Self::CommandFailed => "command_failed",
            Self::Signal => "signal",
            Self::Restart => "restart",
            Self::RestartFailed => "restart_failed",
            Self::ServerLost => "server_lost",
            Self::PoolError => "pool_error",
            Self::Outage => "outage",
            Self::OutageEnded => "outage_ended",
            Self::PatroniReported => "patroni_reported",
            Self::PatroniFailed => "patroni_failed",
            Self::FleetFailed => "fleet_failed",
            Self::FleetInContact => "fleet_in_contact",
            Self::FleetLeaseLost => "fleet_lease_lost",
            Self::ClientsWait => "clients_wait",
            Self::LoginFailed => "login_failed",
            Self::LoginBanned => "login_banned",
            Self::MemoryFull => "memory_full",
            Self::MemoryFreed => "memory_freed",
        }
    }

    /// The severity in SHOW EVENTS: `info`, `warning` or `error`.
    #[must_use]
    pub fn severity(self) -> &'static str {
        match self {
            Self::Started
            | Self::Reloaded
            | Self::Command
            | Self::Signal
            | Self::Restart
            | Self::MemoryFreed
            | Self::OutageEnded
            | Self::FleetInContact
            | Self::PatroniReported => "info",
            Self::CommandFailed
            | Self::PatroniFailed
            | Self::FleetFailed
            | Self::FleetLeaseLost
            | Self::ClientsWait
            | Self::LoginFailed
            | Self::LoginBanned
            | Self::MemoryFull => "warning",
            Self::ReloadFailed
            | Self::RestartFailed
            | Self::ServerLost
            | Self::PoolError
            | Self::Outage => "error",
        }
    }
}

/// An event, or several equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The number of the entry: entries are numbered from 1 on, without gaps.
    pub id: u64,
    /// The time at which the event happened first.
    pub first: Time,
    /// The time at which the event happened last.
    pub last: Time,
    /// The number of times that it happened.
    pub count: u64,
    /// The kind.
    pub kind: EventKind,
    /// The database that the event is about; empty if none.
    pub database: Box<str>,
    /// The user that the event is about; empty if none.
    pub user: Box<str>,
    /// A description of the event, without secrets and literals of statements.
    pub text: Box<str>,
    /// The addresses of the clients that caused it, if clients did.
    pub sources: EventSources,
}

/// Something that has just happened.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence<'a> {
    /// The kind.
    pub kind: EventKind,
    /// The database and the user that it concerns, each of which may be empty.
    pub about: (&'a str, &'a str),
    /// A description, without secrets and literals of statements.
    pub text: &'a str,
    /// The client that caused it. Events that differ only in this are counted together.
    pub source: Option<EventSource<'a>>,
}

/// The latest events, shared by all threads.
#[derive(Debug, Default)]
pub struct Events(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Event>,
    dropped: u64,
    added: u64,
}

impl Events {
    /// Records an event. At most `most` entries are kept.
    pub fn add(&self, occurrence: Occurrence<'_>, most: usize, now: Time) {
        let Occurrence {
            kind,
            about,
            text,
            source,
        } = occurrence;
        let (database, user) = (cut(about.0, NAME_MAX), cut(about.1, NAME_MAX));
        let text = cut(text, TEXT_MAX);
        let mut ring = self.0.lock();
        let mut latest = ring.entries.iter_mut().rev().take(COMPARED);
        if let Some(same) = latest.find(|event| {
            event.kind == kind
                && *event.text == *text
                && *event.database == *database
                && *event.user == *user
                && now.since(event.last) < SAME_WITHIN
        }) {
            same.count += 1;
            same.last = now;
            if let Some(source) = source {
                same.sources.add(source);
            }
            return;
        }
        if most == 0 {
            return;
        }
        let mut sources = EventSources::default();
        if let Some(source) = source {
            sources.add(source);
        }
        ring.added += 1;
        let id = ring.added;
        ring.entries.push_back(Event {
            id,
            first: now,
            last: now,
            count: 1,
            kind,
            database: database.into(),
            user: user.into(),
            text: text.into(),
            sources,
        });
        ring.shrink(most);
    }

    /// Returns the entries, oldest first. From now on, at most `most` are kept.
    #[must_use]
    pub fn list(&self, most: usize) -> Vec<Event> {
        let mut ring = self.0.lock();
        ring.shrink(most);
        ring.entries.iter().cloned().collect()
    }

    /// Returns the number of entries, and of those that were dropped because of the limit.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        let ring = self.0.lock();
        (ring.entries.len(), ring.dropped)
    }
}

impl Ring {
    fn shrink(&mut self, most: usize) {
        let over = self.entries.len().saturating_sub(most);
        self.entries.drain(..over);
        self.dropped += over as u64;
    }
}

/// Returns the beginning of a text, up to the end of a character.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn occurrence<'a>(kind: EventKind, about: (&'a str, &'a str), text: &'a str) -> Occurrence<'a> {
        Occurrence {
            kind,
            about,
            text,
            source: None,
        }
    }

    fn add(events: &Events, text: &str, at: u64) {
        let lost = occurrence(EventKind::ServerLost, ("app", "ann"), text);
        events.add(lost, 3, Time(at * SECOND));
    }

    fn shown(events: &Events) -> Vec<(u64, String, u64)> {
        let list = events.list(3).into_iter();
        list.map(|event| (event.id, event.text.to_string(), event.count))
            .collect()
    }

    #[test]
    fn the_oldest_are_dropped() {
        let events = Events::default();
        for (at, text) in ["a", "b", "c", "d"].iter().enumerate() {
            add(&events, text, at as u64);
        }
        let expect = [
            (2, "b".to_owned(), 1),
            (3, "c".to_owned(), 1),
            (4, "d".to_owned(), 1),
        ];
        assert_eq!(shown(&events), expect);
        assert_eq!(events.counts(), (3, 1));
        assert_eq!(events.list(1).len(), 1);
        assert_eq!(events.counts(), (1, 3));
    }

    #[test]
    fn event_history_bounds_the_entries() {
        let events = Events::default();
        for at in 0..100 {
            add(&events, &format!("event {at}"), at);
            // Nothing lists the events, which would drop some, too.
            assert!(events.counts().0 <= 3);
        }
        assert_eq!(events.counts(), (3, 97));
    }

    #[test]
    fn equal_events_are_counted() {
        let events = Events::default();
        for at in [0, 30, 60] {
            add(&events, "a", at);
            add(&events, "b", at);
        }
        add(&events, "a", 200);
        let expect = [
            (1, "a".to_owned(), 3),
            (2, "b".to_owned(), 3),
            (3, "a".to_owned(), 1),
        ];
        assert_eq!(shown(&events), expect);
        let first = &events.list(3)[0];
        assert_eq!((first.first, first.last), (Time(0), Time(60 * SECOND)));
    }

    #[test]
    fn addresses_are_counted_within_an_event() {
        let events = Events::default();
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.2"] {
            let failed = Occurrence {
                source: Some(EventSource { address, about: "" }),
                ..occurrence(EventKind::LoginFailed, ("app", "ann"), "failed")
            };
            events.add(failed, 3, Time(0));
        }
        let event = &events.list(3)[0];
        let sources = event.sources.describe(event.count);
        assert_eq!(sources.as_deref(), Some("10.0.0.2: 2; 10.0.0.1: 1"));
    }

    #[test]
    fn switched_off() {
        let events = Events::default();
        events.add(occurrence(EventKind::Started, ("", ""), "x"), 0, Time(0));
        assert_eq!(events.counts(), (0, 0));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let events = Events::default();
        let long = "é".repeat(400);
        events.add(
            occurrence(EventKind::Started, (&long, ""), &long),
            1,
            Time(0),
        );
        let event = &events.list(1)[0];
        assert_eq!(
            (event.database.len(), event.text.len()),
            (NAME_MAX - 1, TEXT_MAX)
        );
    }
}
