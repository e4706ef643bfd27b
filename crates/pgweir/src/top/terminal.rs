//! The terminal: keys, signals and samples come by one channel, and each of them brings a new frame.

use std::{
    io,
    io::{IsTerminal, Write},
    thread,
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use ratatui::crossterm::{
    event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
    terminal::{disable_raw_mode, enable_raw_mode},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use zeroize::Zeroizing;

use super::{
    TopError,
    app::{App, Order},
    console::ConsoleError,
    sample::Sample,
    sampling::{Sampler, Wish},
    screen::draw,
};
use crate::clock::Clock;

/// Without a key or a sample, a new frame is drawn after this time: it shows how long a connection has been lost.
const REDRAW: Duration = Duration::from_secs(1);

/// What happens to the display.
enum Input {
    Sample(Result<Sample, ConsoleError>),
    Key(KeyEvent),
    Resized,
    /// A signal, or the end of the terminal.
    Quit,
}

/// Shows the display until a key or a signal ends it.
///
/// # Errors
/// When the terminal fails, or can't be used.
pub(super) fn run(mut app: App, sampler: Sampler, clock: Clock) -> Result<(), TopError> {
    let (sender, inputs) = bounded(64);
    let (wishes, wished) = bounded(16);
    let wish = wish_of(&app);
    let samples = sender.clone();
    spawn("console", move || {
        sampler.run(wish, &wished, &samples, Input::Sample)
    })?;
    watch_signals(sender.clone())?;
    let mut terminal = ratatui::try_init()?;
    let read = sender.clone();
    let outcome = spawn("keys", move || read_keys(&read)).and_then(|()| {
        drop(sender);
        let mut wish = wish;
        loop {
            app.now = clock.now().0;
            terminal.draw(|frame| draw(&app, frame))?;
            let order = match inputs.recv_timeout(REDRAW) {
                Ok(Input::Sample(Ok(sample))) => {
                    app.add(sample);
                    Order::Nothing
                }
                Ok(Input::Sample(Err(error))) => {
                    app.lose(error.to_string(), clock.now().0);
                    Order::Nothing
                }
                Ok(Input::Key(key)) => app.press(key),
                Ok(Input::Resized) | Err(RecvTimeoutError::Timeout) => Order::Nothing,
                Ok(Input::Quit) | Err(RecvTimeoutError::Disconnected) => Order::Quit,
            };
            if order == Order::Quit {
                return Ok(());
            }
            let next = wish_of(&app);
            if next != wish || order == Order::Refresh {
                // Where the console does not answer, wishes may be too many: the latest one is sent again then.
                if wishes.try_send(next).is_ok() {
                    wish = next;
                }
            }
        }
    });
    ratatui::restore();
    outcome
}

fn wish_of(app: &App) -> Wish {
    Wish {
        interval: app.interval,
        connections: app.needs_connections(),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TopError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work)?;
    Ok(())
}

fn watch_signals(inputs: Sender<Input>) -> Result<(), TopError> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    spawn("signals", move || {
        if signals.forever().next().is_some() {
            // The receiver may have ended already.
            let _ = inputs.send(Input::Quit);
        }
    })
}

fn read_keys(inputs: &Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::Quit,
        };
        let is_last = matches!(input, Input::Quit);
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}

/// Asks for a password; `None` if there is no terminal, or if the user gives up.
///
/// # Errors
/// When the terminal fails.
pub(super) fn ask_for_password(user: &str) -> io::Result<Option<Zeroizing<String>>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    write!(io::stderr(), "Password for user {user}: ")?;
    enable_raw_mode()?;
    let typed = read_line();
    disable_raw_mode()?;
    writeln!(io::stderr())?;
    typed
}

fn read_line() -> io::Result<Option<Zeroizing<String>>> {
    let mut line = Zeroizing::new(String::with_capacity(1024));
    loop {
        let Event::Key(key) = event::read()? else {
            continue;
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Ok(Some(line)),
            KeyCode::Esc => return Ok(None),
            KeyCode::Char('c' | 'd') if is_control => return Ok(None),
            KeyCode::Backspace => drop(line.pop()),
            KeyCode::Char(character) if line.len() < 1000 => line.push(character),
            _ => {}
        }
    }
}
