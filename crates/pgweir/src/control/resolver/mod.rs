//! Resolves host names on separate threads, with a cache. When a host loses addresses, the resolver informs the
//! workers, so that they close the server connections to those addresses.

mod source;
mod zones;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use pgweir_config::Settings;
use pgweir_core::{
    ConnectError, Level, Time, Token, WorkerId,
    console::{HostEntry, KnownNames, ZoneEntry},
    mail::Mail,
};

use self::{source::Source, zones::zone_of};
use crate::{
    clock::Clock,
    log::Log,
    net::{Mailboxes, WorkerMessage},
};
pub(crate) use source::{LookupError, check_resolv_conf};

/// The number of names that are looked up at a time: one dead name server should not delay all other names.
const THREADS: usize = 4;
/// The largest number of names that wait for a look-up, and of names in the cache.
const NAMES_MAX: usize = 1024;

/// The answer to a request for a name.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The addresses: first the one to try first, then the others in the resolver's order.
    Known(Arc<[SocketAddr]>),
    /// The name has no addresses.
    Unknown(ConnectError),
    /// The answer will be sent to the mailbox ([`WorkerMessage::Resolved`]).
    Asked,
}

/// Resolves names and caches the answers.
#[derive(Debug)]
pub(crate) struct Resolver {
    names: Mutex<Names>,
    source: Source,
    jobs: Sender<String>,
    mailboxes: Mailboxes,
    clock: Clock,
    log: Log,
    found_us: AtomicU64,
    missed_us: AtomicU64,
    zone_period_us: AtomicU64,
    period_changed: Sender<()>,
}

#[derive(Debug, Default)]
struct Names {
    hosts: HashMap<String, Host>,
    /// The serials of zones as they were last seen, or 0 for a zone that was not inspected yet.
    zones: BTreeMap<String, u32>,
}

/// The cache entry of a name.
#[derive(Debug, Default)]
struct Host {
    /// The last answer, and the time until which it is valid.
    known: Option<(Answer, Time)>,
    /// The last addresses, even if a later look-up failed.
    last: Option<Arc<[SocketAddr]>>,
    /// The connections that wait for the look-up in progress.
    asked: Option<Vec<Waiter>>,
    /// The number of times that the addresses were given to a connection: each connection starts with the next address.
    turn: usize,
}

/// Addresses with port 0, or the resolver's error message.
type Answer = Result<Arc<[SocketAddr]>, String>;

#[derive(Debug)]
struct Waiter {
    worker: WorkerId,
    conn: Token,
    port: u16,
}

