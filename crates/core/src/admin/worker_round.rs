//! The round of a console command: visits each worker, and comes back to the console's worker with the result.

use super::show;
use crate::{
    Action, Actions, Time, Token, WorkerId,
    console::{RoundTask, WorkerRound},
    fault::Fault,
    mail::Mail,
    operator_orders,
    worker::{Parts, Worker},
};

impl Worker {
    /// Sends a command of this worker's console to all workers. The console is busy until the command is answered.
    pub(crate) fn begin_round(
        &mut self,
        console: Token,
        errand: RoundTask,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(console) = self.console(console) {
            console.begin();
        }
        let round = WorkerRound {
            origin: self.id,
            console,
            visited: 0,
            task: errand,
        };
        self.continue_round(round, now, out);
    }

    /// Does this worker's part, and passes the round on.
    pub(crate) fn continue_round(&mut self, mut round: WorkerRound, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        if round.visited < workers {
            round.visited += 1;
            match &mut round.task {
                RoundTask::Show(collection) => show::add(self, collection, now),
                RoundTask::Settle(_) | RoundTask::ApplyOrders(_) => {
                    self.apply_operator_orders(now, out);
                }
                RoundTask::Kill(database) => self.dispatch(now, out, |parts, out| {
                    let Parts {
                        env,
                        connections,
                        pools,
                        ..
                    } = parts;
                    operator_orders::kill(&env, connections, pools, database.as_deref(), out)
                }),
                RoundTask::KillClient { id, found } => {
                    let effects = operator_orders::kill_client(&mut self.table, *id);
                    *found |= !effects.is_empty();
                    self.carry_out(effects, now, out);
                }
            }
        }
        let to = if round.visited < workers {
            WorkerId(((self.id.index() + 1) % workers) as u8)
        } else {
            round.origin
        };
        if round.visited < workers || to != self.id {
            return out.list.push(Action::Mail {
                to,
                mail: Mail::ConsoleRound(Box::new(round)),
            });
        }
        self.end_round(round, now, out);
    }

    fn end_round(&mut self, round: WorkerRound, now: Time, out: &mut Actions) {
        let console = round.console;
        match round.task {
            RoundTask::Show(collection) => {
                let (columns, rows) = show::table(self, *collection, now);
                self.answer_table(console, &columns, &rows, now, out);
            }
            RoundTask::Settle(tag) => self.answer(console, Ok(&tag), now, out),
            RoundTask::ApplyOrders(what) => self.console_awaits(console, what, now, out),
            RoundTask::Kill(_) => self.answer(console, Ok("KILL"), now, out),
            RoundTask::KillClient { id, found: true } => {
                self.audit_command(console, kill_client(id), "", None, now, out);
                self.answer(console, Ok("KILL_CLIENT"), now, out);
            }
            RoundTask::KillClient { id, found: false } => {
                let fault = Fault::Command("client not found".to_owned());
                self.audit_command(console, kill_client(id), "", Some(&fault), now, out);
                self.answer(console, Err(&fault), now, out);
            }
        }
    }
}

/// Returns the command as the log shows it.
fn kill_client(id: u64) -> String {
    format!("KILL_CLIENT {id}")
}
