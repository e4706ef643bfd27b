//! Changes of session state by clients: by statements, and by functions and triggers that hide the change.

use super::{Client, Unit};

/// Names that all clients use for their own objects.
const NAMES: [&str; 3] = ["q1", "q2", "q3"];

const CHANNELS: [&str; 2] = ["jobs", "mail"];

impl Client {
    /// Sends a statement, or several in one query, that changes or reads the session state.
    pub(super) fn work_on_session(&mut self, rng: &mut fastrand::Rng) {
        // In session mode, RESET ALL at the end of a transaction restores the values that the server began with.
        let is_alone = self.units.is_empty() && self.own.status == b'I';
        if !self.runs_ahead && is_alone && rng.u8(..25) == 0 {
            return self.simple(&["reset all"], false);
        }
        let mark = format!("c{}n{}", self.index, self.next_number + 1);
        let name = NAMES[rng.usize(..NAMES.len())];
        let mut texts = vec![self.session_statement(&mark, name, rng)];
        if rng.u8(..5) == 0 {
            texts.push(self.session_statement(&mark, name, rng));
        }
        if rng.u8(..8) == 0 {
            texts.push("select rows(1, 4)".to_owned());
        }
        if rng.u8(..12) == 0 {
            // The error undoes the whole query.
            texts.push("fail".to_owned());
        }
        self.listens |= texts.iter().any(|text| text.starts_with("listen"));
        let reads = |text: &String| {
            ["select lastval", "select currval"]
                .iter()
                .any(|read| text.starts_with(read))
        };
        if texts.iter().any(|text| text.starts_with("set app.whisper")) {
            self.custom_is_named = Some(true);
        }
        self.reads_values |= texts.iter().any(reads);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        // The pooler sends a text with PREPARE again, to other servers.
        self.simple(&texts, false);
    }

    /// Sends such a statement by the extended protocol; only texts that the pooler does not send again.
    pub(super) fn work_on_session_extended(&mut self, unit: &mut Unit, rng: &mut fastrand::Rng) {
        let mark = format!("c{}n{}", self.index, self.next_number + 1);
        let text = match rng.u8(..5) {
            0 => format!("set app.tenant = '{mark}'"),
            1 => format!("select set_config('app.other', '{mark}', false)"),
            2 => self.hidden(&mark, rng),
            3 => "select harmless()".to_owned(),
            _ => format!("select pg_advisory_lock_shared('{mark}')"),
        };
        if self.custom_is_named == Some(false) && text.starts_with("set app.whisper") {
            self.custom_is_named = Some(true);
        }
        self.unnamed(unit, &text, false, rng.bool());
        self.execute_last(unit);
    }

    fn session_statement(&self, mark: &str, name: &str, rng: &mut fastrand::Rng) -> String {
        if !self.listens && rng.u8(..5) == 0 {
            return format!("listen {}", CHANNELS[rng.usize(..CHANNELS.len())]);
        }
        match rng.u8(..30) {
            // For a client that has protocol-level statements too, the pooler would have to give them their names.
            7..=11 if self.prepares => self.setting(mark, rng),
            0..=3 => self.setting(mark, rng),
            5 => [
                "reset app.tenant",
                "reset work_mem",
                "reset statement_timeout",
            ][rng.usize(..3)]
            .to_owned(),
            6 => ["set role r1", "set role r2", "reset role", "set role none"][rng.usize(..4)]
                .to_owned(),
            7 | 8 => format!(
                "prepare {name} as select rows(1, {})",
                1 + self.next_number % 90
            ),
            9 | 10 => format!("execute {name}"),
            11 => format!("deallocate {name}"),
            12 => format!("create temp table {name} (a int)"),
            13 | 14 => {
                ["discard temp".to_owned(), format!("drop table {name}")][rng.usize(..2)].clone()
            }
            15 => format!("declare {name} cursor with hold for select rows(1, 1)"),
            16 => ["close all".to_owned(), format!("close {name}")][rng.usize(..2)].clone(),
            17 => format!("select pg_advisory_lock_shared('{mark}')"),
            18 | 19 => "select pg_advisory_unlock_all()".to_owned(),
            20 => format!("select nextval('{name}')"),
            21 if rng.u8(..3) == 0 => [
                "select lastval()".to_owned(),
                format!("select currval('{name}')"),
            ][rng.usize(..2)]
            .clone(),
            22 => format!(
                "insert into {} values ('{mark}')",
                ["plain", "audited", "audited", "locked"][rng.usize(..4)]
            ),
            23..=26 => self.on_channels(mark, rng),
            27 => "insert into plain values (1)".to_owned(),
            _ => self.hidden(mark, rng),
        }
    }

