//! The round of a console command: visits each worker, and returns to the console's worker with the result.

use super::{Admin, show};
use crate::{
    Action, Actions, Token, WorkerId,
    base::fault::Fault,
    console::{RoundTask, WorkerRound},
    effect::{ConsoleEffect, Effect},
    mail::Mail,
    operators::orders,
};

impl Admin<'_> {
    /// Sends a command of this worker's console to all workers. The console is busy until the command is answered.
    pub(crate) fn begin_round(&mut self, console: Token, task: RoundTask, out: &mut Actions) {
        if let Some(console) = self.console(console) {
            console.begin();
        }
        let round = WorkerRound {
            origin: self.env.worker,
            console,
            visited: 0,
            task,
        };
        self.continue_round(round, out);
    }

    /// Does this worker's part of a round. The round goes to the next worker after its effects on this one were carried
    /// out.
    pub(crate) fn continue_round(&mut self, mut round: WorkerRound, out: &mut Actions) {
        if round.visited == 0 && !self.env.directory.worker_loads().begin_round() {
            // A client is on its way between two workers. The round must not miss it, so it waits for the arrival.
            let (to, mail) = (
                self.env.worker,
                Box::new(Mail::ConsoleRound(Box::new(round))),
            );
            return out.list.push(Action::MailAfterPending { to, mail });
        }
        if round.visited < self.env.directory.workers() {
            round.visited += 1;
            match &mut round.task {
                RoundTask::Show(collection) => show::add(self, collection, self.env.now),
                RoundTask::Settle(_) | RoundTask::ApplyOrders(_) => self.apply_orders(out),
                RoundTask::Kill(database) => {
                    let (env, connections, database) =
                        (&self.env, &mut *self.connections, database.as_deref());
                    let effects = orders::kill(env, connections, self.pools, database, out);
                    self.effects.extend(effects);
                }
                RoundTask::KillClient { id, found } => {
                    let effects = orders::kill_client(self.connections, *id);
                    *found |= !effects.is_empty();
                    self.effects.extend(effects);
                }
            }
        }
        let effect = ConsoleEffect::PassOn(Box::new(round));
        self.effects.push(Effect::Console(effect));
    }

    /// Applies the operators' orders to this worker, after they have changed.
    pub(crate) fn apply_orders(&mut self, out: &mut Actions) {
        let (env, connections) = (&self.env, &mut *self.connections);
        let effects = orders::apply(env, connections, self.pools, self.suspension, out);
        self.effects.extend(effects);
    }

    /// Passes a round on to the next worker, or ends it at the worker of its console.
    pub(super) fn pass_on(&mut self, round: WorkerRound, out: &mut Actions) {
        let (worker, workers) = (self.env.worker, self.env.directory.workers());
        let to = if round.visited < workers {
            WorkerId(((worker.index() + 1) % workers) as u8)
        } else {
            round.origin
        };
        if round.visited < workers || to != worker {
            return out.mail(to, Mail::ConsoleRound(Box::new(round)));
        }
        self.env.directory.worker_loads().end_round();
        self.end_round(round, out);
    }

    fn end_round(&mut self, round: WorkerRound, out: &mut Actions) {
        let console = round.console;
        match round.task {
            RoundTask::Show(collection) => {
                let (columns, rows) = show::table(self, *collection, self.env.now);
                self.answer_table(console, &columns, &rows, out);
            }
            RoundTask::Settle(tag) => self.answer(console, Ok(&tag), out),
            RoundTask::ApplyOrders(what) => self.wait_for(console, what, out),
            RoundTask::Kill(_) => self.answer(console, Ok("KILL"), out),
            RoundTask::KillClient { id, found: true } => {
                self.audit_command(console, kill_client(id), "", None, out);
                self.answer(console, Ok("KILL_CLIENT"), out);
            }
            RoundTask::KillClient { id, found: false } => {
                let fault = Fault::Command("client not found".to_owned());
                self.audit_command(console, kill_client(id), "", Some(&fault), out);
                self.answer(console, Err(&fault), out);
            }
        }
    }
}

/// Returns the command KILL_CLIENT as the log shows it.
fn kill_client(id: u64) -> String {
    format!("KILL_CLIENT {id}")
}
