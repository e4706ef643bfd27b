//! What model clients ask for.

use pgweir_wire::{MessageWriter, tag::frontend};

use super::{Client, Pause, Phase, Unit};
use crate::{checks::RequestId, network::End};

/// How a client goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It does as it likes.
    Free,
    /// It ends what it has begun, and leaves.
    GoingHome,
}

impl Client {
    /// Is there something that it could do, and not only wait for?
    pub(crate) fn can_act(&self) -> bool {
        if self.phase != Phase::Ready || self.leaves.is_some() || self.output.len() > 50_000 {
            return false;
        }
        match &self.pause {
            Some(Pause::CopyIn { started, .. }) => *started,
            Some(Pause::Flush { awaited, .. }) => *awaited == 0 && self.units.is_empty(),
            None => self.confused || (self.units.len() < 3 && self.spare == 0),
        }
    }

    /// Does the next thing. `size` is about the most that it asks for in bytes.
    pub(crate) fn act(&mut self, mood: Mood, size: usize, rng: &mut fastrand::Rng) {
        if self.confused {
            return self.say_goodbye();
        }
        match self.pause.take() {
            // The server has said no already: no data.
            Some(Pause::CopyIn { .. }) if self.units.front().is_some_and(|unit| unit.failed) => {}
            Some(pause @ Pause::CopyIn { .. }) => self.send_copy_data(pause, rng),
            Some(Pause::Flush { number, .. }) => self.finish_flushed(number),
            None if mood == Mood::GoingHome || self.requests_left == 0 => self.go_home(rng),
            None if self.units.is_empty() => self.request(size, rng),
            // In a pipeline: nothing that needs the answers before.
            None if rng.u8(..3) == 0 => match rng.bool() {
                true => self.simple(&["rows 2 5"], rng.bool()),
                false => self.pipeline(size, rng),
            },
            None => {}
        }
    }

    /// It sends a part of a message, or nonsense, or only takes its leave.
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

    fn go_home(&mut self, rng: &mut fastrand::Rng) {
        if !self.units.is_empty() {
            return;
        }
        match self.status {
            b'I' if rng.u8(..4) > 0 => self.say_goodbye(),
            b'I' => self.leaves = Some(End::Eof),
            _ => self.simple(&[["commit", "rollback"][rng.usize(..2)]], true),
        }
    }

