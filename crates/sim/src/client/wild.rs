//! Clients that send complete and incomplete messages in any order, do not look at the answers, and disconnect at any
//! point. These clients must never receive another client's data.

use pgweir_wire::{Report, tag::backend, tag::frontend};

use super::{Client, Phase};
use crate::{
    checks::{Guarantee, RequestId, Violation},
    network::End,
};

/// Names of statements, some of which other clients use, too.
const NAMES: [&str; 4] = ["", "a", "S_1", "S_2"];

impl Client {
    /// Makes the client send this number of messages, and disconnect.
    pub(crate) fn becomes_wild(&mut self, rng: &mut fastrand::Rng) {
        self.wild = Some(rng.u8(1..12));
    }

    pub(crate) fn is_wild(&self) -> bool {
        self.wild.is_some()
    }

    /// Sends some messages in a row. At the end the client disconnects, perhaps in the middle of a message.
    pub(super) fn run_wild(&mut self, leaves: bool, rng: &mut fastrand::Rng) {
        let left = self.wild.unwrap_or_default();
        if leaves || left == 0 {
            return self.leave_at_random(rng);
        }
        self.wild = Some(left - 1);
        for _ in 0..rng.u8(1..9) {
            self.any_message(rng);
        }
    }

    fn leave_at_random(&mut self, rng: &mut fastrand::Rng) {
        let whole = self.output.len();
        match rng.u8(..4) {
            0 => self.write(|writer| {
                writer.terminate();
            }),
            1 => {
                self.any_message(rng);
                let all = self.output.len() - whole;
                self.output.truncate(whole + rng.usize(..all));
            }
            _ => {}
        }
        self.leaves = Some(End::Eof);
    }

    fn any_message(&mut self, rng: &mut fastrand::Rng) {
        let number = self.number();
        let id = self.id(number);
        let name = NAMES[rng.usize(..NAMES.len())];
        match rng.u8(..20) {
            0..=3 => {
                let text = format!("/*{id}*/{}", self.wild_text(number, rng));
                self.write(|writer| {
                    writer.query(text.as_bytes());
                });
            }
            4..=6 => {
                let text = format!("/*{id}*/{}", self.wild_text(number, rng));
                self.raw(
                    frontend::PARSE,
                    &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"],
                );
            }
            7..=9 => {
                let portal = if rng.bool() {
                    id.to_string()
                } else {
                    String::new()
                };
                let parts: [&[u8]; 4] = [portal.as_bytes(), b"\0", name.as_bytes(), &[0; 7]];
                self.raw(frontend::BIND, &parts);
            }
            10..=12 => self.raw(frontend::EXECUTE, &[b"\0", &[0, 0, 0, rng.u8(..3)]]),
            13 => self.raw(frontend::DESCRIBE, &[b"S", name.as_bytes(), b"\0"]),
            14 => self.raw(frontend::CLOSE, &[b"S", name.as_bytes(), b"\0"]),
            15 => self.raw(frontend::FLUSH, &[]),
            16 => self.any_of_copy(id, rng),
            _ => self.raw(frontend::SYNC, &[]),
        }
    }

    fn any_of_copy(&mut self, id: RequestId, rng: &mut fastrand::Rng) {
        match rng.u8(..3) {
            0 => self.raw(frontend::COPY_DATA, &[id.to_string().as_bytes(), b"|x"]),
            1 => self.raw(frontend::COPY_DONE, &[]),
            _ => self.raw(frontend::COPY_FAIL, &[id.to_string().as_bytes(), b"\0"]),
        }
    }

    fn wild_text(&self, number: u32, rng: &mut fastrand::Rng) -> String {
        let mark = format!("c{}n{number}", self.index);
        match rng.u8(..14) {
            0..=2 => "select rows(2, 5)".to_owned(),
            3 => "begin".to_owned(),
            4 | 5 => ["commit", "rollback"][rng.usize(..2)].to_owned(),
            6 => "fail".to_owned(),
            7 => "copyin".to_owned(),
            8 => format!("select slow({})", rng.u8(1..30)),
            9 if self.keeps_session => format!("set app.tenant = '{mark}'"),
            10 if self.keeps_session => format!("select guard('{mark}')"),
            11 if self.keeps_session => format!("create temp table {mark} (a int)"),
            12 => String::new(),
            _ => "select rows(0, 1)".to_owned(),
        }
    }

    fn raw(&mut self, tag: u8, parts: &[&[u8]]) {
        let body = parts.concat();
        self.write(|writer| {
            writer.message(tag, |bytes| bytes.extend_from_slice(&body));
        });
    }

    /// Checks a message for such a client: an id in it must be one of the client's own requests.
    pub(super) fn wild_message(&mut self, tag: u8, body: &[u8]) -> Result<(), Violation> {
        let id = RequestId::find_within(body);
        let is_data = !matches!(tag, backend::PARAMETER_STATUS | backend::ROW_DESCRIPTION);
        if is_data && id.is_some_and(|id| id.client != self.index) {
            let what = format!("client {} gets what is said to {id:?}", self.index);
            return Err(Violation::new(Guarantee::Replies, what));
        }
        let is_fatal = tag == backend::ERROR_RESPONSE
            && Report::parse(body).is_ok_and(|report| report.severity == b"FATAL");
        if is_fatal {
            self.phase = Phase::Refused;
            self.output.clear();
        }
        Ok(())
    }
}
