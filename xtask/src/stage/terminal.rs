//! The output on the terminal while something runs.

use std::{
    env,
    future::Future,
    io::{IsTerminal, Write, stdout},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Trouble;

/// Standard output. On a terminal the line of the current step counts its seconds in place;
/// elsewhere each step is one line.
#[derive(Clone)]
pub(crate) struct Terminal {
    started: Instant,
    live: bool,
    colour: bool,
}

impl Terminal {
    /// Looks at what standard output is, and at `NO_COLOR`.
    pub(crate) fn new() -> Self {
        let live = stdout().is_terminal();
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            started: Instant::now(),
            live,
            colour: live && !refused,
        }
    }

    /// A line of its own.
    pub(crate) fn line(&self, text: &str) {
        // A reader who has gone (closed pipe) is no reason to stop: cleaning up matters more.
        let _ = writeln!(stdout(), "{text}");
    }

    /// A heading after an empty line.
    pub(crate) fn heading(&self, text: &str) {
        self.line(&format!("\n{}", self.bold(text)));
    }

    /// An error, or the word that the run was interrupted.
    pub(crate) fn trouble(&self, trouble: &Trouble) {
        self.line(&format!("\n{} {trouble}", self.bad("stopped:")));
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

    /// Green on a terminal.
    pub(crate) fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Red on a terminal.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    /// Bold on a terminal.
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
