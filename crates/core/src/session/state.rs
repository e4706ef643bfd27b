//! The session state of a server connection, as the server itself reports it: through the parameter that pgweir's
//! extension sends, or in the rows that answer a [`Probe`](super::Probe).

use pgweir_wire::Body;

use crate::base::pin::{Pin, Pins};

/// The session state of a server connection.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct State {
    /// Parameters that were set in the session, among them `role` and `session_authorization`: names in lower case,
    /// values in the server's encoding.
    pub(crate) settings: Vec<(Vec<u8>, Vec<u8>)>,
    /// Channels that the session listens on.
    pub(crate) channels: Vec<Vec<u8>>,
    /// SQL-prepared statements, with their texts where those are known.
    pub(crate) statements: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Names of protocol-level prepared statements that are not pgweir's.
    pub(crate) named: Vec<Vec<u8>>,
    /// The number of protocol-level prepared statements under pgweir's names, as far as it is known.
    pub(crate) ours: Option<usize>,
    /// Values that an inspection has read one by one: those of [`SHOWN`](super::baseline::SHOWN), and the values that
    /// these parameters have in a session that has not set them.
    pub(crate) shown: Vec<Vec<u8>>,
    /// The numbers of statements and channels, if an inspection has counted them.
    pub(crate) summary: Option<Summary>,
    /// The parts of the state that can't be moved to another server.
    pub(crate) pins: Pins,
    /// Whether the session state exceeds the size of a report, so that the report is incomplete.
    pub(crate) cut: bool,
    /// If `cut` is set: the names of the custom parameters that were set.
    pub(crate) custom_parameters: Vec<Vec<u8>>,
    /// Whether the report is incomplete, since the server can't report the whole state.
    pub(crate) unclear: bool,
}

/// The counts that an inspection reads.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Whether the session listens on a channel.
    pub listens: bool,
    /// The number of SQL-prepared statements.
    pub from_sql: usize,
    /// The number of protocol-level prepared statements under names that are not pgweir's.
    pub named: usize,
    /// The number of protocol-level prepared statements under pgweir's names.
    pub ours: usize,
}

/// The error for a report or a row that can't be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadState;

impl State {
    /// The parameter in which the extension reports the session state.
    pub const PARAMETER: &'static [u8] = b"pgweir.session_state";

    /// Parses the extension's report: items between semicolons, the first of them the format's version.
    ///
    /// # Errors
    /// The report is malformed or has another version.
    pub fn of_report(report: &[u8]) -> Result<Self, BadState> {
        let mut items = report.split(|&byte| byte == b';');
        if items.next() != Some(b"1") {
            return Err(BadState);
        }
        let mut state = Self::default();
        for item in items {
            let (&kind, rest) = item.split_first().ok_or(BadState)?;
            match kind {
                b'g' | b's' => {
                    let equals = rest.iter().position(|&byte| byte == b'=').ok_or(BadState)?;
                    state.set(kind, &rest[..equals], &rest[equals + 1..])?;
                }
                b'c' => state.channels.push(unescape(rest)?),
                b'n' => state
                    .custom_parameters
                    .push(unescape(rest)?.to_ascii_lowercase()),
                b'p' => state.statements.push((unescape(rest)?, None)),
                _ => state.flag(kind, rest)?,
            }
        }
        Ok(state)
    }

    /// Adds one row of the answer to a probe: kind, name and value, the last two as `encode(..., 'escape')` writes
    /// them.
    ///
    /// # Errors
    /// The row is not one of a probe's.
    pub fn take_row(&mut self, row: &[u8]) -> Result<(), BadState> {
        let columns = Body::new(row).columns().map_err(|_| BadState)?;
        let columns: Option<Vec<_>> = columns.into_iter().collect();
        let (kind, name, value) = match *columns.ok_or(BadState)? {
            [value] => {
                self.shown.push(value.to_vec());
                return Ok(());
            }
            [&[kind], name, value] => (kind, name, value),
            ref others => return self.take_summary(others.try_into().map_err(|_| BadState)?),
        };
        match kind {
            b'g' | b's' => self.set(kind, name, value)?,
            b'c' => self.channels.push(unescape(name)?),
            b'q' => self.named.push(unescape(name)?),
            b'p' => self
                .statements
                .push((unescape(name)?, Some(unescape(value)?))),
            _ => self.flag(kind, b"")?,
        }
        Ok(())
    }

    fn take_summary(&mut self, columns: [&[u8]; 7]) -> Result<(), BadState> {
        let [temporary, cursors, locks, listens, from_sql, named, ours] = columns;
        let is = |text: &[u8]| match text {
            b"t" => Ok(true),
            b"f" => Ok(false),
            _ => Err(BadState),
        };
        let count = |text: &[u8]| {
            let text = std::str::from_utf8(text).map_err(|_| BadState)?;
            text.parse::<usize>().map_err(|_| BadState)
        };
        for (pin, has) in [
            (Pin::Temporary, temporary),
            (Pin::Cursor, cursors),
            (Pin::Lock, locks),
        ] {
            self.pins.remove(pin);
            self.pins.insert_if(pin, is(has)?);
        }
        let summary = Summary {
            listens: is(listens)?,
            from_sql: count(from_sql)?,
            named: count(named)?,
            ours: count(ours)?,
        };
        self.ours = Some(summary.ours);
        self.summary = Some(summary);
        Ok(())
    }

