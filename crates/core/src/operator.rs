//! What operators have ordered, for all workers; and the consoles that wait for it to be done.
//!
//! Orders are changed here, at once for the whole process; workers are then told to look
//! ([`Mail::Obey`](crate::mail::Mail::Obey), or a tour of the console), and take over what stands
//! here at that moment. Hence it does not matter in which order workers hear of several orders: the
//! last one that any worker hears of shows it the state after all of them.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::{Mutex, RwLock};

use crate::{Token, WorkerId, fault::Fault};

/// Does the whole process rest?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Halt {
    /// No.
    #[default]
    No,
    /// No server is lent or opened (PAUSE).
    Paused,
    /// Nothing is read or accepted (SUSPEND).
    Suspended,
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// Accept nobody, end when the last client has left (`TERM`).
    WaitForClients,
    /// Accept nobody, end when the last server was given back; lend none again (`INT`).
    WaitForServers,
    /// End at once (`QUIT`).
    Immediate,
}

/// Orders in force. Bounded by the names that admins have used, and that the configuration serves.
#[derive(Debug, Default)]
pub struct Operator {
    orders: RwLock<Orders>,
    waits: Mutex<Vec<(WorkerId, Token)>>,
    /// The length of `waits`, to be looked at without its lock.
    waiting: AtomicUsize,
    ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Orders {
    halt: Halt,
    paused: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// Workers that are not quiet yet, after SUSPEND.
    restless: BTreeSet<WorkerId>,
    /// The console that has suspended the process.
    suspended_by: Option<(WorkerId, Token)>,
}

impl Operator {
    /// Does the whole process rest?
    #[must_use]
    pub fn halt(&self) -> Halt {
        self.orders.read().halt
    }

    /// PAUSE of all databases.
    ///
    /// # Errors
    /// It is already.
    pub fn pause(&self) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        orders.halt = Halt::Paused;
        Ok(())
    }

    /// SUSPEND, by this console, of so many workers.
    ///
    /// # Errors
    /// It is already, or databases are paused, whose clients would never become quiet.
    pub fn suspend(&self, console: (WorkerId, Token), workers: usize) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        if !orders.paused.is_empty() {
            let text = "cannot suspend with paused databases";
            return Err(Fault::Command(text.to_owned()));
        }
        orders.halt = Halt::Suspended;
        orders.suspended_by = Some(console);
        orders.restless = (0..workers).map(|index| WorkerId(index as u8)).collect();
        Ok(())
    }

    /// A suspended worker has come to rest.
    pub fn is_quiet(&self, worker: WorkerId) {
        self.orders.write().restless.remove(&worker);
    }

    /// Have all come to rest, after SUSPEND?
    #[must_use]
    pub fn are_all_quiet(&self) -> bool {
        self.orders.read().restless.is_empty()
    }

    /// The console has gone: `true` if it had suspended the process, which now is resumed.
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

    /// PAUSE of databases, the servers of which may be killed for it.
    ///
    /// # Errors
    /// All databases are paused already.
    pub fn pause_databases(&self, names: impl IntoIterator<Item = String>) -> Result<(), Fault> {
        let mut orders = self.orders.write();
        orders.unless_halted()?;
        orders.paused.extend(names);
        Ok(())
    }

    /// RESUME of what PAUSE without a name has halted: gives what it was.
    ///
    /// # Errors
    /// Nothing is, or the process is about to end.
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

    /// RESUME of one database.
    ///
    /// # Errors
    /// It is not paused itself.
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

    /// DISABLE of a database, or ENABLE.
    pub fn set_disabled(&self, name: &str, disabled: bool) {
        let mut orders = self.orders.write();
        match disabled {
            true => drop(orders.disabled.insert(name.to_owned())),
            false => drop(orders.disabled.remove(name)),
        }
    }

    /// Is this very database paused?
    #[must_use]
    pub fn is_database_paused(&self, name: &str) -> bool {
        self.orders.read().paused.contains(name)
    }

    /// Is no server to be lent or opened in this database?
    #[must_use]
    pub fn is_halted(&self, database: &str) -> bool {
        let orders = self.orders.read();
        orders.halt == Halt::Paused || orders.paused.contains(database)
    }

    /// Are new clients of this database refused?
    #[must_use]
    pub fn is_disabled(&self, database: &str) -> bool {
        self.orders.read().disabled.contains(database)
    }

    /// Databases that are paused or disabled by name, whether in use or not.
    #[must_use]
    pub fn named(&self) -> BTreeSet<String> {
        let orders = self.orders.read();
        orders.paused.union(&orders.disabled).cloned().collect()
    }

    /// Those that are paused, and those that are disabled.
    #[must_use]
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let orders = self.orders.read();
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect();
        (list(&orders.paused), list(&orders.disabled))
    }

    /// Orders for databases that there are not any more are forgotten.
    pub fn forget_databases(&self, is_known: impl Fn(&str) -> bool) {
        let mut orders = self.orders.write();
        orders.paused.retain(|name| is_known(name));
        orders.disabled.retain(|name| is_known(name));
    }

    /// The process is about to end: there is no RESUME any more, and no SUSPEND.
    pub fn begin_end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let mut orders = self.orders.write();
        // Who is suspended could never leave.
        if orders.halt == Halt::Suspended {
            orders.halt = Halt::No;
        }
    }

    /// Is the process about to end?
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// A console waits for servers to go. It has to look itself after this, too.
    pub fn wait(&self, worker: WorkerId, console: Token) {
        let mut waits = self.waits.lock();
        waits.push((worker, console));
        self.waiting.store(waits.len(), Ordering::SeqCst);
    }

    /// It waits no more.
    pub fn wait_no_more(&self, worker: WorkerId, console: Token) {
        let mut waits = self.waits.lock();
        waits.retain(|&wait| wait != (worker, console));
        self.waiting.store(waits.len(), Ordering::SeqCst);
    }

    /// The consoles that wait.
    #[must_use]
    pub fn waits(&self) -> Vec<(WorkerId, Token)> {
        // Whoever counted a server out before this load, and finds nobody, is seen by the console
        // that begins to wait after it, and looks then.
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
