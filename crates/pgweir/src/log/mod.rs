//! The log: one line per event in PgBouncer's form or as JSON, to standard error, the log file and syslog. Syslog gets
//! PgBouncer's form.
//!
//! A worker collects its lines, and writes them together when no event has arrived, at the latest after about two
//! milliseconds. Therefore, many logins at once cost few system calls.

mod json;
mod syslog;

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
};

use jiff::{Timestamp, tz::TimeZone};
use parking_lot::RwLock;
use pgweir_config::{LogFormat, Settings};
use pgweir_core::{Level, LogLine, Time, base::digits::push_decimal};

use self::syslog::{Record, Syslog, SyslogPlan};
use crate::clock::by_system_clock;

/// Collected lines are written when they reach this many bytes, even within a turn.
const BUFFER_BYTES: usize = 32 * 1024;
/// The same limit for lines to syslog, as a number of lines.
const RECORDS_MAX: usize = 256;

/// The targets of the log, and its settings.
#[derive(Debug, Clone)]
pub(crate) struct Log(Arc<Sink>);

#[derive(Debug)]
struct Sink {
    verbose: AtomicI32,
    stderr: bool,
    file: RwLock<Option<File>>,
    /// Whether there is a file or standard error to write to.
    to_files: AtomicBool,
    to_syslog: AtomicBool,
    /// Whether lines are JSON objects.
    is_json: AtomicBool,
    syslog: Syslog,
    /// The number of lines that the log file did not accept since the last accepted line.
    lost: AtomicU64,
}

impl Log {
    /// Creates a log without a file. With `stderr`, the log writes to standard error.
    pub(crate) fn new(verbose: i32, stderr: bool) -> Self {
        Self(Arc::new(Sink {
            verbose: AtomicI32::new(verbose),
            stderr,
            file: RwLock::new(None),
            to_files: AtomicBool::new(stderr),
            to_syslog: AtomicBool::new(false),
            is_json: AtomicBool::new(false),
            syslog: Syslog::new(),
            lost: AtomicU64::new(0),
        }))
    }

    /// Puts the settings of the log in force. If the log file was open, it is opened again, since log rotation may have
    /// moved it away.
    ///
    /// # Errors
    /// When the log file can't be opened. The old one stays in use.
    pub(crate) fn configure(&self, settings: &Settings) -> Result<(), (PathBuf, io::Error)> {
        self.0.verbose.store(settings.verbose, Ordering::Relaxed);
        self.0.to_syslog.store(settings.syslog, Ordering::Relaxed);
        let is_json = settings.log_format == LogFormat::Json;
        self.0.is_json.store(is_json, Ordering::Relaxed);
        self.0.syslog.set(settings.syslog.then(|| SyslogPlan {
            socket: PathBuf::from(&settings.syslog_socket),
            ident: settings.syslog_ident.clone(),
            facility: settings.facility(),
        }));
        let path = settings.logfile.as_deref().map(Path::new);
        self.open(path)
            .map_err(|error| (path.map(Path::to_owned).unwrap_or_default(), error))
    }

    fn open(&self, path: Option<&Path>) -> io::Result<()> {
        let file = path
            .map(|path| OpenOptions::new().append(true).create(true).open(path))
            .transpose()?;
        let to_files = self.0.stderr || file.is_some();
        self.0.to_files.store(to_files, Ordering::Relaxed);
        *self.0.file.write() = file;
        Ok(())
    }

    /// Creates a buffer for the calling thread.
    pub(crate) fn buffer(&self) -> LogBuffer {
        LogBuffer {
            log: self.clone(),
            zone: TimeZone::system(),
            pid: std::process::id(),
            bytes: String::new(),
            records: Vec::new(),
            clock: by_system_clock,
            shift: (u64::MAX, 0),
            second: u64::MAX,
            date: String::new(),
            abbreviation: String::new(),
            syslog_time: String::new(),
            utc: String::new(),
        }
    }

    fn takes(&self, level: Level) -> bool {
        level > Level::Debug || self.is_verbose()
    }

    fn is_verbose(&self) -> bool {
        self.0.verbose.load(Ordering::Relaxed) > 0
    }

