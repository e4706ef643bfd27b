//! Sends lines to syslog, one datagram each.

use std::{
    os::unix::net::UnixDatagram,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use pgweir_config::SyslogFacility;
use pgweir_core::Level;

/// The largest line. Longer lines are cut: syslog daemons have limits, often 8 kB.
const BYTES_MAX: usize = 8 * 1024;

/// The settings for syslog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyslogPlan {
    /// The socket of the daemon.
    pub(crate) socket: PathBuf,
    /// The name of pgweir in syslog.
    pub(crate) ident: String,
    pub(crate) facility: SyslogFacility,
}

/// A sender to a syslog daemon, which need not run yet, or may be restarted.
#[derive(Debug)]
pub(super) struct Syslog {
    /// The socket, or `None` if the system refused one.
    socket: Option<UnixDatagram>,
    plan: RwLock<Option<SyslogPlan>>,
    /// The number of lines that the daemon did not accept since the last accepted line.
    lost: AtomicU64,
}

impl Syslog {
    pub(super) fn new() -> Self {
        let open = || {
            let socket = UnixDatagram::unbound()?;
            // A slow daemon must not delay queries.
            socket.set_nonblocking(true).map(|()| socket)
        };
        Self {
            socket: open().ok(),
            plan: RwLock::new(None),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, plan: Option<SyslogPlan>) {
        *self.plan.write() = plan;
    }

    /// Sends records: level, time (`Nov 21 10:00:00`) and text of each.
    pub(super) fn send(&self, pid: u32, records: &[Record]) {
        let plan = self.plan.read();
        let Some(plan) = plan.as_ref() else {
            return;
        };
        for record in records {
            let lost = self.lost.load(Ordering::Relaxed);
            if lost > 0 {
                let text =
                    format!("{lost} lines before this one were lost: syslog did not take them");
                let note = Record {
                    level: Level::Warning,
                    time: record.time.clone(),
                    text,
                };
                if !self.send_one(plan, pid, &note) {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                self.lost.fetch_sub(lost, Ordering::Relaxed);
            }
            if !self.send_one(plan, pid, record) {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn send_one(&self, plan: &SyslogPlan, pid: u32, record: &Record) -> bool {
        let datagram = datagram(plan, pid, record);
        self.socket
            .as_ref()
            .is_some_and(|socket| socket.send_to(datagram.as_bytes(), &plan.socket).is_ok())
    }
}

/// One line for syslog.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) level: Level,
    pub(super) time: String,
    pub(super) text: String,
}

fn datagram(plan: &SyslogPlan, pid: u32, record: &Record) -> String {
    let severity = match record.level {
        Level::Fatal => 2,
        Level::Error => 3,
        Level::Warning => 4,
        Level::Log => 6,
        Level::Debug => 7,
    };
    let priority = facility_code(plan.facility) * 8 + severity;
    let mut text = format!(
        "<{priority}>{} {}[{pid}]: {}",
        record.time, plan.ident, record.text
    );
    if text.len() > BYTES_MAX {
        let end = (0..=BYTES_MAX)
            .rev()
            .find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
    }
    text
}

fn facility_code(facility: SyslogFacility) -> u32 {
    match facility {
        SyslogFacility::User => 1,
        SyslogFacility::Daemon => 3,
        SyslogFacility::Auth => 4,
        SyslogFacility::Authpriv => 10,
        SyslogFacility::Local0 => 16,
        SyslogFacility::Local1 => 17,
        SyslogFacility::Local2 => 18,
        SyslogFacility::Local3 => 19,
        SyslogFacility::Local4 => 20,
        SyslogFacility::Local5 => 21,
        SyslogFacility::Local6 => 22,
        SyslogFacility::Local7 => 23,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(level: Level, text: &str) -> Record {
        Record {
            level,
            time: "Nov 21 10:00:00".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn lines_that_the_socket_does_not_accept_are_counted() {
        let folder = tempfile::tempdir().expect("folder");
        let plan = SyslogPlan {
            socket: folder.path().join("log"),
            ident: "pooler".to_owned(),
            facility: SyslogFacility::Local3,
        };
        let syslog = Syslog::new();
        syslog.send(1, &[record(Level::Log, "not asked for")]);
        syslog.set(Some(plan.clone()));
        syslog.send(1, &[record(Level::Log, "a"), record(Level::Log, "b")]);
        let daemon = UnixDatagram::bind(&plan.socket).expect("bound");
        syslog.send(
            42,
            &[record(Level::Log, "up"), record(Level::Fatal, "down")],
        );
        let taken = || {
            let mut text = [0; 200];
            let length = daemon.recv(&mut text).expect("taken");
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        let head = "Nov 21 10:00:00 pooler[42]: ";
        assert_eq!(
            taken(),
            format!("<156>{head}2 lines before this one were lost: syslog did not take them")
        );
        assert_eq!(taken(), format!("<158>{head}up"));
        assert_eq!(taken(), format!("<154>{head}down"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let plan = SyslogPlan {
            socket: PathBuf::new(),
            ident: "p".to_owned(),
            facility: SyslogFacility::Daemon,
        };
        let text = datagram(&plan, 1, &record(Level::Log, &"é".repeat(BYTES_MAX)));
        assert!(text.starts_with("<30>") && (BYTES_MAX - 1..=BYTES_MAX).contains(&text.len()));
    }
}
