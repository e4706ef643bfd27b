//! Load by pgbench, and the figures that pgbench reports.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::time::timeout;

use super::{account::own_command, pooler::PASSWORD, postgres};

/// The time that pgbench may take beyond its running time, for connecting and for the last answers.
const SLACK: Duration = Duration::from_secs(90);

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    /// The run ends after this number of seconds.
    Seconds(u32),
    /// The run ends after this number of transactions of each client.
    Transactions(u32),
}

/// A run of pgbench.
pub(crate) struct Load<'a> {
    /// The program.
    pub(crate) program: PathBuf,
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    /// The end of the run.
    pub(crate) length: Length,
    /// Clients, protocol, script.
    pub(crate) arguments: &'a [&'a str],
    /// Whether the clients use TLS.
    pub(crate) tls: bool,
    /// The startup parameter `options` of the clients, which libpq takes from `PGOPTIONS`; may be empty.
    pub(crate) startup_options: &'a str,
    /// The log of transactions, if pgbench writes one.
    pub(crate) log: Option<TransactionLog>,
    /// The folder of these files.
    pub(crate) directory: &'a Path,
}

/// A log of a sample of the transactions.
pub(crate) struct TransactionLog {
    /// The prefix of the files' paths.
    pub(crate) prefix: PathBuf,
    /// The part of the transactions that are logged: above 0, at most 1.
    pub(crate) sampling_rate: f64,
}

/// The figures that pgbench reported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// Transactions done.
    pub(crate) transactions: u64,
    /// Transactions that failed.
    pub(crate) failed: u64,
    /// Transactions per second.
    pub(crate) tps: f64,
    /// Mean latency.
    pub(crate) latency_ms: f64,
    /// Time to connect: of all clients together at the start, or the mean of each when it
    /// connects for each transaction.
    pub(crate) connect_ms: Option<f64>,
}

impl Load<'_> {
    /// Runs pgbench.
    ///
    /// # Errors
    ///
    /// The most telling line of pgbench's output, if pgbench failed or did not end.
    pub(crate) async fn run(&self) -> Result<Outcome, String> {
        let mut command = own_command(&self.program);
        command
            .args(self.all_arguments())
            .env("PGSSLMODE", if self.tls { "require" } else { "prefer" })
            .env("PGOPTIONS", self.startup_options)
            .env("PGPASSWORD", PASSWORD)
            .current_dir(self.directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let limit = match self.length {
            Length::Seconds(seconds) => Duration::from_secs(seconds.into()) + SLACK,
            Length::Transactions(_) => SLACK,
        };
        let output = match timeout(limit, command.output()).await {
            Ok(output) => output.map_err(|e| format!("cannot run pgbench: {e}"))?,
            Err(_) => return Err(format!("pgbench did not end within {} s", limit.as_secs())),
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(result_line(&errors));
        }
        parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| result_line(&errors))
    }

    fn all_arguments(&self) -> Vec<String> {
        let mut all = vec!["-n".to_owned(), "-h".to_owned(), "127.0.0.1".to_owned()];
        all.extend(["-p".to_owned(), self.port.to_string()]);
        all.extend(["-U".to_owned(), postgres::NAME.to_owned()]);
        all.extend(match self.length {
            Length::Seconds(seconds) => ["-T".to_owned(), seconds.to_string()],
            Length::Transactions(count) => ["-t".to_owned(), count.to_string()],
        });
        all.extend(self.arguments.iter().map(|&argument| argument.to_owned()));
        if let Some(log) = &self.log {
            all.push("-l".to_owned());
            all.push(format!("--sampling-rate={}", log.sampling_rate));
            all.push(format!("--log-prefix={}", log.prefix.display()));
        }
        all.push(postgres::NAME.to_owned());
        all
    }
}

fn parse(report: &str) -> Option<Outcome> {
    let figure = |label: &str| -> Option<f64> {
        let line = report.lines().find(|line| line.starts_with(label))?;
        let text = line[label.len()..].trim_start_matches([' ', '=', ':']);
        text.split([' ', '/']).next()?.parse().ok()
    };
    let transactions = figure("number of transactions actually processed")? as u64;
    (transactions > 0).then_some(Outcome {
        transactions,
        failed: figure("number of failed transactions").unwrap_or(0.0) as u64,
        tps: figure("tps")?,
        latency_ms: figure("latency average")?,
        connect_ms: figure("average connection time").or_else(|| figure("initial connection time")),
    })
}

fn result_line(errors: &str) -> String {
    let telling = |line: &&str| line.contains("FATAL") || line.contains("ERROR");
    let line = errors
        .lines()
        .find(telling)
        .or_else(|| errors.lines().find(|line| line.contains("error")))
        .or_else(|| errors.lines().last());
    let line = line.unwrap_or("pgbench failed without a word");
    let from = line.find("FATAL").or_else(|| line.find("ERROR"));
    line[from.unwrap_or(0)..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_report() {
        let report = "transaction type: <builtin: select only>\n\
            number of transactions actually processed: 4821\n\
            number of failed transactions: 3 (0.062%)\n\
            latency average = 8.291 ms\n\
            average connection time = 0.413 ms\n\
            tps = 2412.182 (including reconnection times)\n";
        let expected = Outcome {
            transactions: 4821,
            failed: 3,
            tps: 2412.182,
            latency_ms: 8.291,
            connect_ms: Some(0.413),
        };
        assert_eq!(parse(report), Some(expected));
    }

    #[test]
    fn a_run_without_a_transaction_is_no_outcome() {
        assert_eq!(
            parse("number of transactions actually processed: 0/0\ntps = 0.0\n"),
            None
        );
    }

    #[test]
    fn finds_the_servers_own_words() {
        let errors = "pgbench: error: connection to server at \"127.0.0.1\", port 26000 failed: \
            FATAL:  sorry, too many clients already\n\
            pgbench: error: could not create connection for client 97\n";
        assert_eq!(
            result_line(errors),
            "FATAL:  sorry, too many clients already"
        );
    }
}
