//! The operators' orders (PAUSE, SUSPEND, DISABLE, shutdown) for all workers, and the console clients that wait until
//! an order is completed.
//!
//! A console command changes the orders here, at once for the whole process. Then each worker gets a message
//! ([`Mail::OperatorOrders`](crate::mail::Mail::OperatorOrders), or a console command that goes through all workers)
//! and applies the orders that are in force at that moment. So it does not matter in which sequence a worker gets
//! several such messages: after the last one, it has applied all orders.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::{Mutex, RwLock};

use super::departures::Departures;
use crate::{Token, WorkerId, base::fault::Fault};

/// Whether the whole process is paused or suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Halt {
    /// The process is neither paused nor suspended.
    #[default]
    No,
    /// PAUSE: no server is lent or opened.
    Paused,
    /// SUSPEND: no worker reads from a connection or accepts one.
    Suspended,
}

/// The way in which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// Accept no client, end when the last client has disconnected (SIGTERM).
    WaitForClients,
    /// Accept no client and lend no server, end when the last lent server was given back (SIGINT).
    WaitForServers,
    /// End at once (SIGQUIT).
    Immediate,
}

/// The orders in force. Their number is bounded by the databases that admins have named and the configuration has.
#[derive(Debug, Default)]
pub struct Operator {
    orders: RwLock<Orders>,
    waits: Mutex<Vec<(WorkerId, Token)>>,
    /// The length of `waits`, which can be read without the lock.
    waiting: AtomicUsize,
    ending: AtomicBool,
    departures: Departures,
}

#[derive(Debug, Default)]
struct Orders {
    halt: Halt,
    paused: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// Workers that have not reported yet that they are quiet, after SUSPEND.
    must_report: BTreeSet<WorkerId>,
    /// The console that gave the SUSPEND.
    suspended_by: Option<(WorkerId, Token)>,
}

impl Operator {
    /// Whether the whole process is paused or suspended.
    #[must_use]
    pub fn halt(&self) -> Halt {
        self.orders.read().halt
    }

