//! The thread that queries the console, and connects again when the connection is lost.

use std::{collections::BTreeSet, time::Duration};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::{
    console::{Console, ConsoleError},
    sample::{ALWAYS, CONNECTIONS, Sample},
};
use crate::{clock::Clock, quickstart::ConsoleLogin};

/// The samples that the display needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SamplingOptions {
    pub(super) interval: Duration,
    /// The tables that have a row for each connection are needed, too.
    pub(super) connections: bool,
}

/// A request of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SamplerRequest {
    Options(SamplingOptions),
    /// KILL_CLIENT.
    Kill(u64),
}

/// A reply to the display.
pub(super) enum SamplerReply {
    Sample(Result<Sample, ConsoleError>),
    /// The outcome of a command.
    CommandResult(String),
}

/// Asks the console.
pub(super) struct Sampler {
    login: ConsoleLogin,
    console: Option<Console>,
    version: String,
    /// Tables that this console does not have.
    missing: BTreeSet<&'static str>,
    clock: Clock,
}

impl Sampler {
    /// Connects.
    ///
    /// # Errors
    /// When there is no connection, or what answers is no console.
    pub(super) fn new(login: ConsoleLogin, clock: Clock) -> Result<Self, ConsoleError> {
        let mut sampler = Self {
            login,
            console: None,
            version: String::new(),
            missing: BTreeSet::new(),
            clock,
        };
        sampler.connect()?;
        Ok(sampler)
    }

    fn connect(&mut self) -> Result<(), ConsoleError> {
        let mut console = Console::open(&self.login)?;
        let version = console.table("SHOW VERSION")?;
        let first = version.iter().next();
        self.version = first.map_or_else(String::new, |row| row.text("version").to_owned());
        self.missing.clear();
        self.console = Some(console);
        Ok(())
    }

    /// Reads all tables, after connecting again if that is necessary.
    ///
    /// # Errors
    /// When there is no connection, or what answers is no console.
    pub(super) fn take(&mut self, connections: bool) -> Result<Sample, ConsoleError> {
        let taken = self.try_to_take(connections);
        if taken.is_err() {
            self.console = None;
        }
        taken
    }

    fn try_to_take(&mut self, connections: bool) -> Result<Sample, ConsoleError> {
        if self.console.is_none() {
            self.connect()?;
        }
        let mut sample = Sample {
            at: self.clock.now().0,
            version: self.version.clone(),
            ..Sample::default()
        };
        let Some(console) = &mut self.console else {
            return Ok(sample);
        };
        let more = if connections { &CONNECTIONS[..] } else { &[] };
        for name in ALWAYS.iter().chain(more) {
            if self.missing.contains(name) {
                continue;
            }
            match console.table(&format!("SHOW {name}")) {
                Ok(table) => drop(sample.tables.insert(name, table)),
                // Every console has this table.
                Err(error) if *name == "POOLS" => return Err(error),
                Err(ConsoleError::Refused(_)) => drop(self.missing.insert(name)),
                Err(error) => return Err(error),
            }
        }
        Ok(sample)
    }

    /// Gives KILL_CLIENT, and returns the outcome in words.
    fn kill(&mut self, client: u64) -> String {
        let command = format!("KILL_CLIENT {client}");
        let Some(console) = &mut self.console else {
            return format!("{command}: there is no connection");
        };
        match console.table(&command) {
            Ok(_) => format!("{command}: done"),
            Err(error) => format!("{command}: {error}"),
        }
    }

    /// Takes samples until the receiver is dropped. A request is followed by a sample at once.
    pub(super) fn run<T>(
        mut self,
        mut options: SamplingOptions,
        requests: &Receiver<SamplerRequest>,
        answers: &Sender<T>,
        wrap: impl Fn(SamplerReply) -> T,
    ) {
        loop {
            let taken = self.take(options.connections);
            if answers.send(wrap(SamplerReply::Sample(taken))).is_err() {
                return;
            }
            match requests.recv_timeout(options.interval) {
                Ok(SamplerRequest::Options(next)) => options = next,
                Ok(SamplerRequest::Kill(client)) => {
                    let outcome = self.kill(client);
                    if answers
                        .send(wrap(SamplerReply::CommandResult(outcome)))
                        .is_err()
                    {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
