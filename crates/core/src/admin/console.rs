//! Reads the messages of a console client and answers them. Input: steps of the console's
//! conversation. Output: tables, errors, commands that visit all workers (rounds), and work for the
//! control thread.

use super::Admin;
use crate::{
    Actions, Control, Level, ReadMode, Token,
    admin::show,
    base::fault::Fault,
    console::{
        Cell, Collection, Column, Console, KnownNames, RoundTask, Show, Source, Step, write_done,
        write_fault, write_ready, write_table,
    },
    effect::{ClientEffect, Effect},
    mail::Note,
};
use pgweir_wire::{MessageWriter, sqlstate};

impl Admin<'_> {
    /// Serves a client that has logged in to the console. `early` arrived together with the end of its login.
    pub(super) fn serve(&mut self, conn: Token, early: &[u8], out: &mut Actions) {
        self.statistics.count_console().client_login_count += 1;
        if !early.is_empty() {
            self.bytes(conn, early, out);
        }
    }

    /// Takes bytes of a console client.
    pub(crate) fn bytes(&mut self, conn: Token, bytes: &[u8], out: &mut Actions) {
        if let Some(console) = self.console(conn) {
            console.push(bytes);
        }
        self.read_commands(conn, out);
    }

    /// Goes on when the client has read a long answer.
    pub(crate) fn drained(&mut self, conn: Token, out: &mut Actions) {
        if self.console(conn).is_some_and(|console| !console.is_busy()) {
            self.read_commands(conn, out);
        }
    }

    pub(super) fn console(&mut self, conn: Token) -> Option<&mut Console> {
        self.connections.client(conn)?.console_mut()
    }

    pub(super) fn read_commands(&mut self, conn: Token, out: &mut Actions) {
        loop {
            let is_blocked = self
                .connections
                .client(conn)
                .is_some_and(|client| client.socket.is_blocked());
            let Some(console) = self.console(conn) else {
                return;
            };
            if is_blocked {
                return out.read(conn, ReadMode::Hold);
            }
            let mut step = Step::Hold;
            out.send_made(conn, |reply| step = console.next(reply));
            if step.is_of_command() {
                let counted = self.statistics.count_console();
                counted.query_count += 1;
                counted.xact_count += 1;
            }
            match step {
                Step::Read => return out.read(conn, ReadMode::Deliver),
                Step::Hold => return out.read(conn, ReadMode::Hold),
                Step::Pass | Step::Answered => {}
                Step::Failed(fault) => out.log(Level::Error, "", fault.to_string()),
                Step::Leave => {
                    let effect =
                        Effect::Client(ClientEffect::Dismiss(conn, "client close request"));
                    return self.effects.push(effect);
                }
                Step::Refuse(fault) => {
                    return self
                        .effects
                        .push(Effect::Client(ClientEffect::Refuse(conn, Box::new(fault))));
                }
                Step::Show(show) => self.show(conn, show, out),
                Step::Run(command) => self.run(conn, command, out),
            }
            if !self.effects.is_empty() {
                // The next command finds the changes that this one has made.
                return self.go_on(conn);
            }
        }
    }

    fn show(&mut self, conn: Token, show: Show, out: &mut Actions) {
        let collection = Collection::new(show, self.env.now);
        match show.source() {
            Source::Here => {
                let (columns, rows) = show::table(self, collection, self.env.now);
                out.send_made(conn, |bytes| {
                    write_table(&columns, &rows, bytes);
                    write_ready(bytes);
                });
            }
            Source::Workers => {
                self.begin_round(conn, RoundTask::Show(Box::new(collection)), out);
            }
            Source::Names => {
                if let Some(console) = self.console(conn) {
                    console.want_names(show);
                }
                let worker = self.env.worker;
                let asked = Control::Names {
                    worker,
                    console: conn,
                };
                out.control(asked);
            }
        }
    }

    /// Begins the SHOW that needed these host names.
    pub(crate) fn names_known(&mut self, conn: Token, names: KnownNames, out: &mut Actions) {
        let wants = self.console(conn).and_then(Console::take_wanted);
        if let Some(show) = wants {
            let mut collection = Collection::new(show, self.env.now);
            collection.names = names;
            self.begin_round(conn, RoundTask::Show(Box::new(collection)), out);
        }
    }

    /// Lets the console wait for the control thread, until [`Admin::configured`].
    pub(super) fn await_control(&mut self, conn: Token, tag: String) {
        if let Some(console) = self.console(conn) {
            console.await_control(tag);
        }
    }

    /// Handles the outcome of a RELOAD or SET that this console asked for. The command is answered when all workers
    /// have read their earlier mail.
    pub(crate) fn configured(
        &mut self,
        conn: Token,
        outcome: Result<Option<Note>, Fault>,
        out: &mut Actions,
    ) {
        let Some(console) = self.console(conn) else {
            return;
        };
        let tag = console.take_tag();
        self.audit_command(conn, tag.clone(), "", outcome.as_ref().err(), out);
        match outcome {
            Ok(note) => {
                if let Some(Note { text, detail }) = note {
                    out.send_made(conn, |bytes| {
                        let code = sqlstate::SUCCESSFUL_COMPLETION;
                        MessageWriter::new(bytes).notice_with_detail(code, text, &detail);
                    });
                }
                self.begin_round(conn, RoundTask::Settle(tag), out);
            }
            Err(fault) => self.answer(conn, Err(&fault), out),
        }
    }

    /// Answers a command that was not answered at once.
    pub(super) fn answer(&mut self, conn: Token, outcome: Result<&str, &Fault>, out: &mut Actions) {
        let Some(console) = self.console(conn) else {
            return;
        };
        console.finish();
        match outcome {
            Ok(tag) => out.send_made(conn, |bytes| write_done(tag, bytes)),
            Err(fault) => self.fail(conn, fault, out),
        }
        self.go_on(conn);
    }

    pub(super) fn fail(&self, conn: Token, fault: &Fault, out: &mut Actions) {
        out.log(Level::Error, "", fault.to_string());
        out.send_made(conn, |bytes| {
            write_fault(fault, bytes);
        });
    }

    /// Answers a console's command with a table.
    pub(super) fn answer_table(
        &mut self,
        conn: Token,
        columns: &[Column],
        rows: &[Vec<Cell>],
        out: &mut Actions,
    ) {
        let Some(console) = self.console(conn) else {
            return;
        };
        console.finish();
        out.send_made(conn, |bytes| {
            write_table(columns, rows, bytes);
            write_ready(bytes);
        });
        self.go_on(conn);
    }
}
