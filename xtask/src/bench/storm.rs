//! Clients that run queries while many others log in.

use std::future::Future;

use super::{
    idle_clients::IdleClients,
    measure::{Figures, Measuring, all},
};
use crate::stage::pooler::Pooler;

/// The clients of each storm of logins.
const CLIENTS: u32 = 1_000;

/// The load: queries at a fixed rate that leaves room on the processors.
const QUERIES: &[&str] = &["-S", "-c", "4", "-j", "1", "-R", "500"];

/// Returns the load as a command line.
pub(super) fn command_line(seconds: u32) -> String {
    format!(
        "pgbench -n {} -T {seconds}, without other clients, and while {CLIENTS} clients log in and leave, again and again",
        QUERIES.join(" ")
    )
}

/// Measures the latency of queries without other clients, and during storms of logins.
pub(super) async fn measure(measuring: &Measuring<'_>, pooler: Pooler) -> Result<Figures, String> {
    let calm_ms = p99_ms(measuring, pooler, std::future::pending()).await?;
    let mut logins = (0.0, 0.0);
    let storms = async {
        loop {
            let mut clients = IdleClients::start(pooler.port).map_err(|e| e.to_string())?;
            let opened = all(clients.open(CLIENTS).await?, CLIENTS)?;
            clients.close().await?;
            logins.0 += f64::from(CLIENTS);
            logins.1 += opened.seconds;
        }
    };
    let storm_ms = p99_ms(measuring, pooler, storms).await?;
    let (count, seconds) = logins;
    if count == 0.0 {
        return Err(format!("the run was too short for {CLIENTS} logins"));
    }
    Ok(Figures::from([
        ("logins_s", count / seconds),
        ("calm_p99_ms", calm_ms),
        ("p99_ms", storm_ms),
        ("added_ms", storm_ms - calm_ms),
    ]))
}

/// Returns the 99th percentile of the queries' latency while `others` run, which only end with an error.
async fn p99_ms(
    measuring: &Measuring<'_>,
    pooler: Pooler,
    others: impl Future<Output = Result<std::convert::Infallible, String>>,
) -> Result<f64, String> {
    let load = measuring.load(pooler.port, QUERIES, measuring.seconds, 1.0);
    tokio::select! {
        outcome = measuring.run(&load) => { outcome?; }
        Err(words) = others => return Err(words),
    }
    let p99 = measuring.latencies().get("p99_ms").copied();
    p99.ok_or_else(|| "too few transactions for a percentile".to_owned())
}
