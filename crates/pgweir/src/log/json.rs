//! Log lines as JSON objects, one per line.

use std::fmt::Write as _;

use pgweir_core::{Audit, Level, LogLine, statement_statistics::SlowTransaction};

/// Appends a line. `time` is in UTC, up to the second.
pub(super) fn push(out: &mut String, time: &str, millis: u64, pid: u32, line: &LogLine) {
    // Writing to a string can't fail.
    let _ = write!(
        out,
        "{{\"time\":\"{time}.{millis:03}Z\",\"pid\":{pid},\"level\":\"{}\"",
        level_name(line.level)
    );
    if !line.subject.is_empty() {
        push_field(out, "connection", &line.subject);
    }
    push_field(out, "message", &line.text);
    if let Some(audit) = &line.audit {
        push_audit(out, audit);
    }
    if let Some(slow) = &line.slow {
        push_slow(out, slow);
    }
    out.push_str("}\n");
}

/// Returns the name of a level, as PgBouncer spells it.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Debug => "DEBUG",
        Level::Log => "LOG",
        Level::Warning => "WARNING",
        Level::Error => "ERROR",
        Level::Fatal => "FATAL",
    }
}

fn push_audit(out: &mut String, audit: &Audit) {
    let _ = write!(out, ",\"audit\":{{\"action\":\"{}\"", audit.action);
    if !audit.command.is_empty() {
        push_field(out, "command", &audit.command);
    }
    push_field(out, "user", &audit.user);
    push_field(out, "database", &audit.database);
    push_field(out, "address", &audit.address);
    push_field(out, "outcome", &audit.outcome);
    out.push('}');
}

fn push_slow(out: &mut String, slow: &SlowTransaction) {
    let _ = write!(
        out,
        ",\"slow_transaction\":{{\"duration_us\":{},\"wait_us\":{},\"server_us\":{},\"statement_count\":{},\"errors\":{}",
        slow.duration, slow.wait, slow.server, slow.statements, slow.errors
    );
    out.push_str(",\"statements\":[");
    for (at, (fingerprint, text)) in slow.listed.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{{\"fingerprint\":\"{fingerprint:016x}\"");
        push_field(out, "statement", text);
        out.push('}');
    }
    out.push_str("]}");
}

/// Appends a field after another one.
fn push_field(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, ",\"{name}\":\"");
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &LogLine) -> String {
        let mut out = String::new();
        push(&mut out, "2026-11-21T10:00:00", 7, 42, line);
        out
    }

    #[test]
    fn lines() {
        let line = LogLine::new(
            Level::Warning,
            "C-0x1f: db/a\"b@unix:1",
            "x\ny\\z\u{1b}\u{9b}",
        );
        let expect = concat!(
            r#"{"time":"2026-11-21T10:00:00.007Z","pid":42,"level":"WARNING","#,
            r#""connection":"C-0x1f: db/a\"b@unix:1","message":"x\ny\\z\u001b\u009b"}"#,
            "\n"
        );
        assert_eq!(made(&line), expect);
    }

    #[test]
    fn slow_transactions() {
        let slow = SlowTransaction {
            duration: 1_500_000,
            wait: 1_000,
            server: 400_000,
            statements: 3,
            errors: 0,
            listed: vec![(1, "BEGIN".to_owned()), (2, "SELECT \"a\", ?".to_owned())],
        };
        let line = LogLine {
            slow: Some(Box::new(slow)),
            ..LogLine::new(Level::Log, "C-0x1f: app/ann@unix:1", "slow")
        };
        let expect = concat!(
            r#"{"time":"2026-11-21T10:00:00.007Z","pid":42,"level":"LOG","#,
            r#""connection":"C-0x1f: app/ann@unix:1","message":"slow","slow_transaction":{"#,
            r#""duration_us":1500000,"wait_us":1000,"server_us":400000,"statement_count":3,"#,
            r#""errors":0,"statements":[{"fingerprint":"0000000000000001","statement":"BEGIN"},"#,
            r#"{"fingerprint":"0000000000000002","statement":"SELECT \"a\", ?"}]}}"#,
            "\n"
        );
        assert_eq!(made(&line), expect);
    }

    #[test]
    fn audit_lines() {
        let audit = Audit {
            action: "command",
            command: "PAUSE app".to_owned(),
            user: "ann".to_owned(),
            database: "pgbouncer".to_owned(),
            address: "10.0.0.7:1".to_owned(),
            outcome: "ok".to_owned(),
        };
        let line = LogLine {
            audit: Some(Box::new(audit.clone())),
            ..LogLine::new(Level::Log, "", audit.text())
        };
        let expect = concat!(
            r#"{"time":"2026-11-21T10:00:00.007Z","pid":42,"level":"LOG","#,
            r#""message":"audit: command \"PAUSE app\": ok","audit":{"action":"command","#,
            r#""command":"PAUSE app","user":"ann","database":"pgbouncer","#,
            r#""address":"10.0.0.7:1","outcome":"ok"}}"#,
            "\n"
        );
        assert_eq!(made(&line), expect);
    }
}
