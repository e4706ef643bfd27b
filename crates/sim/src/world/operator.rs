//! The operators' commands on the console, and their results.

use pgweir_core::{
    Control, Snapshot, Token, WorkerId,
    base::fault::Fault,
    console::KnownNames,
    mail::{Mail, Note},
};

use super::{World, driver::Posted};
use crate::{
    checks::{Guarantee, Violation},
    client::Order,
};

const SHOWS: [&str; 7] = [
    "CLIENTS",
    "CONFIG",
    "DATABASES",
    "POOLS",
    "SERVERS",
    "STATS",
    "VERSION",
];

impl World {
    /// An operator sends a command, or waits.
    pub(super) fn operate(&mut self, index: usize) {
        if self.rng.u8(..4) > 0 {
            return;
        }
        let order = match self.rng.u8(..10) {
            0..=1 => Order::Show(SHOWS[self.rng.usize(..SHOWS.len())]),
            2..=3 => Order::Reload,
            _ => Order::Set("default_pool_size", self.rng.u32(1..=4)),
        };
        self.note(|| format!("client {index}: {}", order.text()));
        self.count(match &order {
            Order::Show(_) => "SHOW",
            Order::Reload => "RELOAD",
            Order::Set(..) => "SET",
        });
        self.clients[index].order(order);
    }

    /// Handles an operator's answer.
    pub(super) fn check_console_answers(&mut self, index: usize) -> Result<(), Violation> {
        for (order, ok) in self.clients[index].done_orders() {
            let may = order.is_harmless() || self.clients[index].is_admin();
            if ok != may {
                let what = format!("client {index}: {} was done: {ok}", order.text());
                return Err(Violation::new(Guarantee::Rights, what));
            }
        }
        Ok(())
    }

    /// Carries out a console's request to the control thread.
    pub(super) fn control(&mut self, control: Control) -> Result<(), Violation> {
        match control {
            Control::Reload { worker, console } => {
                self.reload()?;
                self.report(worker, console, Ok(None));
            }
            Control::Set {
                worker,
                console,
                key,
                value,
            } => {
                let before = self.directory.snapshot();
                let outcome = match before.config.with_setting(&key, &value) {
                    Ok((config, _)) => {
                        let users = before.users.clone();
                        self.configure(Snapshot {
                            config,
                            users,
                            tls: self.scenario.tls,
                            rules: Default::default(),
                        });
                        Ok(None)
                    }
                    Err(problem) => Err(Fault::SetFailed(problem.to_string())),
                };
                self.report(worker, console, outcome);
            }
            Control::Names { worker, console } => {
                let mail = Mail::Names {
                    console,
                    names: KnownNames::default(),
                };
                self.post(self.hosts.len(), worker.index(), Posted::Mail(mail));
            }
            Control::RefreshNames | Control::ReturnMemory => {}
            Control::Shutdown(how) => {
                self.faults.shutdown = true;
                self.mail_to_all(|| Mail::Shutdown(how));
            }
            // The log of this world has no line of statistics.
            Control::Counted(_) | Control::Measured(_) => {}
            // No other process exists.
            Control::Restart
            | Control::Departed(_)
            | Control::Held(_)
            | Control::Want(_)
            | Control::Lend(_)
            | Control::FleetRound(_)
            | Control::FleetCounted(_)
            | Control::OrderNodes(_)
            | Control::CancelElsewhere(_) => {}
        }
        Ok(())
    }

    fn report(&mut self, worker: WorkerId, console: Token, outcome: Result<Option<Note>, Fault>) {
        let mail = Mail::Configured { console, outcome };
        self.post(self.hosts.len(), worker.index(), Posted::Mail(mail));
    }
}
