//! The output on the terminal while something runs.

use std::{
    env,
    future::Future,
    io::{IsTerminal, Write, stdout},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::StageError;

/// Standard output. On a terminal the line of the current step counts its seconds in place;
/// elsewhere each step is one line.
#[derive(Clone)]
pub(crate) struct Terminal {
    started: Instant,
    live: bool,
    colour: bool,
}

impl Terminal {
    /// Examines standard output, and `NO_COLOR`.
    pub(crate) fn new() -> Self {
        let live = stdout().is_terminal();
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            started: Instant::now(),
            live,
            colour: live && !refused,
        }
    }

    /// Prints a line of its own.
    pub(crate) fn line(&self, text: &str) {
        // If the reader has gone (closed pipe), the program goes on, since cleaning up matters more.
        let _ = writeln!(stdout(), "{text}");
    }

    /// Prints a heading after an empty line.
    pub(crate) fn heading(&self, text: &str) {
        self.line(&format!("\n{}", self.bold(text)));
    }

    /// Prints an error, or the message that the run was interrupted.
    pub(crate) fn error(&self, error: &StageError) {
        self.line(&format!("\n{} {error}", self.bad("stopped:")));
    }

    /// Shows `what` while `work` runs.
    pub(crate) async fn during<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        if !self.live {
            self.line(&self.stamped(what));
            return work.await;
        }
        let began = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                result = &mut work => {
                    let seconds = began.elapsed().as_secs_f64();
                    self.overwrite(&format!("{} ({seconds:.1} s)\n", self.stamped(what)));
                    return result;
                }
                _ = tick.tick() => {
                    let seconds = began.elapsed().as_secs();
                    self.overwrite(&format!("{} ... {seconds} s", self.stamped(what)));
                }
            }
        }
    }

    /// Returns the text, green on a terminal.
    pub(crate) fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Returns the text, red on a terminal.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    /// Returns the text, bold on a terminal.
    pub(crate) fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn stamped(&self, what: &str) -> String {
        format!("[{:4} s] {what}", self.started.elapsed().as_secs())
    }

    fn overwrite(&self, text: &str) {
        let mut out = stdout();
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    }
}