    /// Orders PAUSE of all databases.
    ///
    /// # Errors
    ///
    /// The process is paused or suspended already.
    pub fn pause(&self) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        orders.halt = Halt::Paused;
        Ok(())
    }

    /// Orders SUSPEND for this console; `workers` is the number of workers that have to report.
    ///
    /// # Errors
    ///
    /// The process is paused or suspended already, or single databases are paused, whose clients would never be quiet.
    pub fn suspend(&self, console: (WorkerId, Token), workers: usize) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        if !orders.paused.is_empty() {
            let text = "cannot suspend with paused databases";
            return Err(Fault::Command(text.to_owned()));
        }
        orders.halt = Halt::Suspended;
        orders.suspended_by = Some(console);
        orders.must_report = (0..workers).map(|index| WorkerId(index as u8)).collect();
        Ok(())
    }

    /// Notes that a suspended worker is quiet.
    pub fn is_quiet(&self, worker: WorkerId) {
        self.orders.write().must_report.remove(&worker);
    }

    /// Returns whether all workers have reported that they are quiet, after SUSPEND.
    #[must_use]
    pub fn are_all_quiet(&self) -> bool {
        self.orders.read().must_report.is_empty()
    }

    /// Notes that a console has disconnected. If it had suspended the process, ends the suspension and returns `true`.
    #[must_use]
    pub fn abandon_suspension(&self, console: (WorkerId, Token)) -> bool {
        let mut orders = self.orders.write();
        let is_over = orders.halt == Halt::Suspended && orders.suspended_by == Some(console);
        if is_over && !self.is_ending() {
            orders.halt = Halt::No;
            return true;
        }
        false
    }

    /// Orders PAUSE or KILL of single databases.
    ///
    /// # Errors
    ///
    /// The process is paused or suspended already.
    pub fn pause_databases(&self, names: impl IntoIterator<Item = String>) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        orders.paused.extend(names);
        Ok(())
    }

    /// Orders RESUME without a name: ends a PAUSE or SUSPEND of the whole process, and returns which of them it was.
    ///
    /// # Errors
    ///
    /// The process is neither paused nor suspended, or it is shutting down.
    pub fn resume(&self) -> Result<Halt, Fault> {
        if self.is_ending() {
            return Err(Fault::Command("pooler is shutting down".to_owned()));
        }
        let mut orders = self.orders.write();
        match std::mem::take(&mut orders.halt) {
            Halt::No => Err(Fault::NotPaused {
                what: "pooler is not paused/suspended".to_owned(),
                paused: orders.paused.iter().cloned().collect(),
            }),
            halt => Ok(halt),
        }
    }

    /// Orders RESUME of one database.
    ///
    /// # Errors
    ///
    /// The database is not paused by name.
    pub fn resume_database(&self, name: &str) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        if orders.paused.remove(name) {
            return Ok(());
        }
        Err(Fault::NotPaused {
            what: format!("database {name} is not paused"),
            paused: orders.paused.iter().cloned().collect(),
        })
    }

    /// Orders DISABLE of a database, or ENABLE.
    pub fn set_disabled(&self, name: &str, disabled: bool) {
        let mut orders = self.orders.write();
        match disabled {
            true => drop(orders.disabled.insert(name.to_owned())),
            false => drop(orders.disabled.remove(name)),
        }
    }

    /// Returns whether this database is paused by name.
    #[must_use]
    pub fn is_database_paused(&self, name: &str) -> bool {
        self.orders.read().paused.contains(name)
    }

    /// Returns whether this database is paused, by name or with the whole process.
    #[must_use]
    pub fn is_halted(&self, database: &str) -> bool {
        let orders = self.orders.read();
        orders.halt == Halt::Paused || orders.paused.contains(database)
    }

    /// Returns whether new clients of this database are refused.
    #[must_use]
    pub fn is_disabled(&self, database: &str) -> bool {
        self.orders.read().disabled.contains(database)
    }

    /// Returns the databases that are paused or disabled by name, in use or not.
    #[must_use]
    pub fn named(&self) -> BTreeSet<String> {
        let orders = self.orders.read();
        orders.paused.union(&orders.disabled).cloned().collect()
    }

    /// Returns the names of paused databases, and of disabled ones.
    #[must_use]
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let orders = self.orders.read();
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect();
        (list(&orders.paused), list(&orders.disabled))
    }

    /// Drops the orders for databases that no longer exist.
    pub fn forget_databases(&self, is_known: impl Fn(&str) -> bool) {
        let mut orders = self.orders.write();
        orders.paused.retain(|name| is_known(name));
        orders.disabled.retain(|name| is_known(name));
    }

    /// Notes that the process is shutting down: RESUME fails from now on, and a SUSPEND ends.
    pub fn begin_end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let mut orders = self.orders.write();
        // A suspended client could never finish.
        if orders.halt == Halt::Suspended {
            orders.halt = Halt::No;
        }
    }

    /// Returns whether the process is shutting down.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Returns the order that all clients leave.
    #[inline]
    #[must_use]
    pub fn departures(&self) -> &Departures {
        &self.departures
    }

    /// Registers a console that waits for servers to be closed. After this call, the caller checks once more whether
    /// they are.
    pub fn wait(&self, worker: WorkerId, console: Token) {
        let mut waits = self.waits.lock();
        waits.push((worker, console));
        self.waiting.store(waits.len(), Ordering::SeqCst);
    }

    /// Ends the wait of a console.
    pub fn wait_no_more(&self, worker: WorkerId, console: Token) {
        let mut waits = self.waits.lock();
        waits.retain(|&wait| wait != (worker, console));
        self.waiting.store(waits.len(), Ordering::SeqCst);
    }

    /// Returns the consoles that wait.
    #[must_use]
    pub fn waits(&self) -> Vec<(WorkerId, Token)> {
        // No wake-up is lost: a worker counts a closed server before this load, and a console that registers after the
        // load checks the counts once more.
        match self.waiting.load(Ordering::SeqCst) {
            0 => Vec::new(),
            _ => self.waits.lock().clone(),
        }
    }
}

impl Orders {
    fn unless_halted(&self) -> Result<(), Fault> {
        match self.halt {
            Halt::No => Ok(()),
            _ => Err(Fault::Command("already suspended/paused".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T>(outcome: Result<T, Fault>) -> String {
        outcome
            .err()
            .map_or(String::new(), |fault| fault.to_string())
    }

    #[test]
    fn pause_and_resume() {
        let operator = Operator::default();
        assert_eq!(text(operator.resume()), "pooler is not paused/suspended");
        assert_eq!(text(operator.pause()), "");
        assert!(operator.is_halted("app") && !operator.is_database_paused("app"));
        assert_eq!(text(operator.pause()), "already suspended/paused");
        let one = operator.pause_databases(["app".to_owned()]);
        assert_eq!(text(one), "already suspended/paused");
        assert_eq!(
            text(operator.resume_database("app")),
            "database app is not paused"
        );
        assert_eq!(text(operator.resume()), "");
        assert!(!operator.is_halted("app"));
    }

    #[test]
    fn one_database() {
        let operator = Operator::default();
        for _ in 0..2 {
            assert_eq!(text(operator.pause_databases(["app".to_owned()])), "");
        }
        assert!(operator.is_halted("app") && !operator.is_halted("other"));
        assert_eq!(text(operator.resume()), "pooler is not paused/suspended");
        operator.set_disabled("other", true);
        operator.forget_databases(|name| name == "app");
        assert!(operator.is_halted("app") && !operator.is_disabled("other"));
        assert_eq!(text(operator.resume_database("app")), "");
        assert!(!operator.is_halted("app"));
    }

    #[test]
    fn no_resume_at_the_end() {
        let operator = Operator::default();
        assert_eq!(text(operator.pause()), "");
        operator.begin_end();
        assert_eq!(text(operator.resume()), "pooler is shutting down");
    }
}
