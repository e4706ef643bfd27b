//! Series of the statements on which servers have spent most time.

use pgweir_core::{metrics::StatementMetrics, statement_statistics::Counts};

use crate::http::exposition::{Exposition, Kind};

/// The largest number of bytes of a statement's text in a label.
const TEXT_MAX: usize = 120;

/// A counter: its name, its help, and the function that reads it.
type Counter = (&'static str, &'static str, fn(&Counts) -> u64);

const COUNTERS: [Counter; 7] = [
    ("calls", "How often the statement ran.", |counts| {
        counts.calls
    }),
    ("errors", "Errors of the statement.", |counts| counts.errors),
    (
        "rows",
        "Rows that the statement returned or changed.",
        |counts| counts.rows,
    ),
    (
        "received_bytes",
        "Bytes from clients for the statement.",
        |counts| counts.received,
    ),
    (
        "sent_bytes",
        "Bytes to clients for the statement.",
        |counts| counts.sent,
    ),
    (
        "pins",
        "Clients that were pinned after the statement.",
        |counts| counts.pins,
    ),
    (
        "inspections",
        "Inspections of the session after the statement.",
        |counts| counts.inspections,
    ),
];

/// Times in microseconds: the name, the help, and the function that reads them.
const TIMES: [Counter; 2] = [
    (
        "server_seconds",
        "Time from the statement's request to the end of the answer.",
        |counts| counts.server_times().sum(),
    ),
    (
        "wait_seconds",
        "Time that transactions which began with the statement waited for a server.",
        |counts| counts.wait,
    ),
];

pub(super) fn write(metrics: &StatementMetrics, text: &mut Exposition) {
    for (counters, are_times) in [(&COUNTERS[..], false), (&TIMES[..], true)] {
        for &(name, help, of) in counters {
            let name = format!("pgweir_statement_{name}");
            let mut family = text.family(&name, Kind::Counter, help);
            for row in &metrics.slowest {
                let labels = [
                    ("database", &*row.pool.database),
                    ("user", &*row.pool.user),
                    ("fingerprint", &format!("{:016x}", row.fingerprint)),
                    ("statement", shorten(&row.text)),
                ];
                match are_times {
                    true => family.add_micros(&labels, of(&row.counts)),
                    false => family.add(&labels, of(&row.counts)),
                }
            }
        }
    }
    let help = "Statements without series of their own: see metrics_max_statements.";
    let folded = metrics.folded as u64;
    text.gauge("pgweir_metrics_folded_statements", help, folded);
    let help = "Entries of SHOW STATEMENTS, of all workers.";
    text.gauge("pgweir_statement_entries", help, metrics.entries as u64);
    let help = "Entries of SHOW STATEMENTS that made room for others: see statement_statistics.";
    text.family("pgweir_statement_evictions", Kind::Counter, help)
        .add(&[], metrics.evicted);
    let help = "Transactions that took longer than log_slow_transactions.";
    text.family("pgweir_slow_transactions", Kind::Counter, help)
        .add(&[], metrics.slow_transactions);
}

fn shorten(text: &str) -> &str {
    let ends = 0..=TEXT_MAX.min(text.len());
    let end = ends.rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}
