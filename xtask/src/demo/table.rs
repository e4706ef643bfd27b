//! The table at the end of the demo.

use super::Run;
use crate::stage::{Terminal, pgbench::Outcome};

const RATIO: &str = "  ratio, pgweir to direct";

/// The figures of the same load without pgweir and with it.
pub(crate) struct Pair {
    /// The load in a few words.
    pub(crate) what: &'static str,
    /// The run with PostgreSQL alone.
    pub(crate) direct: Run,
    /// The run through pgweir.
    pub(crate) pooled: Run,
}

/// Prints the table.
pub(crate) fn print(terminal: &Terminal, pairs: &[Pair]) {
    terminal.heading("What came out");
    terminal.line(&format!(
        "{:<34} {:>9} {:>8} {:>12} {:>12} {:>12}",
        "", "tps", "failed", "latency ms", "connect ms", "servers"
    ));
    for pair in pairs {
        terminal.line(&row(pair.what, "directly", &pair.direct));
        terminal.line(&row(pair.what, "through pgweir", &pair.pooled));
        terminal.line(&ratio(pair));
    }
    terminal.line("connect: of all clients together at the start; for short connections, of each.");
    terminal
        .line("servers: the most connections that PostgreSQL had at once, looked at every 2 s.");
}

fn row(what: &str, way: &str, run: &Run) -> String {
    let label = format!("{what}, {way}");
    match &run.outcome {
        Ok(outcome) => format!(
            "{label:<34} {:>9} {:>8} {:>12.2} {:>12} {:>12}",
            thousands(outcome.tps),
            outcome.failed,
            outcome.latency_ms,
            outcome
                .connect_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}")),
            run.connections_seen
                .map_or_else(|| "-".to_owned(), |count| count.to_string()),
        ),
        Err(words) => format!("{label:<34} {words}"),
    }
}

fn ratio(pair: &Pair) -> String {
    let (Ok(direct), Ok(pooled)) = (&pair.direct.outcome, &pair.pooled.outcome) else {
        return format!("{:<34} none: one of them was turned away", RATIO);
    };
    let connect = |outcome: &Outcome| outcome.connect_ms.unwrap_or(f64::NAN);
    format!(
        "{:<34} {:>9} {:>8} {:>12} {:>12}",
        RATIO,
        times(pooled.tps / direct.tps),
        "",
        times(pooled.latency_ms / direct.latency_ms),
        times(connect(pooled) / connect(direct)),
    )
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("x {ratio:.2}")
    } else {
        "-".to_owned()
    }
}

/// Returns a rounded number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn groups_digits() {
        for (value, expected) in [(7.2, "7"), (999.6, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(thousands(value), expected);
        }
    }
}