    fn set(&mut self, kind: u8, name: &[u8], value: &[u8]) -> Result<(), BadState> {
        let name = unescape(name)?.to_ascii_lowercase();
        if kind == b's' {
            self.pins.insert(Pin::Privileged);
        }
        self.settings.push((name, unescape(value)?));
        Ok(())
    }

    fn flag(&mut self, kind: u8, rest: &[u8]) -> Result<(), BadState> {
        match kind {
            b't' => self.pins.insert(Pin::Temporary),
            b'a' => self.pins.insert(Pin::Lock),
            b'h' => self.pins.insert(Pin::Cursor),
            b'r' => self.pins.insert(Pin::Seed),
            b'l' => self.pins.insert(Pin::Library),
            b'o' => self.cut = true,
            b'x' => self.unclear = true,
            _ => return Err(BadState),
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(BadState)
        }
    }
}

/// Decodes the escapes `\\` and `\ooo`.
fn unescape(text: &[u8]) -> Result<Vec<u8>, BadState> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        match rest {
            [b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => return Err(BadState),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(all: &[Pin]) -> Pins {
        let mut pins = Pins::default();
        all.iter().for_each(|&pin| pins.insert(pin));
        pins
    }

    #[test]
    fn reports() {
        assert_eq!(State::of_report(b"1"), Ok(State::default()));
        let state =
            State::of_report(br"1;gSearch_Path=a,\040b;t;cjobs;pq1;sapp.x=\134\075;x").unwrap();
        let expect = State {
            settings: vec![
                (b"search_path".to_vec(), b"a, b".to_vec()),
                (b"app.x".to_vec(), br"\=".to_vec()),
            ],
            channels: vec![b"jobs".to_vec()],
            statements: vec![(b"q1".to_vec(), None)],
            pins: pins(&[Pin::Temporary, Pin::Privileged]),
            unclear: true,
            ..State::default()
        };
        assert_eq!(state, expect);
        assert_eq!(
            state.pins.to_string(),
            "temporary objects, privileged setting"
        );
        let cut = State::of_report(br"1;nApp.\303\244;o;t").unwrap();
        assert_eq!(cut.custom_parameters, ["app.\u{e4}".as_bytes()]);
        assert!(cut.cut && cut.pins == pins(&[Pin::Temporary]) && !cut.unclear);
        for bad in [
            "",
            "2",
            "1;",
            "1;z",
            "1;tt",
            "1;gx",
            r"1;gx=\9",
            r"1;c\40",
            "1;g=\\400",
        ] {
            assert_eq!(State::of_report(bad.as_bytes()), Err(BadState), "{bad}");
        }
    }

    #[test]
    fn rows() {
        let row = |columns: &[&str]| {
            let mut row = (columns.len() as u16).to_be_bytes().to_vec();
            for column in columns {
                row.extend_from_slice(&(column.len() as i32).to_be_bytes());
                row.extend_from_slice(column.as_bytes());
            }
            row
        };
        let mut state = State::default();
        for columns in [
            ["g", "TimeZone", r"a\303\244\\"],
            ["s", "lc_messages", "C"],
            ["s", "wal_compression", "on"],
            ["p", "s", "PREPARE s AS SELECT 1"],
            ["c", "jobs", ""],
        ] {
            assert_eq!(state.take_row(&row(&columns)), Ok(()), "{columns:?}");
        }
        assert_eq!(state.take_row(&row(&["1500ms"])), Ok(()));
        let summary = ["f", "f", "t", "t", "1", "0", "12"];
        assert_eq!(state.take_row(&row(&summary)), Ok(()));
        let expect = State {
            settings: vec![
                (b"timezone".to_vec(), "aä\\".into()),
                (b"lc_messages".to_vec(), b"C".to_vec()),
                (b"wal_compression".to_vec(), b"on".to_vec()),
            ],
            channels: vec![b"jobs".to_vec()],
            statements: vec![(b"s".to_vec(), Some(b"PREPARE s AS SELECT 1".to_vec()))],
            pins: pins(&[Pin::Lock, Pin::Privileged]),
            shown: vec![b"1500ms".to_vec()],
            ours: Some(12),
            summary: Some(Summary {
                listens: true,
                from_sql: 1,
                named: 0,
                ours: 12,
            }),
            ..State::default()
        };
        assert_eq!(state, expect);
        for bad in [
            &row(&["g", "x"])[..],
            &row(&["f", "f", "x", "t", "1", "0", "12"]),
            &row(&["f", "f", "t", "t", "1", "-1", "12"]),
            &row(&["gg", "x", ""]),
            b"",
            b"\0\x03",
        ] {
            assert_eq!(state.take_row(bad), Err(BadState));
        }
    }
}
