//! Many idle clients in a separate process, which has its own limit of open files.
//!
//! The child reads orders from standard input, one per line (`open N`, `ask`, `prepare N`, `close`), and answers each
//! with one line: `done N SECONDS` or `failed N WORDS`, where N is the number of clients that it worked for.

use std::{
    io::{BufRead, Write, stdin, stdout},
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::client;
use crate::stage::{StageError, postgres, raise_descriptor_limit};

/// The number of clients that log in or send a query at the same time.
const AT_ONCE: usize = 50;

/// The time that the child process may take for an order.
const ORDER_LIMIT: Duration = Duration::from_secs(300);

/// The child, seen from the benchmark.
pub(super) struct IdleClients {
    _child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The result of an order.
#[derive(Debug, Clone)]
pub(super) struct Done {
    /// Clients for which it succeeded.
    pub(super) clients: u32,
    /// Seconds that it took.
    pub(super) seconds: f64,
    /// The first failure.
    pub(super) failure: Option<String>,
}

impl IdleClients {
    /// Starts the child.
    pub(super) fn start(port: u16) -> Result<Self, StageError> {
        let failed = |e| {
            StageError::new(format!(
                "cannot start the process with the idle clients: {e}"
            ))
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["idle-clients", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(StageError::new(
                "the process with the idle clients has no pipes",
            ));
        };
        Ok(Self {
            _child: child,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Logs in this number of clients, beside those that are there.
    pub(super) async fn open(&mut self, clients: u32) -> Result<Done, String> {
        self.order(&format!("open {clients}")).await
    }

    /// Each client runs a query.
    pub(super) async fn ask(&mut self) -> Result<Done, String> {
        self.order("ask").await
    }

    /// Makes each client prepare this number of statements, the same ones for all; once only.
    pub(super) async fn prepare(&mut self, statements: u32) -> Result<Done, String> {
        self.order(&format!("prepare {statements}")).await
    }

    /// All clients leave.
    pub(super) async fn close(&mut self) -> Result<Done, String> {
        self.order("close").await
    }

    async fn order(&mut self, order: &str) -> Result<Done, String> {
        let line = format!("{order}\n");
        let sent = self.orders.write_all(line.as_bytes()).await;
        sent.map_err(|e| format!("the process with the idle clients has ended: {e}"))?;
        let mut answer = String::new();
        match timeout(ORDER_LIMIT, self.answers.read_line(&mut answer)).await {
            Ok(Ok(_)) => parse_answer(&answer)
                .ok_or_else(|| "the process with the idle clients has ended".to_owned()),
            Ok(Err(e)) => Err(format!("the process with the idle clients has ended: {e}")),
            Err(_) => Err(format!(
                "the process with the idle clients does not answer `{order}`"
            )),
        }
    }
}

fn parse_answer(line: &str) -> Option<Done> {
    let mut words = line.trim_end().splitn(4, ' ');
    let verdict = words.next()?;
    let clients = words.next()?.parse().ok()?;
    let seconds = words.next()?.parse().ok()?;
    Some(Done {
        clients,
        seconds,
        failure: (verdict == "failed").then(|| words.next().unwrap_or("?").to_owned()),
    })
}

/// The child: serves orders until standard input ends.
pub(super) fn serve(arguments: &[String]) -> ExitCode {
    let port = arguments.get(1).and_then(|port| port.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let (Some(port), Ok(runtime)) = (port, runtime) else {
        return ExitCode::FAILURE;
    };
    // If the limit is too low, `open` fails with the system's message.
    let _ = raise_descriptor_limit(0);
    let mut clients = Vec::new();
    for line in stdin().lock().lines().map_while(Result::ok) {
        let began = Instant::now();
        let before = clients.len();
        let (served, failure) = runtime.block_on(obey(&line, port, &mut clients, before));
        let seconds = began.elapsed().as_secs_f64();
        let answer = match failure {
            None => format!("done {served} {seconds:.6}"),
            Some(words) => format!("failed {served} {seconds:.6} {}", words.replace('\n', " ")),
        };
        if writeln!(stdout(), "{answer}").is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

async fn obey(
    order: &str,
    port: u16,
    clients: &mut Vec<TcpStream>,
    before: usize,
) -> (usize, Option<String>) {
    match order.split_once(' ') {
        Some(("open", count)) => {
            let count = count.parse().unwrap_or(0);
            let failure = open_all(port, count, clients).await;
            (clients.len() - before, failure)
        }
        Some(("prepare", count)) => {
            let request = prepare_request(count.parse().unwrap_or(0));
            let failure = ask_all(clients, request).await;
            (clients.len(), failure)
        }
        None if order == "ask" => {
            let failure = ask_all(clients, client::message(b"Q", b"select 1\0")).await;
            (clients.len(), failure)
        }
        None if order == "close" => {
            clients.clear();
            (before, None)
        }
        _ => (0, Some(format!("no such order: {order}"))),
    }
}

async fn open_all(port: u16, count: usize, clients: &mut Vec<TcpStream>) -> Option<String> {
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let share = count / AT_ONCE + usize::from(task < count % AT_ONCE);
        tasks.spawn(async move {
            let mut opened = Vec::with_capacity(share);
            for _ in 0..share {
                match client::log_in(port, postgres::NAME).await {
                    Ok(client) => opened.push(client),
                    Err(words) => return (opened, Some(words)),
                }
            }
            (opened, None)
        });
    }
    gather(tasks, clients).await
}

/// Returns Parse messages of names and texts that all clients share, and a Sync.
fn prepare_request(count: u32) -> Arc<[u8]> {
    let mut request = Vec::new();
    for number in 1..=count {
        let filler = "a statement as long as statements are ".repeat(10);
        let body = format!("S_{number}\0select '{filler}', {number}, $1::text\0\0\0");
        request.extend_from_slice(&client::message(b"P", body.as_bytes()));
    }
    request.extend_from_slice(&client::message(b"S", b""));
    request.into()
}

/// Each client sends a request that is answered by one ReadyForQuery.
async fn ask_all(clients: &mut Vec<TcpStream>, request: impl Into<Arc<[u8]>>) -> Option<String> {
    let request = request.into();
    let mut tasks = JoinSet::new();
    let share = clients.len().div_ceil(AT_ONCE).max(1);
    while !clients.is_empty() {
        let mut group = clients.split_off(clients.len().saturating_sub(share));
        let request = Arc::clone(&request);
        tasks.spawn(async move {
            let mut answered = Vec::with_capacity(group.len());
            let mut failure = None;
            for mut client in group.drain(..) {
                match client::ask(&mut client, &request).await {
                    Ok(()) => answered.push(client),
                    Err(words) => failure = failure.or(Some(words)),
                }
            }
            (answered, failure)
        });
    }
    gather(tasks, clients).await
}

async fn gather(
    mut tasks: JoinSet<(Vec<TcpStream>, Option<String>)>,
    clients: &mut Vec<TcpStream>,
) -> Option<String> {
    let mut failure = None;
    while let Some(result) = tasks.join_next().await {
        match result {
            Ok((group, words)) => {
                clients.extend(group);
                failure = failure.or(words);
            }
            Err(e) => failure = failure.or(Some(e.to_string())),
        }
    }
    failure
}