    fn say_goodbye(&mut self) {
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
        let in_transaction = self.status != b'I';
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
            13 => self.flush(),
            14 | 15 => self.slow(rng.u32(1..100)),
            16 if rng.bool() => self.function_call(),
            16 if rng.u8(..3) == 0 => self.simple(&[], true),
            16 if rng.u8(..4) == 0 => self.simple(&["die"], true),
            _ => self.pipeline(size, rng),
        }
    }

    fn simple(&mut self, commands: &[&str], claims: bool) {
        let number = self.number();
        let text = self.text(number, commands, claims);
        self.write(|writer| {
            writer.query(text.as_bytes());
        });
        self.units.push_back(Unit::of(number));
    }

    fn slow(&mut self, steps: u32) {
        self.simple(&[&format!("slow {steps}")], true);
        if let Some(unit) = self.units.back_mut() {
            unit.is_slow = true;
        }
    }

    fn set(&mut self, rng: &mut fastrand::Rng) {
        if self.keeps_session && self.status == b'I' && rng.bool() {
            let work_mem = format!("{}MB", rng.u8(5..200));
            self.simple(&[&format!("set work_mem='{work_mem}'")], true);
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

    /// One to four pipelines of one to four statements each, some of which fail.
    fn pipeline(&mut self, size: usize, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u8(1..4) {
            let mut unit = Unit::default();
            for _ in 0..rng.u8(1..4) {
                let number = self.number();
                unit.numbers.push(number);
                let rows = format!("rows {} {}", rng.u32(..4), rng.usize(..=size / 4));
                let command = ["fail", "notice", &rows, &rows, &rows, ""][rng.usize(..6)];
                let text = self.text(number, &[command], false);
                self.parse_and_bind(number, &text, rng.bool());
                self.execute(number);
            }
            self.write(|writer| {
                writer.sync();
            });
            self.units.push_back(unit);
        }
    }

    /// Parse, Bind and Flush; the rest follows when the replies have come.
    fn flush(&mut self) {
        let number = self.number();
        let text = self.text(number, &["rows 2 3"], true);
        self.parse_and_bind(number, &text, false);
        self.write(|writer| {
            writer.message(frontend::FLUSH, |_| {});
        });
        self.open = Some(Unit::of(number));
        self.pause = Some(Pause::Flush { number, awaited: 2 });
    }

    fn finish_flushed(&mut self, number: u32) {
        self.execute(number);
        self.write(|writer| {
            writer.sync();
        });
        self.units.extend(self.open.take());
    }

    /// COPY FROM STDIN in either protocol, waiting for the response or not.
    fn copy_in(&mut self, rng: &mut fastrand::Rng) {
        let number = self.number();
        let command = ["copyin", "copyin", "copyin 1", "copyin 0"][rng.usize(..4)];
        let text = self.text(number, &[command], true);
        let simple = rng.bool();
        if simple {
            self.write(|writer| {
                writer.query(text.as_bytes());
            });
        } else {
            self.parse_and_bind(number, &text, false);
            self.execute(number);
        }
        let pause = Pause::CopyIn {
            number,
            simple,
            pieces: rng.u32(..5),
            completes: rng.u8(..4) > 0,
            started: false,
        };
        self.units.push_back(Unit::of(number));
        if rng.bool() {
            // As libpq does: Sync right away, and again after the data.
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
            // After an error the server may have answered the first one too.
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
        self.units.push_back(Unit::of(number));
    }

    fn parse_and_bind(&mut self, number: u32, text: &str, describes: bool) {
        let portal = self.id(number).to_string();
        self.write(|writer| {
            writer.message(frontend::PARSE, |body| {
                body.push(0);
                body.extend_from_slice(text.as_bytes());
                body.extend_from_slice(&[0, 0, 0]);
            });
            writer.message(frontend::BIND, |body| {
                body.extend_from_slice(portal.as_bytes());
                body.extend_from_slice(&[0; 8]);
            });
            if describes {
                writer.message(frontend::DESCRIBE, |body| {
                    body.push(b'P');
                    body.extend_from_slice(portal.as_bytes());
                    body.push(0);
                });
            }
        });
    }

    fn execute(&mut self, number: u32) {
        let portal = self.id(number).to_string();
        self.write(|writer| {
            writer.message(frontend::EXECUTE, |body| {
                body.extend_from_slice(portal.as_bytes());
                body.extend_from_slice(&[0; 5]);
            });
        });
    }

    /// The text of a query, with what the client believes of its session if that is certain.
    fn text(&self, number: u32, commands: &[&str], claims: bool) -> String {
        let mut text = format!("/*{}", self.id(number));
        if claims && self.units.is_empty() && self.open.is_none() {
            if let Some(name) = self.parameters.get("application_name") {
                text.push_str(&format!(" a={name}"));
            }
            if self.keeps_session {
                text.push_str(&format!(" w={}", self.work_mem));
            }
        }
        text.push_str("*/");
        text.push_str(&commands.join(";"));
        text
    }

    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    fn id(&self, number: u32) -> RequestId {
        RequestId {
            client: self.index,
            number,
        }
    }

    fn write(&mut self, make: impl FnOnce(&mut MessageWriter<'_>)) {
        let mut bytes = Vec::new();
        make(&mut MessageWriter::new(&mut bytes));
        self.output.extend(bytes);
    }
}

impl Unit {
    fn of(number: u32) -> Self {
        Self {
            numbers: vec![number],
            ..Self::default()
        }
    }
}