    /// Writes lines. Lines that the file does not accept are counted, and their number is reported once the file
    /// accepts lines again; `warning` makes a line of a text.
    fn write(&self, bytes: &[u8], warning: impl Fn(&str) -> String) {
        if self.0.stderr {
            // There is no place to report an error to.
            let _ = io::stderr().lock().write_all(bytes);
        }
        let file = self.0.file.read();
        let Some(mut file) = file.as_ref() else {
            return;
        };
        let lost = self.0.lost.swap(0, Ordering::Relaxed);
        let said = match lost {
            0 => Ok(()),
            lost => {
                let text = format!(
                    "{lost} lines before this one were lost: the log file did not take them"
                );
                file.write_all(warning(&text).as_bytes())
            }
        };
        if said.and_then(|()| file.write_all(bytes)).is_err() {
            let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
            self.0
                .lost
                .fetch_add(lost + lines as u64, Ordering::Relaxed);
        }
    }
}

/// Lines of one thread that were not written yet.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    log: Log,
    zone: TimeZone,
    pid: u32,
    bytes: String,
    /// Lines for syslog.
    records: Vec<Record>,
    /// Returns the system clock's time for a time of the process.
    clock: fn(Time) -> Time,
    /// The second of the process in which the system's clock was last read, and the difference that has to be added to
    /// times since.
    shift: (u64, i64),
    /// The second to which the cached times belong.
    second: u64,
    date: String,
    abbreviation: String,
    syslog_time: String,
    utc: String,
}

impl LogBuffer {
    /// Adds a line.
    pub(crate) fn line(&mut self, now: Time, line: &LogLine) {
        if !self.log.takes(line.level) {
            return;
        }
        let now = self.on_the_clock(now);
        let (second, millis) = (now.0 / 1_000_000, now.0 / 1_000 % 1_000);
        if second != self.second {
            self.set_second(second);
        }
        if self.log.0.to_syslog.load(Ordering::Relaxed) && line.level > Level::Debug {
            self.record(line);
        }
        if !self.log.0.to_files.load(Ordering::Relaxed) {
            return;
        }
        let mut bytes = mem::take(&mut self.bytes);
        self.push_line(&mut bytes, millis, line);
        self.bytes = bytes;
        if self.bytes.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Returns the system clock's time for a time of the process: the clock may have been set since the process began.
    /// The clock is read once in a second.
    fn on_the_clock(&mut self, now: Time) -> Time {
        let second = now.0 / 1_000_000;
        if self.shift.0 != second {
            let said = (self.clock)(now).0;
            self.shift = (second, said.wrapping_sub(now.0).cast_signed());
        }
        Time(now.0.saturating_add_signed(self.shift.1))
    }

    /// Appends a line in the form that the settings ask for.
    fn push_line(&self, bytes: &mut String, millis: u64, line: &LogLine) {
        if self.log.0.is_json.load(Ordering::Relaxed) {
            return json::push(bytes, &self.utc, millis, self.pid, line);
        }
        let Self {
            date,
            abbreviation,
            pid,
            ..
        } = self;
        let level = json::level_name(line.level);
        // Each login writes two log lines. Appending the pieces takes a third of the instructions of `write!`.
        bytes.push_str(date);
        bytes.push('.');
        for place in [100, 10, 1] {
            bytes.push(char::from(b'0' + (millis / place % 10) as u8));
        }
        bytes.push(' ');
        bytes.push_str(abbreviation);
        bytes.push_str(" [");
        push_decimal(bytes, u64::from(*pid));
        bytes.push_str("] ");
        bytes.push_str(level);
        bytes.push(' ');
        if !line.subject.is_empty() {
            push_clean(bytes, &line.subject);
            bytes.push(' ');
        }
        push_clean(bytes, &line.text);
        bytes.push('\n');
    }

    fn record(&mut self, line: &LogLine) {
        let mut text = String::new();
        if !line.subject.is_empty() {
            push_clean(&mut text, &line.subject);
            text.push(' ');
        }
        push_clean(&mut text, &line.text);
        self.records.push(Record {
            level: line.level,
            time: self.syslog_time.clone(),
            text,
        });
        if self.records.len() >= RECORDS_MAX {
            self.flush();
        }
    }

    /// Adds a detail, if the settings ask for details.
    pub(crate) fn detail(&mut self, now: Time, text: impl FnOnce() -> String) {
        if self.log.is_verbose() {
            self.line(now, &LogLine::new(Level::Debug, "", text()));
        }
    }

    /// Adds a line that is about no connection, and writes it.
    pub(crate) fn say(&mut self, now: Time, level: Level, text: impl Into<String>) {
        self.say_line(now, &LogLine::new(level, "", text));
    }

    /// Adds a line, and writes it.
    pub(crate) fn say_line(&mut self, now: Time, line: &LogLine) {
        self.line(now, line);
        self.flush();
    }

    /// Returns whether all lines so far are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.records.is_empty()
    }

