//! Monitoring for a pgweir that is measured with `--watched`: Prometheus, which scrapes it each second, the live
//! page in a browser, and a collector of its traces.

use std::{
    net::{Ipv4Addr, TcpListener as StdListener},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::stage::{Stage, StageError};

/// The settings of a pgweir that is not watched: it records nothing for observers.
pub(super) const UNWATCHED: &str = "event_history = 0\nstatement_statistics = 0\n";

/// The requests of the live page, with the seconds between two of each.
const PAGE: [(&str, u64); 7] = [
    ("/api/v1/show/pools", 2),
    ("/api/v1/show/databases", 2),
    ("/api/v1/show/waiters", 2),
    ("/api/v1/show/servers", 2),
    ("/api/v1/history?since=0", 4),
    ("/api/v1/show/pins", 10),
    ("/api/v1/show/events", 10),
];

/// The observers of one pgweir. They leave when this is dropped.
pub(super) struct Watchers {
    tasks: Vec<JoinHandle<()>>,
    seen: Arc<Seen>,
}

/// The counts of the answers that observers have got from pgweir.
#[derive(Debug, Default)]
struct Seen {
    /// Answers with status 200.
    answers: AtomicU64,
    /// Failed requests, other than those before pgweir listens.
    failures: AtomicU64,
    /// Requests that pgweir has sent to the collector.
    exports: AtomicU64,
}

impl Watchers {
    /// Opens the collector. Returns the observers, and the lines of pgweir's configuration for them. `name` must be
    /// different each time.
    pub(super) fn start(stage: &Stage, name: &str) -> Result<(String, Self), StageError> {
        let failed = |error| StageError::new(format!("cannot listen as a collector: {error}"));
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let folder = stage.make_directory(&format!("{name}.watchers"))?;
        let socket = folder.join("http");
        let lines = format!(
            "http_listen = {}\n\
             otlp_endpoint = http://127.0.0.1:{port}\n\
             otlp_trace_ratio = 0.01\n\
             otlp_metrics_interval = 10\n",
            socket.display()
        );
        let seen = Arc::new(Seen::default());
        let mut tasks = vec![tokio::spawn(collect(listener, Arc::clone(&seen)))];
        for (path, seconds) in [("/metrics", 1)].into_iter().chain(PAGE) {
            let asking = ask(socket.clone(), path, seconds, Arc::clone(&seen));
            tasks.push(tokio::spawn(asking));
        }
        Ok((lines, Self { tasks, seen }))
    }

    /// Returns the counts of the observers' answers.
    ///
    /// # Errors
    ///
    /// The observers have got no answer, or an error: then pgweir was not measured under observation.
    pub(super) fn summary(&self) -> Result<String, StageError> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (answers, failures) = (of(&self.seen.answers), of(&self.seen.failures));
        if answers == 0 || failures > 0 {
            let what = format!("watchers got {answers} answers, and {failures} requests failed");
            return Err(StageError::new(what));
        }
        let exports = of(&self.seen.exports);
        Ok(format!("{answers} answers, {exports} exports"))
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Asks for a page again and again.
async fn ask(socket: PathBuf, path: &'static str, seconds: u64, seen: Arc<Seen>) {
    let mut times = interval(Duration::from_secs(seconds));
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        // While pgweir starts, there is no socket yet.
        if let Ok(stream) = UnixStream::connect(&socket).await {
            let count = match ask_once(stream, path).await {
                Ok(true) => &seen.answers,
                Ok(false) | Err(_) => &seen.failures,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends a request. Returns whether it was answered with status 200.
async fn ask_once(mut stream: UnixStream, path: &str) -> std::io::Result<bool> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}

/// Accepts all requests, and answers each with success.
async fn collect(listener: TcpListener, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move { drop(take(stream, &seen).await) });
    }
}

async fn take(stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            let header = line.split_once(':');
            let header = header.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            if let Some((_, value)) = header {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        seen.exports.fetch_add(1, Ordering::Relaxed);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.get_mut().write_all(answer).await?;
    }
}
