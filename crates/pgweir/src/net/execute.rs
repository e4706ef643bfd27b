//! Carries out the actions of the core.

use std::mem;

use pgweir_core::{Action, Actions, Source, Token, mail::Mail};

use super::{
    WorkerMessage,
    io::{Io, Pending},
    send::PIECES_MAX,
};
use crate::{
    control::{Overloaded, Request},
    takeover::Outgoing,
};

/// The scratch space is freed after use if it has more than this many bytes.
const SCRATCH_KEPT: usize = 64 * 1024;

/// The place of a piece of a write.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    scratch: bool,
    start: usize,
    end: usize,
}

/// Consecutive sends to one connection, which are written at once.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    to: Option<Token>,
    pieces: [Piece; PIECES_MAX],
    count: usize,
}

impl Io {
    /// Executes the actions in order, and empties them.
    pub(super) fn execute(&mut self, actions: &mut Actions, input: &[u8]) {
        for action in actions.list.drain(..) {
            match action {
                Action::Send { to, source } => {
                    if !self.turn.gathered.takes(to) {
                        self.write_gathered(input, &actions.scratch);
                    }
                    self.turn.gathered.add(to, &source);
                }
                // These two actions need no bytes, so the collected sends can wait.
                Action::Read { conn, mode } => self.set_mode(conn, mode),
                Action::Log(line) => self.log.line(self.now, &line),
                action => {
                    self.write_gathered(input, &actions.scratch);
                    self.execute_rare(action);
                }
            }
        }
        self.write_gathered(input, &actions.scratch);
        actions.scratch.clear();
        if actions.scratch.capacity() > SCRATCH_KEPT {
            actions.scratch = Vec::new();
        }
    }

    fn write_gathered(&mut self, input: &[u8], scratch: &[u8]) {
        let gathered = &mut self.turn.gathered;
        let count = mem::take(&mut gathered.count);
        let Some(to) = gathered.to.take().filter(|_| count > 0) else {
            return;
        };
        let slice = |piece: Piece| {
            let bytes = if piece.scratch { scratch } else { input };
            let found = bytes.get(piece.start..piece.end);
            debug_assert!(found.is_some(), "a range outside of its bytes");
            found.unwrap_or_default()
        };
        match gathered.pieces[..count] {
            [piece] => self.write(to, &[slice(piece)]),
            ref pieces => {
                let mut slices = [[].as_slice(); PIECES_MAX];
                for (to, piece) in slices.iter_mut().zip(pieces) {
                    *to = slice(*piece);
                }
                self.write(to, &slices[..count]);
            }
        }
    }

    fn execute_rare(&mut self, action: Action) {
        match action {
            Action::Freeze(conn) => self.set_frozen(conn, true),
            Action::Thaw(conn) => self.set_frozen(conn, false),
            Action::LoggedIn(conn) => self.end_login(conn),
            Action::Accept(accept) => self.set_accepting(accept),
            Action::Peek(conn) => self.pending.push_back(Pending::Peek(conn)),
            Action::Connect { conn, endpoint } => self.connect(conn, endpoint),
            Action::StartTls { conn, role } => self.start_tls(conn, *role),
            Action::Close(conn) => self.close(conn),
            Action::CloseServer { conn, pool } => self.close_and_report(conn, Some(pool)),
            Action::Derive { conn, job } => {
                if let Err(Overloaded) = self.threads.slow_work.deriver.submit(self.id, conn, *job)
                {
                    self.pending.push_back(Pending::Underived(conn));
                }
            }
            Action::CheckAuth { conn, auth_check } => {
                if let Err(Overloaded) =
                    self.threads
                        .slow_work
                        .auth_checker
                        .submit(self.id, conn, *auth_check)
                {
                    self.pending.push_back(Pending::Unanswered(conn));
                }
            }
            Action::Evaluate(evaluation) => {
                if let Err(evaluation) =
                    self.threads.slow_work.evaluator.submit(self.id, evaluation)
                {
                    let evaluated = Box::new(evaluation.give_up());
                    let mail = Mail::CatalogEvaluated(evaluated);
                    self.pending.push_back(Pending::Mail(mail));
                }
            }
            Action::HandOverClient {
                conn,
                record,
                server,
            } => self.depart(conn, record, server.map(|server| *server)),
            Action::ForwardToNewProcess { key, note } => {
                // The receiver lives as long as the process.
                let _ = self
                    .threads
                    .departures
                    .send(Outgoing::Listening(*key, *note));
            }
            Action::AwaitReturns => {
                let _ = self.threads.departures.send(Outgoing::NoMore(self.id));
            }
            Action::MoveServer { conn, to, server } => self.hand_over(conn, to, server),
            Action::MoveClient { conn, to, client } => self.move_client(conn, to, client),
            Action::Mail { to, mail } if to == self.id => {
                self.pending.push_back(Pending::Mail(*mail))
            }
            Action::Mail { to, mail } => {
                self.threads.mailboxes.send(to, WorkerMessage::Mail(*mail))
            }
            Action::MailAfterPending { to, mail } => self.turn.once_read.push((to, *mail)),
            Action::Export(trace) => self.threads.traces.push(trace),
            Action::Control(control) => self.ask(Request::Core(*control)),
            Action::WriteLog => self.log.flush(),
            Action::Finished => self.finished = true,
            Action::Send { .. } | Action::Read { .. } | Action::Log(_) => {}
        }
    }

    fn ask(&mut self, request: Request) {
        // The control thread outlives the workers. If the control thread is gone, the process is about to end.
        let _ = self.threads.control.send(request);
    }
}

impl Gathered {
    /// Returns whether a send to this connection can join the collected sends.
    fn takes(&self, to: Token) -> bool {
        self.to == Some(to) && self.count < PIECES_MAX
    }

    fn add(&mut self, to: Token, source: &Source) {
        let (scratch, range) = match source {
            Source::Input(range) => (false, range),
            Source::Scratch(range) => (true, range),
        };
        if range.is_empty() {
            return;
        }
        self.to = Some(to);
        if let Some(last) = self
            .count
            .checked_sub(1)
            .and_then(|last| self.pieces.get_mut(last))
            && last.scratch == scratch
            && last.end == range.start
        {
            last.end = range.end;
            return;
        }
        self.pieces[self.count] = Piece {
            scratch,
            start: range.start,
            end: range.end,
        };
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ranges_become_one_piece() {
        let to = Token {
            slot: 0,
            generation: 0,
        };
        let mut gathered = Gathered::default();
        for source in [
            Source::Input(0..3),
            Source::Input(3..9),
            Source::Scratch(0..0),
            Source::Scratch(9..10),
            Source::Input(10..11),
        ] {
            gathered.add(to, &source);
        }
        let pieces: Vec<_> = gathered.pieces[..gathered.count]
            .iter()
            .map(|piece| (piece.scratch, piece.start, piece.end))
            .collect();
        assert_eq!(pieces, [(false, 0, 9), (true, 9, 10), (false, 10, 11)]);
    }
}