    /// Returns whether the client has sent LISTEN.
    pub(super) fn listens(&self) -> bool {
        self.listens
    }

    /// Returns whether this client, or one that may have the same `application_name`, has read values of sequences.
    /// Then the client keeps its server after each statement that may have changed some.
    pub(crate) fn may_read_values(&self, all: &[Self]) -> bool {
        let is_alike = |other: &Self| self.login.is_unnamed() && other.login.is_unnamed();
        all.iter()
            .any(|other| other.reads_values && (other.index == self.index || is_alike(other)))
    }

    fn on_channels(&self, mark: &str, rng: &mut fastrand::Rng) -> String {
        let channel = CHANNELS[rng.usize(..CHANNELS.len())];
        match rng.u8(..8) {
            // A client that listens also receives its own notifications.
            _ if !self.listens => format!("listen {channel}"),
            0 => ["unlisten *".to_owned(), format!("unlisten {channel}")][rng.usize(..2)].clone(),
            1 => format!("listen {channel}"),
            _ => format!("notify {channel}, '{mark}'"),
        }
    }

    /// Handles a notification, which must be of a channel that the client has listened to.
    pub(super) fn is_notified(&mut self, body: &[u8]) -> Result<(), String> {
        let channel = body.get(4..).unwrap_or_default();
        let channel = channel.split(|&byte| byte == 0).next().unwrap_or_default();
        match self.listens && CHANNELS.iter().any(|own| own.as_bytes() == channel) {
            true => {
                self.notifications += 1;
                Ok(())
            }
            false => Err(format!("is notified of \"{}\"", channel.escape_ascii())),
        }
    }

    /// Returns a call of a function whose name does not show that it changes session state.
    fn hidden(&self, mark: &str, rng: &mut fastrand::Rng) -> String {
        let kinds = if self.custom_is_named.is_some() {
            10
        } else {
            8
        };
        match rng.u8(..kinds) {
            // The pooler inspects only parameters whose names it has read.
            1 | 8 | 9 if self.custom_is_named == Some(true) => format!("select whisper('{mark}')"),
            1 | 8 | 9 if self.custom_is_named == Some(false) => {
                format!("set app.whisper = '{mark}'")
            }
            0 | 1 => format!("select greet('{mark}')"),
            2 => format!("select measure('{}MB')", 2 * rng.u8(3..90)),
            3 => format!("select impersonate('r{}')", rng.u8(1..3)),
            4 => format!("select guard('{mark}')"),
            5 => format!("select learn('{}')", NAMES[rng.usize(..NAMES.len())]),
            6 => format!("select scribble('{}')", NAMES[rng.usize(..NAMES.len())]),
            _ => "select enumerate()".to_owned(),
        }
    }

    /// Returns whether the client sets custom parameters by hidden means.
    pub(crate) fn use_hidden_custom(&mut self) {
        self.custom_is_named = Some(false);
    }

    fn setting(&self, mark: &str, rng: &mut fastrand::Rng) -> String {
        match rng.u8(..7) {
            1 if self.custom_is_named.is_some() => format!("set app.whisper = '{mark}'"),
            0 | 1 => format!("set app.tenant = '{mark}'"),
            2 => format!("select set_config('app.tenant', '{mark}', false)"),
            3 => format!("set local app.tenant = '{mark}'"),
            4 => format!("select set_config('app.other', '{mark}', true)"),
            5 => format!("set statement_timeout to '{}s'", rng.u8(10..90)),
            _ => format!("set search_path = '{mark}'"),
        }
    }
}
