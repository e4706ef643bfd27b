//! The evaluation of the facts that a server has read from its catalog. Its time grows with the number of objects in the
//! database, up to seconds, so it does not run on the worker that took the rows.

use super::Reading;
use crate::session::{
    Certificates,
    certificates::{Facts, Identity},
};

/// The result of a reading. The default is that of a failed one.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The physical database.
    pub(super) identity: Option<Identity>,
    /// The certificates that follow from the facts.
    pub(super) certificates: Option<Certificates>,
    /// Whether the facts come from a standby.
    pub(super) is_of_standby: bool,
}

impl Findings {
    /// Takes the identity of the database from the facts, and evaluates nothing. `address` is the address of the server.
    #[must_use]
    pub(crate) fn identity(facts: &Facts, address: &str) -> Self {
        Self {
            identity: facts.identity(address).filter(|_| facts.is_whole()),
            ..Self::default()
        }
    }

    fn of(facts: Facts, address: &str) -> Self {
        if !facts.is_whole() {
            return Self::default();
        }
        Self {
            identity: facts.identity(address),
            is_of_standby: facts.are_of_standby(),
            certificates: Some(Certificates::from_facts(0, facts)),
        }
    }
}

/// The facts of one reading, which are still to be evaluated.
#[derive(Debug)]
pub struct Evaluation {
    /// The reading.
    pub reading: Reading,
    /// The facts.
    pub facts: Facts,
    /// The address of the server.
    pub address: String,
    /// The entry of `[databases]`, for the log.
    pub database: Box<str>,
}

impl Evaluation {
    /// Evaluates the facts.
    #[must_use]
    pub fn run(self) -> Evaluated {
        let mut findings = Findings::of(self.facts, &self.address);
        if let Some(certificates) = &mut findings.certificates {
            certificates.share_builtins(&self.reading.catalog().others.builtins);
        }
        Evaluated {
            reading: self.reading,
            findings,
            database: self.database,
        }
    }

    /// Gives up the evaluation, since too many others wait: the catalog is read again later.
    #[must_use]
    pub fn give_up(self) -> Evaluated {
        Evaluated {
            reading: self.reading,
            findings: Findings::default(),
            database: self.database,
        }
    }
}

/// A reading whose facts were evaluated.
#[derive(Debug)]
pub struct Evaluated {
    /// The reading.
    pub reading: Reading,
    /// The result.
    pub(crate) findings: Findings,
    /// The entry of `[databases]`, for the log.
    pub database: Box<str>,
}
