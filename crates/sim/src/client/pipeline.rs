//! The extended protocol of model clients, with unnamed and named statements.

use std::rc::Rc;

use pgweir_wire::tag::frontend;

use super::{
    Client, Pause, Unit,
    direct_session::{Ask, Statement},
};

/// Names of statements that all clients use, as clients of JDBC do.
const NAMES: [&str; 4] = ["S_1", "S_2", "S_3", "s"];

/// Texts that all clients use. Some differ only in a blank, and some only after the command.
const TEXTS: [&str; 15] = [
    "rows 2 5",
    "rows 2 5 ",
    "rows 3 5",
    "rows 0 0",
    "rows 4 9",
    "select rows(1, 7) /* of a */",
    "select rows(1, 7) /* of b */",
    "notice",
    "fail",
    "",
    REFUSED,
    "slow 5",
    "copyout 2 30",
    "set application_name='shared'",
    "set application_name='shared-too'",
];

const REFUSED: &str = "refused";

/// Types of parameters. The same text with other types is another statement.
const TYPES: [&[u32]; 5] = [&[], &[23], &[25], &[23, 25], &[0]];

/// The maximum numbers of rows of an Execute; 0 for all.
const LIMITS: [u32; 4] = [0, 0, 0, 2];

impl Client {
    /// Sends one to four pipelines of one to four statements each, some of which fail.
    pub(super) fn pipeline(&mut self, size: usize, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u8(1..4) {
            let mut unit = Unit::default();
            for _ in 0..rng.u8(1..4) {
                if self.works_on_session && rng.bool() {
                    self.work_on_session_extended(&mut unit, rng);
                    continue;
                }
                let rows = format!("rows {} {}", rng.u32(..4), rng.usize(..=size / 4));
                let command = ["fail", "notice", &rows, &rows, &rows, ""][rng.usize(..6)];
                self.unnamed(&mut unit, command, false, rng.bool());
                self.execute_last(&mut unit);
            }
            self.sync(unit);
        }
    }

    /// Sends some messages and Flush. The rest follows after all replies.
    pub(super) fn flush(&mut self, rng: &mut fastrand::Rng) {
        let mut unit = Unit::default();
        if self.prepares && rng.bool() {
            self.prepared_steps(&mut unit, rng);
        } else {
            self.unnamed(&mut unit, "rows 2 3", true, false);
        }
        self.write(|writer| {
            writer.message(frontend::FLUSH, |_| {});
        });
        self.open = Some(unit);
        self.pause = Some(Pause::Flush);
    }

    /// Continues after all replies to a Flush, or an error: sends more messages, or the Sync.
    pub(super) fn go_on_after_flush(&mut self, rng: &mut fastrand::Rng) {
        let Some(mut unit) = self.open.take() else {
            return;
        };
        if self.prepares && rng.bool() {
            self.prepared_steps(&mut unit, rng);
            if rng.bool() {
                self.write(|writer| {
                    writer.message(frontend::FLUSH, |_| {});
                });
                self.open = Some(unit);
                self.pause = Some(Pause::Flush);
                return;
            }
        } else if unit.last_portal.is_some() {
            self.execute_last(&mut unit);
        }
        self.sync(unit);
    }

    /// Sends one to three pipelines with statements that outlive them.
    pub(super) fn prepared(&mut self, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u8(1..4) {
            let mut unit = Unit::default();
            for _ in 0..rng.u8(1..4) {
                self.prepared_steps(&mut unit, rng);
            }
            self.sync(unit);
        }
    }

    /// Sends `begin`, `commit` or `rollback` as a named statement, as JDBC does.
    pub(super) fn transaction_by_name(&mut self, rng: &mut fastrand::Rng) {
        let (name, text) = match self.own.status {
            b'I' => ("S_b", "begin"),
            _ => [("S_c", "commit"), ("S_r", "rollback")][rng.usize(..2)],
        };
        let mut unit = Unit::default();
        if self.own.statement(name).is_none() {
            let statement = Rc::new(Statement::new(text, &[]));
            self.parse(&mut unit, name, &statement);
        }
        self.began |= text == "begin";
        let number = self.request_number(&mut unit);
        let portal = self.id(number).to_string();
        self.bind(&mut unit, &portal, name, 0, number);
        self.execute(&mut unit, &portal, 0);
        self.sync(unit);
    }

    /// Sends Parse, or Bind and Execute, or both, or Describe, or Close.
    fn prepared_steps(&mut self, unit: &mut Unit, rng: &mut fastrand::Rng) {
        let name = NAMES[rng.usize(..NAMES.len())];
        if !self.runs_ahead && !self.units.is_empty() {
            return;
        }
        let known = self.own.statement(name).cloned();
        // Sometimes the client ignores whether the name is free or in use.
        let careless = rng.u8(..12) == 0;
        match rng.u8(..12) {
            0 => return self.close_statement(unit, name),
            1 if known.is_some() || careless => {
                return self.describe(unit, b'S', name);
            }
            2 => {
                let statement = any_statement(rng);
                self.parse(unit, "", &statement);
                return self.bind_and_execute(unit, "", &statement, rng);
            }
            _ => {}
        }
        let statement = match known {
            Some(statement) if !careless => statement,
            None if careless => any_statement(rng),
            known => {
                let statement = any_statement(rng);
                if known.is_some() && (rng.bool() || statement.text == REFUSED && !self.runs_ahead)
                {
                    self.close_statement(unit, name);
                }
                self.parse(unit, name, &statement);
                if rng.u8(..4) == 0 {
                    self.describe(unit, b'S', name);
                }
                if rng.u8(..3) == 0 {
                    // The statement will be used in a later pipeline.
                    return;
                }
                statement
            }
        };
        self.bind_and_execute(unit, name, &statement, rng);
    }