impl Resolver {
    /// Starts the threads, which end when the resolver is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        settings: &Settings,
        mailboxes: &Mailboxes,
        clock: Clock,
        log: Log,
    ) -> io::Result<Arc<Self>> {
        let (jobs, receiver) = bounded(NAMES_MAX);
        let (period_changed, changes) = bounded(1);
        let resolver = Arc::new(Self {
            names: Mutex::default(),
            source: Source::new(settings.resolv_conf.as_deref()),
            jobs,
            mailboxes: mailboxes.clone(),
            clock,
            log,
            found_us: AtomicU64::new(0),
            missed_us: AtomicU64::new(0),
            zone_period_us: AtomicU64::new(0),
            period_changed,
        });
        resolver.configure(settings);
        for index in 0..THREADS {
            let (names, resolver) = (receiver.clone(), Arc::downgrade(&resolver));
            thread::Builder::new()
                .name(format!("resolve-{index}"))
                .spawn(move || work(&names, &resolver))?;
        }
        let watched = Arc::downgrade(&resolver);
        thread::Builder::new()
            .name("dns-zones".to_owned())
            .spawn(move || zones::watch(&changes, &watched))?;
        Ok(resolver)
    }

    /// Puts those settings in force that RELOAD can change.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.found_us
            .store(settings.dns_max_ttl.0, Ordering::Relaxed);
        self.missed_us
            .store(settings.dns_nxdomain_ttl.0, Ordering::Relaxed);
        let period_us = settings.dns_zone_check_period.0;
        if self.zone_period_us.swap(period_us, Ordering::Relaxed) != period_us {
            // If the channel is full, the watcher is about to read the settings anyway.
            let _ = self.period_changed.try_send(());
        }
    }

    fn zone_period_us(&self) -> u64 {
        self.zone_period_us.load(Ordering::Relaxed)
    }

    /// Returns the addresses of `host`, or sends them to the connection's mailbox later.
    pub(crate) fn lookup(
        &self,
        host: &str,
        port: u16,
        worker: WorkerId,
        conn: Token,
        now: Time,
    ) -> Lookup {
        let mut names = self.names.lock();
        if !names.hosts.contains_key(host) && !names.make_room(now) {
            return too_many();
        }
        let entry = names.hosts.entry(host.to_owned()).or_default();
        if let Some((answer, until)) = &entry.known
            && *until > now
        {
            let turn = entry.turn;
            entry.turn = turn.wrapping_add(1);
            return ported(answer, turn, port).into();
        }
        let waiter = Waiter { worker, conn, port };
        match &mut entry.asked {
            Some(waiters) => waiters.push(waiter),
            None if self.jobs.try_send(host.to_owned()).is_ok() => entry.asked = Some(vec![waiter]),
            None => return too_many(),
        }
        if let Some(zone) = zone_of(host) {
            names.zones.entry(zone.to_owned()).or_default();
        }
        Lookup::Asked
    }

    /// Looks up all names again at an operator's request. The present answers stay in use until the new ones arrive.
    pub(crate) fn refresh(&self) {
        self.ask_again(|_| true);
    }

    fn ask_again(&self, which: impl Fn(&str) -> bool) {
        for (name, host) in &mut self.names.lock().hosts {
            if host.asked.is_none() && which(name) && self.jobs.try_send(name.clone()).is_ok() {
                host.asked = Some(Vec::new());
            }
        }
    }

    /// Returns the zones of the cached names, with their serials.
    fn zones(&self) -> Vec<(String, u32)> {
        let names = self.names.lock();
        let zones = names.zones.iter();
        zones
            .map(|(zone, serial)| (zone.clone(), *serial))
            .collect()
    }

    fn zone_changed(&self, zone: &str, old: u32, new: u32) {
        if let Some(serial) = self.names.lock().zones.get_mut(zone) {
            *serial = new;
        }
        let text = format!("zone '{zone}' serial changed: old={old} new={new}");
        self.log.buffer().say(self.clock.now(), Level::Log, text);
        self.ask_again(|name| zone_of(name) == Some(zone));
    }

    fn detail(&self, text: String) {
        self.log.buffer().say(self.clock.now(), Level::Debug, text);
    }

    /// Returns the cached names, for the console.
    pub(crate) fn known(&self) -> KnownNames {
        let names = self.names.lock();
        let mut hosts: Vec<_> = names
            .hosts
            .iter()
            .filter_map(|(name, host)| host.entry(name))
            .collect();
        hosts.sort_by(|one, other| one.name.cmp(&other.name));
        let of_zone = |zone: &str| {
            let hosts = names.hosts.keys();
            hosts.filter(|name| zone_of(name) == Some(zone)).count()
        };
        let zones = names.zones.iter().map(|(zone, &serial)| ZoneEntry {
            name: zone.clone(),
            serial,
            hosts: of_zone(zone),
        });
        KnownNames {
            zones: zones.collect(),
            asked: names
                .hosts
                .values()
                .filter(|host| host.asked.is_some())
                .count(),
            hosts,
        }
    }

    fn answer(&self, name: &str, answer: Answer) {
        let now = self.clock.now();
        let ttl = if answer.is_ok() {
            &self.found_us
        } else {
            &self.missed_us
        };
        let until = now.after(ttl.load(Ordering::Relaxed));
        let mut names = self.names.lock();
        let Some(host) = names.hosts.get_mut(name) else {
            return;
        };
        host.known = Some((answer.clone(), until));
        let waiters = host.asked.take().unwrap_or_default();
        let turn = host.turn;
        host.turn = turn.wrapping_add(waiters.len());
        let gone = host.gone(&answer);
        drop(names);
        if !gone.is_empty() {
            let host: Arc<str> = name.into();
            self.mailboxes.send_all(|| {
                let (host, gone) = (Arc::clone(&host), Arc::clone(&gone));
                WorkerMessage::Mail(Mail::AddressesGone { host, gone })
            });
        }
        for (index, waiter) in waiters.into_iter().enumerate() {
            let result = ported(&answer, turn.wrapping_add(index), waiter.port);
            let conn = waiter.conn;
            self.mailboxes
                .send(waiter.worker, WorkerMessage::Resolved { conn, result });
        }
    }
}

impl Names {
    /// Forgets expired names. Returns whether there is room for one more name.
    fn make_room(&mut self, now: Time) -> bool {
        if self.hosts.len() < NAMES_MAX {
            return true;
        }
        let is_used = |host: &Host| {
            host.asked.is_some() || host.known.as_ref().is_some_and(|(_, until)| *until > now)
        };
        self.hosts.retain(|_, host| is_used(host));
        let hosts = &self.hosts;
        self.zones
            .retain(|zone, _| hosts.keys().any(|name| zone_of(name) == Some(zone)));
        self.hosts.len() < NAMES_MAX
    }
}

impl Host {
    /// Returns the addresses that are not in the new answer. A failed look-up removes no addresses.
    fn gone(&mut self, answer: &Answer) -> Arc<[std::net::IpAddr]> {
        let Ok(new) = answer else {
            return Arc::default();
        };
        let old = self.last.replace(Arc::clone(new));
        let old = old.iter().flat_map(|old| old.iter());
        old.filter(|address| !new.contains(address))
            .map(SocketAddr::ip)
            .collect()
    }

    fn entry(&self, name: &str) -> Option<HostEntry> {
        let (answer, until) = self.known.as_ref()?;
        let addresses = answer.as_ref().map_or(String::new(), |addresses| {
            let texts: Vec<_> = addresses.iter().map(|at| at.ip().to_string()).collect();
            texts.join(",")
        });
        Some(HostEntry {
            name: name.to_owned(),
            addresses,
            until: *until,
        })
    }
}

