//! Host names to addresses, by the system's resolver, on threads of its own and with a cache.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use pgweir_core::{ConnectError, Time, Token, WorkerId, admin::HostEntry};

use crate::{
    clock::Clock,
    net::{Mailboxes, Parcel},
};

/// So many names are looked up at a time: one dead name server should not stop all others.
const THREADS: usize = 4;
/// So many names may wait to be looked up, and so many are kept.
const NAMES_MAX: usize = 1024;

/// The answer to a look-up.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The addresses, in the resolver's order.
    Known(Arc<[SocketAddr]>),
    /// There are none.
    Unknown(ConnectError),
    /// The answer comes by mail ([`Parcel::Resolved`]).
    Asked,
}

/// Looks names up and remembers them.
#[derive(Debug)]
pub(crate) struct Resolver {
    cache: Mutex<HashMap<String, Entry>>,
    jobs: Sender<String>,
    mailboxes: Mailboxes,
    clock: Clock,
    found_us: AtomicU64,
    missed_us: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Asked(Vec<Waiter>),
    Known { answer: Answer, until: Time },
}

/// Addresses with port 0, or the resolver's words.
type Answer = Result<Arc<[SocketAddr]>, String>;

#[derive(Debug)]
struct Waiter {
    worker: WorkerId,
    conn: Token,
    port: u16,
}

impl Resolver {
    /// Starts the threads. They end when the resolver is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(mailboxes: &Mailboxes, clock: Clock) -> io::Result<Arc<Self>> {
        let (jobs, receiver) = bounded(NAMES_MAX);
        let resolver = Arc::new(Self {
            cache: Mutex::default(),
            jobs,
            mailboxes: mailboxes.clone(),
            clock,
            found_us: AtomicU64::new(0),
            missed_us: AtomicU64::new(0),
        });
        for index in 0..THREADS {
            let (names, resolver) = (receiver.clone(), Arc::downgrade(&resolver));
            thread::Builder::new()
                .name(format!("resolve-{index}"))
                .spawn(move || work(&names, &resolver))?;
        }
        Ok(resolver)
    }

    /// Sets how long an address, and a failure, are kept, in microseconds.
    pub(crate) fn set_ttl(&self, found_us: u64, missed_us: u64) {
        self.found_us.store(found_us, Ordering::Relaxed);
        self.missed_us.store(missed_us, Ordering::Relaxed);
    }

    /// The addresses of `host`, now or by mail to the connection.
    pub(crate) fn lookup(
        &self,
        host: &str,
        port: u16,
        worker: WorkerId,
        conn: Token,
        now: Time,
    ) -> Lookup {
        let mut cache = self.cache.lock();
        match cache.get_mut(host) {
            Some(Entry::Known { answer, until }) if *until > now => {
                return with_port(answer, port).into();
            }
            Some(Entry::Asked(waiters)) => {
                waiters.push(Waiter { worker, conn, port });
                return Lookup::Asked;
            }
            _ => {}
        }
        if cache.len() >= NAMES_MAX {
            cache.retain(|_, entry| !matches!(entry, Entry::Known { until, .. } if *until <= now));
        }
        if cache.len() >= NAMES_MAX || self.jobs.try_send(host.to_owned()).is_err() {
            return Lookup::Unknown(ConnectError::Local(
                "too many host names at once".to_owned(),
            ));
        }
        cache.insert(
            host.to_owned(),
            Entry::Asked(vec![Waiter { worker, conn, port }]),
        );
        Lookup::Asked
    }

    /// The names that are known, and how many are being looked up.
    pub(crate) fn names(&self) -> (Vec<HostEntry>, usize) {
        let cache = self.cache.lock();
        let known = cache.iter().filter_map(|(name, entry)| match entry {
            Entry::Known { answer, until } => Some(host_entry(name, answer, *until)),
            Entry::Asked(_) => None,
        });
        let mut known: Vec<_> = known.collect();
        known.sort_by(|one, other| one.name.cmp(&other.name));
        let asked = cache.len() - known.len();
        (known, asked)
    }

    fn answer(&self, host: String, answer: Answer) {
        let ttl = if answer.is_ok() {
            &self.found_us
        } else {
            &self.missed_us
        };
        let until = self.clock.now().after(ttl.load(Ordering::Relaxed));
        let known = Entry::Known {
            answer: answer.clone(),
            until,
        };
        let asked = self.cache.lock().insert(host, known);
        let Some(Entry::Asked(waiters)) = asked else {
            return;
        };
        for Waiter { worker, conn, port } in waiters {
            self.mailboxes.send(
                worker,
                Parcel::Resolved {
                    conn,
                    result: with_port(&answer, port),
                },
            );
        }
    }
}

impl From<Result<Arc<[SocketAddr]>, ConnectError>> for Lookup {
    fn from(result: Result<Arc<[SocketAddr]>, ConnectError>) -> Self {
        result.map_or_else(Lookup::Unknown, Lookup::Known)
    }
}

fn with_port(answer: &Answer, port: u16) -> Result<Arc<[SocketAddr]>, ConnectError> {
    let ported = |address: &SocketAddr| {
        let mut address = *address;
        address.set_port(port);
        address
    };
    match answer {
        Ok(addresses) => Ok(addresses.iter().map(ported).collect()),
        Err(error) => Err(ConnectError::Lookup(error.clone())),
    }
}

fn work(names: &Receiver<String>, resolver: &Weak<Resolver>) {
    for host in names {
        let answer = look_up(&host);
        let Some(resolver) = resolver.upgrade() else {
            return;
        };
        resolver.answer(host, answer);
    }
}

fn look_up(host: &str) -> Answer {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (host, 0)
        .to_socket_addrs()
        .map_err(|error| error.to_string())?
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        Err("the name has no address".to_owned())
    } else {
        Ok(addresses.into())
    }
}

fn host_entry(name: &str, answer: &Answer, until: Time) -> HostEntry {
    let addresses = answer.as_ref().map_or(String::new(), |addresses| {
        let texts: Vec<_> = addresses.iter().map(|at| at.ip().to_string()).collect();
        texts.join(",")
    });
    HostEntry {
        name: name.to_owned(),
        addresses,
        until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_once_and_then_known() {
        let mailboxes = Mailboxes::new(1).expect("mailboxes");
        let clock = Clock::start();
        let resolver = Resolver::start(&mailboxes, clock).expect("threads");
        resolver.set_ttl(60_000_000, 60_000_000);
        let conn = Token {
            slot: 1,
            generation: 0,
        };
        let ask = || resolver.lookup("localhost", 5432, WorkerId(0), conn, clock.now());
        assert!(matches!(ask(), Lookup::Asked));
        let mut parcels = Vec::new();
        let bell = mailboxes.bell(WorkerId(0)).expect("bell");
        let mut ring = [rustix::event::PollFd::new(
            &bell,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut ring, None).expect("poll");
        mailboxes.take(WorkerId(0), &mut parcels);
        let [
            Parcel::Resolved {
                result: Ok(mailed), ..
            },
        ] = parcels.as_slice()
        else {
            panic!("{parcels:?}")
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
}
