//! The requests of model clients.

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{Client, Pause, Phase, Unit, direct_session::Ask};
use crate::{checks::RequestId, network::End, postgres::is_refused};

/// The plan of a client for its next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The client sends any request.
    SendRequests,
    /// The client completes what it has begun, and disconnects.
    Disconnect,
}

impl Client {
    /// Returns whether the client can send something now.
    pub(crate) fn can_act(&self) -> bool {
        if self.phase != Phase::Ready || self.leaves.is_some() || self.output.len() > 50_000 {
            return false;
        }
        if self.is_wild() {
            return true;
        }
        if self.is_operator() {
            return self.can_order();
        }
        match &self.pause {
            Some(Pause::CopyIn { started, .. }) => *started,
            Some(Pause::Flush) => {
                let open = self.open.as_ref();
                self.units.is_empty() && open.is_none_or(|unit| unit.is_silent())
            }
            None => self.is_unsure || (self.units.len() < 3 && self.spare == 0),
        }
    }

    /// Sends the next message or request. `size` is about the largest result that the client asks for, in bytes.
    pub(crate) fn act(&mut self, intent: Intent, size: usize, rng: &mut fastrand::Rng) {
        if self.is_wild() {
            return self.run_wild(intent == Intent::Disconnect, rng);
        }
        if self.is_unsure || self.is_operator() {
            return self.send_terminate();
        }
        match self.pause.take() {
            // The server has already refused the COPY, so the client sends no data.
            Some(Pause::CopyIn { .. }) if self.units.front().is_some_and(|unit| unit.failed) => {}
            Some(pause @ Pause::CopyIn { .. }) => self.send_copy_data(pause, rng),
            Some(Pause::Flush) if intent == Intent::Disconnect => {
                if let Some(unit) = self.open.take() {
                    self.sync(unit);
                }
            }
            Some(Pause::Flush) => self.go_on_after_flush(rng),
            None if intent == Intent::Disconnect || self.requests_left == 0 => {
                self.disconnect_when_done(rng)
            }
            None if self.units.is_empty() => self.request(size, rng),
            // In a pipeline, the client sends nothing that depends on earlier answers.
            None if rng.u8(..3) == 0 => match rng.bool() {
                true => self.simple(&["rows 2 5"], rng.bool()),
                false if self.prepares && rng.bool() => self.prepared(rng),
                false => self.pipeline(size, rng),
            },
            None => {}
        }
    }

    /// Sends a part of a message, an invalid message, or only Terminate.
    pub(crate) fn leave_badly(&mut self, rng: &mut fastrand::Rng) {
        match rng.u8(..4) {
            0 => self.write(|writer| {
                writer.terminate();
            }),
            1 => self.output.extend(b"Q\0\0\x01\0a part of a mess"),
            2 => {
                self.misbehaved = true;
                self.output.extend(b"!\0\0\0\x08nono");
                return;
            }
            _ => {}
        }
        self.leaves = Some(End::Eof);
    }

    fn disconnect_when_done(&mut self, rng: &mut fastrand::Rng) {
        if !self.units.is_empty() {
            return;
        }
        match self.own.status {
            b'I' if rng.u8(..4) > 0 => self.send_terminate(),
            b'I' => self.leaves = Some(End::Eof),
            _ => self.simple(&[["commit", "rollback"][rng.usize(..2)]], true),
        }
    }

    fn send_terminate(&mut self) {
        self.write(|writer| {
            writer.terminate();
        });
        self.leaves = Some(End::Eof);
    }

    fn request(&mut self, size: usize, rng: &mut fastrand::Rng) {
        self.requests_left -= 1;
        if rng.u8(..40) == 0 {
            return self.leave_badly(rng);
        }
        let in_transaction = self.own.status != b'I';
        if self.prepares && rng.bool() {
            return match rng.u8(..6) {
                0 => self.transaction_by_name(rng),
                _ => self.prepared(rng),
            };
        }
        if self.works_on_session && rng.u8(..3) > 0 {
            return self.work_on_session(rng);
        }
        if in_transaction && rng.u8(..3) == 0 {
            return self.simple(&[["commit", "rollback"][rng.usize(..2)]], true);
        }
        let rows = format!("rows {} {}", rng.u32(..5), rng.usize(..=size));
        match rng.u8(..20) {
            0..=3 => self.simple(&[&rows], true),
            4 | 5 if !in_transaction => {
                self.began = true;
                self.simple(&["begin"], true);
            }
            4 | 5 => self.simple(&["rows 1 1", "notice"], true),
            6 => self.simple(&["fail"], true),
            7 => self.simple(&["notice", &rows], true),
            8 | 9 => self.set(rng),
            10 => self.simple(&["copyout 3 20"], true),
            11 | 12 => self.copy_in(rng),
            13 => self.flush(rng),
            14 | 15 => self.slow(rng.u32(1..100)),
            16 if rng.bool() => self.function_call(),
            16 if rng.u8(..3) == 0 => self.simple(&[], true),
            16 if rng.u8(..4) == 0 => {
                self.has_ended_server = true;
                self.simple(&["die"], true);
            }
            _ => self.pipeline(size, rng),
        }
    }

    pub(super) fn simple(&mut self, commands: &[&str], claims: bool) {
        let number = self.number();
        let text = self.text(number, commands, claims);
        self.write(|writer| {
            writer.query(text.as_bytes());
        });
        self.units.push_back(Unit::of(number, Ask::Query));
    }

