//! Startup values of the client that its texts take away, and how they come back.

use pgweir_wire::tag::{backend, frontend};

use super::Replies;
use crate::{
    backend::{MarkKind, Request},
    session::Insertions,
};

/// How far a text has come that takes startup values away, in a request that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// It was sent.
    #[default]
    Said,
    /// And something was executed, which may have been it.
    Executed,
    /// Whether it was is known when what comes behind it is taken up.
    Fenced,
    /// What was taken away is back.
    Restored,
}

impl Replies {
    /// Are startup values of the client not there, or about to go?
    #[must_use]
    #[inline]
    pub fn is_restoring(&self) -> bool {
        !self.restoring.is_over()
    }

    /// A message of the client comes in a request that takes startup values away. `true` if that may have
    /// been executed, and they are to come back first.
    pub fn comes_behind_reset(&mut self, tag: u8) -> bool {
        let is_due = matches!(self.reset, Reset::Executed | Reset::Fenced) && !self.skipping;
        match tag {
            frontend::EXECUTE if self.restoring.has_begun() && self.reset == Reset::Said => {
                self.reset = Reset::Executed;
                false
            }
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::QUERY
            | frontend::FUNCTION_CALL => is_due,
            _ => false,
        }
    }

    /// It has come so far.
    pub fn set_reset(&mut self, reset: Reset) {
        self.reset = reset;
    }

    /// How far has it come?
    #[must_use]
    pub fn reset(&self) -> Reset {
        self.reset
    }

    /// They are back.
    pub fn startup_values_restored(&mut self) {
        self.restoring.forget_begun();
    }

    /// The client's next messages wait: startup values that an earlier request has taken away come
    /// back first. COPY data belongs to that request.
    #[must_use]
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.restoring.is_pending() && !self.copy_in
    }

    /// A text goes to the server that takes startup values away.
    pub fn startup_values_taken(&mut self) {
        self.restoring.begin();
        self.reset = Reset::Said;
    }

    /// Notes a Query of the client that goes to the server with these statements of ours in its text.
    pub fn inserted_sent(&mut self, insertions: Insertions) {
        self.client_sent(frontend::QUERY);
        if let Some(sent) = self.requests.back_mut()
            && sent.request == Request::Simple
        {
            sent.is_inserted = true;
            self.insertions.push_back(Box::new(insertions));
        }
    }

    /// Those of the request whose replies arrive now.
    #[must_use]
    pub fn insertions(&self) -> Option<&Insertions> {
        let is_in_front = self.front().restores && self.front_mark().is_none();
        self.insertions
            .front()
            .filter(|_| is_in_front)
            .map(|own| &**own)
    }

    /// A message of the server with this tag: `true` if it answers what brings startup values back.
    #[cold]
    pub fn restores(&mut self, tag: u8) -> bool {
        let end = self.present_marks_end();
        let Some(mark) = self.marks.front_mut(end) else {
            let is_inserted = self.requests.front().is_some_and(|sent| sent.is_inserted);
            let insertions = self.insertions.front_mut().filter(|_| is_inserted);
            return insertions.is_some_and(|insertions| insertions.take(tag));
        };
        let MarkKind::Restore(ends) = &mut mark.kind else {
            return false;
        };
        match (*ends, tag) {
            (0, backend::PARSE_COMPLETE) | (1, backend::CLOSE_COMPLETE) => *ends += 1,
            (0, _) => return false,
            (2, backend::CLOSE_COMPLETE) => drop(self.take_front_mark()),
            _ => {}
        }
        true
    }
}
