//! A console command visits each worker.

use super::show;
use crate::{
    Action, Actions, Time, Token, WorkerId,
    console::{Errand, Tour},
    fault::Fault,
    mail::Mail,
    worker::Worker,
};

impl Worker {
    /// Sends a command of this worker's console around. The console is busy until it is answered.
    pub(crate) fn begin_tour(
        &mut self,
        console: Token,
        errand: Errand,
        now: Time,
        out: &mut Actions,
    ) {
        if let Some(console) = self.console(console) {
            console.begin();
        }
        let tour = Tour {
            origin: self.id,
            console,
            visited: 0,
            errand,
        };
        self.visit(tour, now, out);
    }

    /// Does this worker's part, and passes the tour on.
    pub(crate) fn visit(&mut self, mut tour: Tour, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        if tour.visited < workers {
            tour.visited += 1;
            match &mut tour.errand {
                Errand::Show(collection) => show::add(self, collection, now),
                Errand::Settle(_) | Errand::Obey(_) => self.obey(now, out),
                Errand::Kill(database) => self.kill(database.as_deref(), now, out),
                Errand::KillClient { id, found } => {
                    *found = *found || self.kill_client(*id, now, out);
                }
            }
        }
        let to = if tour.visited < workers {
            WorkerId(((self.id.index() + 1) % workers) as u8)
        } else {
            tour.origin
        };
        if tour.visited < workers || to != self.id {
            return out.list.push(Action::Mail {
                to,
                mail: Mail::Tour(Box::new(tour)),
            });
        }
        self.end_tour(tour, now, out);
    }

    fn end_tour(&mut self, tour: Tour, now: Time, out: &mut Actions) {
        let console = tour.console;
        match tour.errand {
            Errand::Show(collection) => {
                let (columns, rows) = show::table(self, *collection, now);
                self.answer_table(console, &columns, &rows, now, out);
            }
            Errand::Settle(tag) => self.answer(console, Ok(&tag), now, out),
            Errand::Obey(what) => self.console_awaits(console, what, now, out),
            Errand::Kill(_) => self.answer(console, Ok("KILL"), now, out),
            Errand::KillClient { found: true, .. } => {
                self.answer(console, Ok("KILL_CLIENT"), now, out);
            }
            Errand::KillClient { found: false, .. } => {
                let fault = Fault::Command("client not found".to_owned());
                self.answer(console, Err(&fault), now, out);
            }
        }
    }
}