    /// Writes the collected lines.
    pub(crate) fn flush(&mut self) {
        if !self.bytes.is_empty() {
            self.log.write(self.bytes.as_bytes(), |text| {
                let mut warning = String::new();
                let line = LogLine::new(Level::Warning, "", text);
                self.push_line(&mut warning, 0, &line);
                warning
            });
            self.bytes.clear();
            self.bytes.shrink_to(BUFFER_BYTES);
        }
        if !self.records.is_empty() {
            let records = mem::take(&mut self.records);
            self.log.0.syslog.send(self.pid, &records);
        }
    }

    fn set_second(&mut self, second: u64) {
        let timestamp =
            Timestamp::from_second(i64::try_from(second).unwrap_or(i64::MAX)).unwrap_or_default();
        let local = timestamp.to_zoned(self.zone.clone());
        self.date = local.strftime("%Y-%m-%d %H:%M:%S").to_string();
        self.abbreviation = local.strftime("%Z").to_string();
        self.syslog_time = local.strftime("%b %e %H:%M:%S").to_string();
        self.utc = timestamp.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        self.second = second;
    }
}

/// Names and messages come from the network: a line break or an escape code in them must not
/// forge a line or command a terminal.
fn push_clean(line: &mut String, text: &str) {
    // In UTF-8, 0xc2 is the first byte of the control characters above ASCII.
    let needs_care = |byte: u8| byte < b' ' || byte == 0x7f || byte == 0xc2;
    // The loop has no early exit, so that the compiler can examine many bytes at once. Nearly all texts are clean.
    if !text
        .bytes()
        .fold(false, |found, byte| found | needs_care(byte))
    {
        return line.push_str(text);
    }
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\n\t"),
            '\t' => line.push('\t'),
            control if control.is_control() => {
                let _ = write!(line, "\\x{:02x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> LogBuffer {
        LogBuffer {
            zone: TimeZone::UTC,
            pid: 42,
            clock: |now| now,
            ..Log::new(0, true).buffer()
        }
    }

    #[test]
    fn lines_have_pgbouncers_form() {
        let mut buffer = buffer();
        let now = Time(1_795_255_200_123_456);
        let subject = "C-0x1f: db/user@127.0.0.1:4711";
        buffer.line(now, &LogLine::new(Level::Log, subject, "login attempt"));
        let expected =
            "2026-11-21 10:00:00.123 UTC [42] LOG C-0x1f: db/user@127.0.0.1:4711 login attempt\n";
        assert_eq!(buffer.bytes, expected);
    }

    #[test]
    fn times_follow_the_clock() {
        const DAY: u64 = 86_400_000_000;
        let mut buffer = buffer();
        let start = 1_795_255_200_123_456;
        let line = LogLine::new(Level::Log, "", "x");
        buffer.line(Time(start), &line);
        buffer.clock = |now| Time(now.0 + DAY);
        // The clock is read again in the next second.
        buffer.line(Time(start + 1_000_000), &line);
        buffer.clock = |now| Time(now.0 - DAY);
        buffer.line(Time(start + 2_000_000), &line);
        let times: Vec<_> = buffer.bytes.lines().map(|line| &line[..19]).collect();
        let expected = [
            "2026-11-21 10:00:00",
            "2026-11-22 10:00:01",
            "2026-11-20 10:00:02",
        ];
        assert_eq!(times, expected);
    }

    #[test]
    fn line_breaks_forge_no_line() {
        let mut buffer = buffer();
        let text = "no such user: a\n2026-11-21 LOG b\u{1b}[2J";
        buffer.line(Time(0), &LogLine::new(Level::Warning, "", text));
        assert!(
            buffer
                .bytes
                .ends_with("WARNING no such user: a\n\t2026-11-21 LOG b\\x1b[2J\n")
        );
    }

    #[test]
    fn details_are_for_the_verbose() {
        let mut buffer = buffer();
        let line = LogLine::new(Level::Debug, "", "detail");
        buffer.line(Time(0), &line);
        assert_eq!(buffer.bytes, "");
        buffer.log.0.verbose.store(1, Ordering::Relaxed);
        buffer.line(Time(0), &line);
        assert!(buffer.bytes.contains("DEBUG detail"));
    }
}
