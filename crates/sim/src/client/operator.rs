//! Clients of the console.

use std::collections::VecDeque;

use pgweir_wire::{Report, tag::backend};

use super::{Client, Phase};
use crate::{checks::Violation, scenario::ADMIN};

/// A command for the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    Show(&'static str),
    Reload,
    Set(&'static str, u32),
}

/// The state of a console client.
#[derive(Debug, Default)]
pub(crate) struct ConsoleState {
    /// The command that awaits an answer.
    pending: Option<Order>,
    progress: Progress,
    /// The answered commands since the last call of `done_orders`, and whether each succeeded.
    done: VecDeque<(Order, bool)>,
}

/// The part of an answer that has arrived.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Progress {
    #[default]
    Nothing,
    Columns,
    Complete,
    Failed,
}

impl Order {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Show(what) => format!("SHOW {what}"),
            Self::Reload => "RELOAD".to_owned(),
            Self::Set(key, value) => format!("SET {key} = {value}"),
        }
    }

    /// Returns whether `stats_users` may run the command, too.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self, Self::Show(_))
    }

    /// Returns the tag of CommandComplete.
    fn tag(&self) -> String {
        match self {
            Self::Set(key, value) => format!("SET {key}={value}"),
            _ => {
                let text = self.text();
                text.split(' ').next().unwrap_or_default().to_owned()
            }
        }
    }
}

impl Client {
    /// Makes the client a client of the console.
    pub(crate) fn becomes_operator(&mut self, rng: &mut fastrand::Rng) {
        self.console = Some(Box::default());
        self.output.clear();
        self.login.at_console(rng);
        self.login.begin(&mut self.output);
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.console.is_some()
    }

    /// Returns whether the client's user is one of `admin_users`.
    pub(crate) fn is_admin(&self) -> bool {
        self.login.user() == ADMIN
    }

    /// Returns whether the client awaits no answer.
    pub(crate) fn can_order(&self) -> bool {
        let at_rest = self.phase == Phase::Ready && self.leaves.is_none();
        at_rest
            && self
                .console
                .as_ref()
                .is_some_and(|console| console.pending.is_none())
    }

    pub(crate) fn order(&mut self, order: Order) {
        let text = order.text();
        self.write(|writer| {
            writer.query(text.as_bytes());
        });
        if let Some(console) = &mut self.console {
            console.pending = Some(order);
            console.progress = Progress::Nothing;
        }
    }

    /// Returns the commands that were answered since the last call.
    pub(crate) fn done_orders(&mut self) -> VecDeque<(Order, bool)> {
        let console = self.console.as_mut();
        console
            .map(|console| std::mem::take(&mut console.done))
            .unwrap_or_default()
    }

    /// Handles a message of the console.
    pub(super) fn console_message(&mut self, tag: u8, body: &[u8]) -> Result<(), Violation> {
        let Some(console) = &mut self.console else {
            return Ok(());
        };
        let Some(order) = &console.pending else {
            return Err(self.wrong(format!("hears '{}' unasked", tag.escape_ascii())));
        };
        let next = match (console.progress, tag) {
            (Progress::Nothing, backend::ROW_DESCRIPTION) => Some(Progress::Columns),
            (Progress::Columns, backend::DATA_ROW) => Some(Progress::Columns),
            (Progress::Nothing, backend::NOTICE_RESPONSE) => Some(Progress::Nothing),
            (Progress::Nothing | Progress::Columns, backend::COMMAND_COMPLETE) => {
                let good = body.strip_suffix(b"\0") == Some(order.tag().as_bytes());
                good.then_some(Progress::Complete)
            }
            (Progress::Nothing, backend::ERROR_RESPONSE) => {
                let report = Report::parse(body).unwrap_or_default();
                (report.severity == b"ERROR").then_some(Progress::Failed)
            }
            (Progress::Complete | Progress::Failed, backend::READY_FOR_QUERY) => {
                let ok = console.progress == Progress::Complete;
                console
                    .done
                    .extend(console.pending.take().map(|order| (order, ok)));
                self.answers += 1;
                return Ok(());
            }
            _ => None,
        };
        let Some(next) = next else {
            let what = format!(
                "hears '{}' \"{}\" in answer to {order:?}",
                tag.escape_ascii(),
                body[..body.len().min(120)].escape_ascii()
            );
            return Err(self.wrong(what));
        };
        console.progress = next;
        Ok(())
    }
}