fn too_many() -> Lookup {
    Lookup::Unknown(ConnectError::Local(
        "too many host names at once".to_owned(),
    ))
}

impl From<Result<Arc<[SocketAddr]>, ConnectError>> for Lookup {
    fn from(result: Result<Arc<[SocketAddr]>, ConnectError>) -> Self {
        result.map_or_else(Lookup::Unknown, Lookup::Known)
    }
}

/// Returns the addresses with their port, starting with the one whose turn it is.
fn ported(answer: &Answer, turn: usize, port: u16) -> Result<Arc<[SocketAddr]>, ConnectError> {
    let addresses = answer
        .as_ref()
        .map_err(|error| ConnectError::Lookup(error.clone()))?;
    let (before, from) = addresses.split_at(turn.checked_rem(addresses.len()).unwrap_or(0));
    let in_turn = from.iter().chain(before);
    let ported = in_turn.map(|address| SocketAddr::new(address.ip(), port));
    Ok(ported.collect())
}

fn work(names: &Receiver<String>, resolver: &Weak<Resolver>) {
    for host in names {
        let Some(resolver) = resolver.upgrade() else {
            return;
        };
        let answer = resolver.source.addresses(&host);
        if let Err(error) = &answer {
            let text = format!("DNS lookup failed: {host}: {error}");
            let now = resolver.clock.now();
            resolver.log.buffer().say(now, Level::Warning, text);
        }
        let answer = answer.map(Arc::from).map_err(|error| error.to_string());
        resolver.answer(&host, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_once_and_then_known() {
        let mailboxes = Mailboxes::new(1).expect("mailboxes");
        let clock = Clock::start();
        let resolver = Resolver::start(&Settings::default(), &mailboxes, clock, Log::new(0, false))
            .expect("threads");
        let conn = Token {
            slot: 1,
            generation: 0,
        };
        let ask = || resolver.lookup("localhost", 5432, WorkerId(0), conn, clock.now());
        assert!(matches!(ask(), Lookup::Asked));
        let mut messages = Vec::new();
        let wake_descriptor = mailboxes
            .wake_descriptor(WorkerId(0))
            .expect("wake_descriptor");
        let mut ring = [rustix::event::PollFd::new(
            &wake_descriptor,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut ring, None).expect("poll");
        mailboxes.take(WorkerId(0), &mut messages);
        let [
            WorkerMessage::Resolved {
                result: Ok(mailed), ..
            },
        ] = messages.as_slice()
        else {
            panic!("{messages:?}")
        };
        assert!(
            mailed
                .iter()
                .all(|address| address.ip().is_loopback() && address.port() == 5432)
        );
        let Lookup::Known(known) = ask() else {
            panic!("not in the cache")
        };
        assert_eq!(&known, mailed);
    }

    fn at(texts: &[&str]) -> Arc<[SocketAddr]> {
        let address = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 0);
        texts.iter().map(address).collect()
    }

    #[test]
    fn each_connection_starts_with_the_next_address() {
        let answer = Ok(at(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]));
        let order = |turn| {
            let addresses = ported(&answer, turn, 5432).expect("known");
            let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            texts.join(" ").replace("192.0.2.", "")
        };
        assert_eq!(order(0), "1:5432 2:5432 3:5432");
        assert_eq!(order(1), "2:5432 3:5432 1:5432");
        assert_eq!(order(usize::MAX), "1:5432 2:5432 3:5432");
        assert!(ported(&Err("none".to_owned()), 7, 5432).is_err());
    }

    #[test]
    fn an_address_is_gone_when_another_answer_lacks_it() {
        let mut host = Host::default();
        let gone = |host: &mut Host, answer: Answer| {
            let texts: Vec<_> = host.gone(&answer).iter().map(ToString::to_string).collect();
            texts.join(" ")
        };
        assert_eq!(gone(&mut host, Ok(at(&["192.0.2.1", "192.0.2.2"]))), "");
        assert_eq!(
            gone(&mut host, Ok(at(&["192.0.2.2", "192.0.2.3"]))),
            "192.0.2.1"
        );
        assert_eq!(gone(&mut host, Err("no such name".to_owned())), "");
        assert_eq!(gone(&mut host, Ok(at(&["192.0.2.3"]))), "192.0.2.2");
    }

    #[test]
    fn there_is_room_when_old_names_are_forgotten() {
        let mut names = Names::default();
        for index in 0..NAMES_MAX {
            let known = (index >= 10).then(|| (Ok(at(&[])), Time(1000)));
            let host = Host {
                known,
                asked: (index < 5).then(Vec::new),
                ..Host::default()
            };
            names
                .hosts
                .insert(format!("db{index}.zone{index}.test"), host);
            names.zones.insert(format!("zone{index}.test"), 0);
        }
        assert!(names.make_room(Time(500)));
        assert_eq!(
            (names.hosts.len(), names.zones.len()),
            (NAMES_MAX - 5, NAMES_MAX - 5)
        );
        assert!(names.make_room(Time(2000)));
        names.hosts.clear();
    }
}