    fn slow(&mut self, steps: u32) {
        self.simple(&[&format!("slow {steps}")], true);
        if let Some(unit) = self.units.back_mut() {
            unit.is_slow = true;
        }
    }

    fn set(&mut self, rng: &mut fastrand::Rng) {
        if self.keeps_session && self.own.status == b'I' && rng.bool() {
            let work_mem = format!("{}MB", rng.u8(5..200));
            // A client whose setting is refused may disconnect on a server without that setting.
            let claims = !is_refused(&self.work_mem);
            self.simple(&[&format!("set work_mem='{work_mem}'")], claims);
            if let Some(unit) = self.units.back_mut() {
                unit.work_mem = Some(work_mem);
            }
            return;
        }
        let name = format!(
            "set application_name='app-{}-{}'",
            self.index, self.next_number
        );
        match rng.u8(..3) {
            0 => self.simple(&[&name, "fail"], true),
            _ => self.simple(&[&name], true),
        }
    }

    /// Sends COPY FROM STDIN by either protocol; the client waits for the response or not.
    fn copy_in(&mut self, rng: &mut fastrand::Rng) {
        let command = ["copyin", "copyin", "copyin 1", "copyin 0"][rng.usize(..4)];
        let simple = rng.bool();
        let (number, unit) = if simple {
            let number = self.number();
            let text = self.text(number, &[command], true);
            self.write(|writer| {
                writer.query(text.as_bytes());
            });
            (number, Unit::of(number, Ask::Query))
        } else {
            let mut unit = Unit::default();
            let number = self.unnamed(&mut unit, command, true, false);
            self.execute_last(&mut unit);
            unit.ask(Ask::Sync);
            (number, unit)
        };
        let pause = Pause::CopyIn {
            number,
            simple,
            pieces: rng.u32(..5),
            completes: rng.u8(..4) > 0,
            started: false,
        };
        self.units.push_back(unit);
        if rng.bool() {
            // The client sends Sync at once, and again after the data, as libpq does.
            if !simple {
                self.write(|writer| {
                    writer.sync();
                });
            }
            self.pause = Some(pause);
        } else {
            self.send_copy_end(&pause, rng, false);
        }
    }

    fn send_copy_data(&mut self, pause: Pause, rng: &mut fastrand::Rng) {
        self.send_copy_end(&pause, rng, true);
    }

    fn send_copy_end(&mut self, pause: &Pause, rng: &mut fastrand::Rng, is_second_sync: bool) {
        let &Pause::CopyIn {
            number,
            simple,
            pieces,
            completes,
            ..
        } = pause
        else {
            return;
        };
        let id = self.id(number);
        for _ in 0..pieces {
            let size = rng.usize(..200);
            self.write(|writer| {
                writer.message(frontend::COPY_DATA, |body| {
                    body.extend_from_slice(format!("{id}|{}", "x".repeat(size)).as_bytes());
                });
            });
        }
        self.write(|writer| {
            if completes {
                writer.message(frontend::COPY_DONE, |_| {});
            } else {
                writer.copy_fail(&format!("{id} no more"));
            }
            if !simple {
                writer.sync();
            }
        });
        if is_second_sync && !simple {
            // After an error, the server may have answered the first Sync, too.
            self.spare += 1;
        }
    }

    fn function_call(&mut self) {
        let number = self.number();
        let id = self.id(number).to_string();
        self.write(|writer| {
            writer.message(frontend::FUNCTION_CALL, |body| {
                body.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
                body.extend_from_slice(&(id.len() as u32).to_be_bytes());
                body.extend_from_slice(id.as_bytes());
                body.extend_from_slice(&[0, 0]);
            });
        });
        self.units.push_back(Unit::of(number, Ask::Call));
    }

    /// Returns the text of a query, with the session settings that the client expects, if they are certain.
    pub(super) fn text(&self, number: u32, commands: &[&str], claims: bool) -> String {
        let mut text = format!("/*{}", self.id(number));
        if claims && self.units.is_empty() && self.open.is_none() {
            if let Some(name) = self.parameters.get("application_name") {
                text.push_str(&format!(" a={name}"));
            }
            if self.keeps_session && !self.works_on_session {
                text.push_str(&format!(" w={}", self.work_mem));
            }
        }
        text.push_str("*/");
        let commands: Vec<String> = commands.iter().map(|own| self.spell(own)).collect();
        text.push_str(&commands.join(";"));
        text
    }

    /// Returns a command of this world, or the same as a call of a certified function in worlds that have them.
    fn spell(&self, command: &str) -> String {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "rows" | "slow" | "fail" if self.is_analysable => {
                format!("select {word}({})", rest.replace(' ', ", "))
            }
            _ => command.to_owned(),
        }
    }

    pub(super) fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn id(&self, number: u32) -> RequestId {
        RequestId {
            client: self.index,
            number,
        }
    }

    pub(super) fn write(&mut self, make: impl FnOnce(&mut MessageWriter<'_>)) {
        let mut bytes = Vec::new();
        make(&mut MessageWriter::new(&mut bytes));
        self.output.extend(bytes);
    }
}

impl Unit {
    fn of(number: u32, ask: Ask) -> Self {
        Self {
            numbers: vec![number],
            asks: [ask].into(),
            ..Self::default()
        }
    }

    /// Adds a message that will be answered.
    pub(super) fn ask(&mut self, ask: Ask) {
        if !self.failed || ask.is_last() {
            self.asks.push_back(ask);
        }
    }

    /// Notes that no more replies will come to the messages that were sent so far.
    fn is_silent(&self) -> bool {
        self.failed || self.asks.is_empty()
    }
}
