//! `pgweir drain`: lets the clients of a running pgweir leave, so that it can be stopped without a failed transaction.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::Args;
use pgweir_config::{Config, HttpAddress, Problems};

use crate::{
    clock::Clock,
    http::{self, CLIENTS_LEAVE, WITHIN},
};

/// The time between two requests for the number of clients that are left.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The time that pgweir has for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The maximum number of bytes of an answer.
const ANSWER_MAX: u64 = 64 * 1024;

/// The exit code if clients are left when the time is over.
const CLIENTS_STAYED: u8 = 2;

/// The options of `pgweir drain`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DrainOptions {
    /// The configuration file of the running pgweir. Its http_listen names a Unix socket.
    ini: PathBuf,
    /// Seconds between the moment when /readyz says no and the moment when clients begin to leave: the time that load
    /// balancers need to notice.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    delay: Duration,
    /// Seconds that the clients have to leave after that; the exit code is 2 if some are left then.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Print this help.
    #[arg(short, long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The reason why pgweir can't be drained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    /// The configuration has problems.
    #[error("{0}")]
    Ini(#[from] Problems),
    /// The ini file has no Unix socket in `http_listen`, so there is no address for the requests.
    #[error(
        "{}: http_listen names no Unix socket, which pgweir drain sends its requests to: add one, such as /run/pgweir/http.sock", .0.display()
    )]
    NoSocket(PathBuf),
    /// pgweir does not listen there.
    #[error(
        "cannot connect to {socket}: {error}: check that pgweir runs with this configuration, and run pgweir drain as root or as pgweir's user"
    )]
    Connect { socket: String, error: io::Error },
    /// There is no answer, or one that can't be understood.
    #[error("{socket}: no answer: {error}")]
    Answer { socket: String, error: io::Error },
    /// pgweir refuses the request.
    #[error("{socket}: pgweir refuses: {answer}: run pgweir drain as root or as pgweir's user")]
    Refused { socket: String, answer: String },
}

/// The outcome of a drain.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// No client is left.
    Left,
    /// This number of clients is left.
    Stayed(usize),
    /// The process has ended by itself.
    Ended,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number @ 0.0..=86_400.0) => Ok(Duration::from_secs_f64(number)),
        Ok(_) => Err("must be from 0 to 86400".to_owned()),
        Err(_) => Err("not a number of seconds".to_owned()),
    }
}

/// Runs `pgweir drain`. Returns exit code 0 when no client is left, and 2 if clients are left when the time is over.
///
/// # Errors
/// When pgweir can't be reached, or refuses the orders.
pub(crate) fn run(options: &DrainOptions) -> Result<ExitCode, DrainError> {
    let process = Process {
        socket: http_socket(&options.ini)?,
        clock: Clock::start(),
    };
    let mut out = io::stderr();
    let mut say = |text: &str| {
        // A drain goes on without a terminal.
        let _ = writeln!(out, "pgweir drain: {text}");
    };
    process.order("/drain")?;
    say(&format!(
        "/readyz says no from now on; clients begin to leave in {} s",
        options.delay.as_secs_f64()
    ));
    pause(options.delay);
    let seconds = options.timeout.as_secs_f64();
    Ok(match process.send_clients_away(options.timeout)? {
        Outcome::Left => {
            say("no client is left: pgweir can be stopped");
            ExitCode::SUCCESS
        }
        Outcome::Ended => {
            say("pgweir has ended");
            ExitCode::SUCCESS
        }
        Outcome::Stayed(left) => {
            let left_by_now = http::clients_left(left);
            let why = match left {
                1 => {
                    "it is in a transaction or a base backup (SHOW CLIENTS lists it), and leaves when that ends"
                }
                _ => {
                    "they are in transactions or base backups (SHOW CLIENTS lists them), and leave when these end"
                }
            };
            say(&format!("{left_by_now} after {seconds} s: {why}"));
            ExitCode::from(CLIENTS_STAYED)
        }
    })
}

/// Returns the Unix socket of `http_listen`.
fn http_socket(ini: &Path) -> Result<String, DrainError> {
    let config = Config::load(ini, &mut |path| fs::read_to_string(path))?;
    let addresses = config.settings.http_listen.addresses().iter();
    let mut sockets = addresses.filter_map(|address| match address {
        HttpAddress::Unix(path) => Some(path.clone()),
        HttpAddress::Tcp { .. } => None,
    });
    sockets
        .next()
        .ok_or_else(|| DrainError::NoSocket(ini.to_owned()))
}

/// Waits. The process that is drained is another one, and gives no sign to wait for.
#[allow(
    clippy::disallowed_methods,
    reason = "load balancers give no sign when they have noticed, so the time is what is waited for"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// The process that is drained.
struct Process {
    socket: String,
    clock: Clock,
}

