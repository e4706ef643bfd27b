//! Receives signals on a thread and passes them on as values.

use std::{io, thread};

use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator,
};

/// A signal that pgweir handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Hup,
    Int,
    Quit,
    Term,
    Usr1,
    Usr2,
    /// Starts an online restart. PgBouncer does not use this signal.
    Alrm,
}

impl Signal {
    /// Returns the signal's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Term => "SIGTERM",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Alrm => "SIGALRM",
        }
    }
}

/// Signals that are caught already and kept until [`listen`](Caught::listen) is called.
#[derive(Debug)]
pub(crate) struct Caught(iterator::Signals);

/// The thread that waits for signals. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct Signals {
    handle: iterator::Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Caught {
    /// Catches signals: from now on no signal ends the process by itself.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn new() -> io::Result<Self> {
        iterator::Signals::new([SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
            .map(Self)
    }

    /// Passes every signal to `tell` from a separate thread, including signals that arrived before.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub(crate) fn listen(
        self,
        mut tell: impl FnMut(Signal) + Send + 'static,
    ) -> io::Result<Signals> {
        let Self(mut signals) = self;
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                signals.forever().filter_map(known).for_each(&mut tell);
            })?;
        Ok(Signals {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // The thread only forwards signals; nothing can be done after a panic.
            let _ = thread.join();
        }
    }
}

fn known(number: i32) -> Option<Signal> {
    match number {
        SIGALRM => Some(Signal::Alrm),
        SIGHUP => Some(Signal::Hup),
        SIGINT => Some(Signal::Int),
        SIGQUIT => Some(Signal::Quit),
        SIGTERM => Some(Signal::Term),
        SIGUSR1 => Some(Signal::Usr1),
        SIGUSR2 => Some(Signal::Usr2),
        _ => None,
    }
}