    fn bind_and_execute(
        &mut self,
        unit: &mut Unit,
        name: &str,
        statement: &Statement,
        rng: &mut fastrand::Rng,
    ) {
        let number = self.request_number(unit);
        let given = statement.types.len();
        let portal = if given > 0 && rng.u8(..4) > 0 {
            String::new()
        } else {
            self.id(number).to_string()
        };
        self.bind(unit, &portal, name, given, number);
        if rng.u8(..3) == 0 {
            self.describe(unit, b'P', &portal);
        }
        let limit = LIMITS[rng.usize(..LIMITS.len())];
        let is_rows = statement.text.starts_with("rows");
        self.execute(unit, &portal, if is_rows { limit } else { 0 });
        if is_rows && limit > 0 {
            self.execute(unit, &portal, 0);
        }
        if rng.u8(..6) == 0 {
            self.close_portal(unit, &portal);
        }
    }

    /// Sends Parse and Bind of a statement whose text contains the request's id.
    pub(super) fn unnamed(
        &mut self,
        unit: &mut Unit,
        command: &str,
        claims: bool,
        describes: bool,
    ) -> u32 {
        let number = self.request_number(unit);
        let statement = Rc::new(Statement::new(&self.text(number, &[command], claims), &[]));
        self.parse(unit, "", &statement);
        let portal = self.id(number).to_string();
        self.bind(unit, &portal, "", 0, number);
        if describes {
            self.describe(unit, b'P', &portal);
        }
        unit.last_portal = Some(portal);
        number
    }

    /// Sends Execute for the portal that was bound last.
    pub(super) fn execute_last(&mut self, unit: &mut Unit) {
        if let Some(portal) = unit.last_portal.take() {
            self.execute(unit, &portal, 0);
        }
    }

    pub(super) fn sync(&mut self, mut unit: Unit) {
        self.write(|writer| {
            writer.sync();
        });
        unit.ask(Ask::Sync);
        self.units.push_back(unit);
    }

    fn request_number(&mut self, unit: &mut Unit) -> u32 {
        let number = self.number();
        unit.numbers.push(number);
        number
    }

    fn parse(&mut self, unit: &mut Unit, name: &str, statement: &Rc<Statement>) {
        self.write(|writer| {
            writer.message(frontend::PARSE, |body| {
                cstr(body, name);
                cstr(body, &statement.text);
                body.extend((statement.types.len() as u16).to_be_bytes());
                body.extend(statement.types.iter().flat_map(|oid| oid.to_be_bytes()));
            });
        });
        unit.ask(Ask::Parse {
            name: name.to_owned(),
            statement: Rc::clone(statement),
        });
    }

    fn bind(&mut self, unit: &mut Unit, portal: &str, name: &str, given: usize, number: u32) {
        let value = self.id(number).to_string();
        self.write(|writer| {
            writer.message(frontend::BIND, |body| {
                cstr(body, portal);
                cstr(body, name);
                body.extend([0, 0]);
                body.extend((given as u16).to_be_bytes());
                for _ in 0..given {
                    body.extend((value.len() as u32).to_be_bytes());
                    body.extend(value.as_bytes());
                }
                body.extend([0, 0]);
            });
        });
        unit.ask(Ask::Bind {
            portal: portal.to_owned(),
            name: name.to_owned(),
            given,
            number,
        });
    }

    fn describe(&mut self, unit: &mut Unit, kind: u8, name: &str) {
        self.named(frontend::DESCRIBE, kind, name);
        let name = name.to_owned();
        unit.ask(if kind == b'S' {
            Ask::DescribeStatement { name, begun: false }
        } else {
            Ask::DescribePortal { portal: name }
        });
    }

    fn close_statement(&mut self, unit: &mut Unit, name: &str) {
        self.named(frontend::CLOSE, b'S', name);
        unit.ask(Ask::CloseStatement(name.to_owned()));
    }

    fn close_portal(&mut self, unit: &mut Unit, portal: &str) {
        self.named(frontend::CLOSE, b'P', portal);
        unit.ask(Ask::ClosePortal(portal.to_owned()));
    }

    fn named(&mut self, tag: u8, kind: u8, name: &str) {
        self.write(|writer| {
            writer.message(tag, |body| {
                body.push(kind);
                cstr(body, name);
            });
        });
    }

    fn execute(&mut self, unit: &mut Unit, portal: &str, limit: u32) {
        self.write(|writer| {
            writer.message(frontend::EXECUTE, |body| {
                cstr(body, portal);
                body.extend(limit.to_be_bytes());
            });
        });
        unit.ask(Ask::Execute {
            portal: portal.to_owned(),
            limit,
        });
    }
}

fn any_statement(rng: &mut fastrand::Rng) -> Rc<Statement> {
    let text = TEXTS[rng.usize(..TEXTS.len())];
    let types = TYPES[rng.usize(..TYPES.len())];
    Rc::new(Statement::new(text, types))
}

fn cstr(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}