impl Process {
    /// Lets clients leave, and waits until none is left, the time is over, or the process has ended.
    fn send_clients_away(&self, time: Duration) -> Result<Outcome, DrainError> {
        let until = self.clock.now().after(time.as_micros() as u64);
        let order = format!("/drain?{CLIENTS_LEAVE}&{WITHIN}{}", time.as_secs_f64());
        loop {
            let answer = match self.order(&order) {
                Ok(answer) => answer,
                Err(DrainError::Connect { error, .. }) if has_ended(&error) => {
                    return Ok(Outcome::Ended);
                }
                Err(error) => return Err(error),
            };
            match clients_left(&answer) {
                None => return Err(self.refused(answer)),
                Some(0) => return Ok(Outcome::Left),
                Some(left) if self.clock.now() >= until => return Ok(Outcome::Stayed(left)),
                Some(_) => pause(ASK_AGAIN),
            }
        }
    }

    /// Sends a POST, and returns the body of the answer.
    fn order(&self, path: &str) -> Result<String, DrainError> {
        let stream = UnixStream::connect(&self.socket).map_err(|error| DrainError::Connect {
            socket: self.socket.clone(),
            error,
        })?;
        let answer = exchange(stream, path).map_err(|error| DrainError::Answer {
            socket: self.socket.clone(),
            error,
        })?;
        match parse(&answer) {
            Some((200, body)) => Ok(body.to_owned()),
            Some((_, body)) => Err(self.refused(body.to_owned())),
            None => Err(self.refused(answer)),
        }
    }

    fn refused(&self, answer: String) -> DrainError {
        DrainError::Refused {
            socket: self.socket.clone(),
            answer,
        }
    }
}

/// Returns whether nobody listens on the socket any more.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}

fn exchange(mut stream: UnixStream, path: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: pgweir\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the status and the body of an answer over HTTP.
fn parse(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    Some((status.parse().ok()?, body.trim_end()))
}

/// Returns the number in the answer to the request that lets clients leave.
fn clients_left(answer: &str) -> Option<usize> {
    let number = answer.split(' ').next()?.parse().ok()?;
    (answer == http::clients_left(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread::JoinHandle};

    use super::*;

    /// Answers one request with each of these statuses and bodies. Returns the lines of the requests in the end.
    fn answering(socket: &Path, answers: &'static [(&str, &str)]) -> JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).expect("bound");
        thread::spawn(move || {
            let mut lines = Vec::new();
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a request");
                    request.extend(byte);
                }
                let request = String::from_utf8(request).expect("text");
                lines.extend(request.lines().next().map(str::to_owned));
                let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{body}\n");
                stream.write_all(answer.as_bytes()).expect("written");
            }
            lines
        })
    }

    fn process(folder: &Path) -> Process {
        Process {
            socket: folder.join("http.sock").display().to_string(),
            clock: Clock::start(),
        }
    }

    #[test]
    fn it_asks_until_no_client_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = process(folder.path());
        let answers = &[
            ("200 OK", "2 clients are left"),
            ("200 OK", "0 clients are left"),
        ];
        let answered = answering(Path::new(&process.socket), answers);
        let outcome = process.send_clients_away(Duration::from_secs(60));
        assert_eq!(outcome.expect("an outcome"), Outcome::Left);
        let lines = answered.join().expect("ended");
        assert_eq!(lines, ["POST /drain?clients=leave&within=60 HTTP/1.1"; 2]);
    }

    #[test]
    fn the_time_is_limited_and_the_process_may_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = process(folder.path());
        let answered = answering(
            Path::new(&process.socket),
            &[("200 OK", "3 clients are left")],
        );
        let outcome = process.send_clients_away(Duration::ZERO);
        assert_eq!(outcome.expect("an outcome"), Outcome::Stayed(3));
        answered.join().expect("ended");
        let outcome = process.send_clients_away(Duration::ZERO);
        assert_eq!(outcome.expect("an outcome"), Outcome::Ended);
        assert!(matches!(
            process.order("/drain"),
            Err(DrainError::Connect { .. })
        ));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = process(folder.path());
        let answered = answering(Path::new(&process.socket), &[("401 Unauthorized", "no")]);
        let error = process.order("/drain").expect_err("refused").to_string();
        assert!(
            error.ends_with("pgweir refuses: no: run pgweir drain as root or as pgweir's user"),
            "{error}"
        );
        answered.join().expect("ended");
    }

    #[test]
    fn the_socket_is_that_of_http_listen() {
        let folder = tempfile::tempdir().expect("a folder");
        let ini = folder.path().join("pgweir.ini");
        let with = |listen: &str| {
            let text = format!("[pgbouncer]\nhttp_listen = {listen}\n[databases]\n* =\n");
            fs::write(&ini, text).expect("written");
            http_socket(&ini)
        };
        let found = with("*:9127, /run/a.sock, /run/b.sock").expect("a socket");
        assert_eq!(found, "/run/a.sock");
        assert!(matches!(with("*:9127"), Err(DrainError::NoSocket(_))));
        assert!(matches!(with("nowhere"), Err(DrainError::Ini(_))));
    }

    #[test]
    fn answers_are_parsed() {
        assert_eq!(
            parse("HTTP/1.1 200 OK\r\na: b\r\n\r\n5\n"),
            Some((200, "5"))
        );
        assert_eq!(parse("HTTP/1.1 x\r\n\r\n"), None);
        assert_eq!(parse("garbage"), None);
        for number in [0, 1, 12] {
            assert_eq!(clients_left(&http::clients_left(number)), Some(number));
        }
        assert_eq!(clients_left("clients are left"), None);
    }
}
