//! Signals as values.

use std::{io, thread};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
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
}

/// The thread that waits for signals; ended by dropping.
#[derive(Debug)]
pub(crate) struct Signals {
    handle: iterator::Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Signals {
    /// Passes every signal to `tell`, from a thread of its own.
    ///
    /// # Errors
    /// When the system refuses a handler or the thread.
    pub(crate) fn start(mut tell: impl FnMut(Signal) + Send + 'static) -> io::Result<Self> {
        let mut signals =
            iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                signals.forever().filter_map(known).for_each(&mut tell);
            })?;
        Ok(Self {
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
        SIGHUP => Some(Signal::Hup),
        SIGINT => Some(Signal::Int),
        SIGQUIT => Some(Signal::Quit),
        SIGTERM => Some(Signal::Term),
        SIGUSR1 => Some(Signal::Usr1),
        SIGUSR2 => Some(Signal::Usr2),
        _ => None,
    }
}
