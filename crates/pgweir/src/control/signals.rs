//! Signals as values.

use std::{io, thread};

use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator,
};

/// A signal that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Hup,
    Int,
    Quit,
    Term,
    Usr1,
    Usr2,
    /// Online restart: PgBouncer leaves this one free.
    Alrm,
}

/// Signals that are caught already and kept until somebody [listens](Caught::listen).
#[derive(Debug)]
pub(crate) struct Caught(iterator::Signals);

/// The thread that waits for signals; ended by dropping.
#[derive(Debug)]
pub(crate) struct Signals {
    handle: iterator::Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Caught {
    /// From here on no signal ends the process by itself.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn new() -> io::Result<Self> {
        iterator::Signals::new([SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
            .map(Self)
    }

    /// Passes every signal to `tell`, those that came before too, from a thread of its own.
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
            // It only forwards; if it panicked, there is nothing left to do about it.
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
