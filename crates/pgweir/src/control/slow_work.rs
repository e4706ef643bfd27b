//! The threads for work that would hold up an event loop.

use std::io;

use pgweir_config::Settings;
use pgweir_core::shared::occupancy::Occupancies;

use super::{auth_check::AuthChecker, derive::Deriver, evaluate::Evaluator};
use crate::net::Mailboxes;

/// Accepts slow work of every kind. The results are sent to the worker's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct SlowWork {
    pub(crate) deriver: Deriver,
    pub(crate) auth_checker: AuthChecker,
    pub(crate) evaluator: Evaluator,
}

impl SlowWork {
    /// Starts the threads of each kind, which end when the last `SlowWork` is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        settings: &Settings,
        mailboxes: &Mailboxes,
        occupancies: &Occupancies,
    ) -> io::Result<Self> {
        Ok(Self {
            deriver: Deriver::start(settings, mailboxes, &occupancies.keys)?,
            auth_checker: AuthChecker::start(settings, mailboxes, &occupancies.inquiries)?,
            evaluator: Evaluator::start(mailboxes, &occupancies.catalogs)?,
        })
    }
}
