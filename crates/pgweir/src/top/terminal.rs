//! The terminal: keys, signals and samples come by one channel, and each of them brings a new frame.

use std::{
    io,
    io::{IsTerminal, Write},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ratatui::{
    DefaultTerminal,
    crossterm::{
        event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
        terminal::{disable_raw_mode, enable_raw_mode},
    },
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use zeroize::Zeroizing;

use super::{
    TopError,
    app::{App, Order},
    sampling::{Answer, Ask, Sampler, Wish},
    screen::draw,
};
use crate::clock::Clock;

/// Without a key or a sample, a new frame is drawn after this time: it shows how long a connection has been lost.
const REDRAW: Duration = Duration::from_secs(1);

/// What happens to the display.
enum Input {
    Console(Answer),
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
    let (asks, asked) = bounded(16);
    let wish = wish_of(&app);
    let answers = sender.clone();
    spawn("console", move || {
        sampler.run(wish, &asked, &answers, Input::Console)
    })?;
    watch_signals(sender.clone())?;
    let mut terminal = ratatui::try_init()?;
    let outcome = spawn("keys", move || read_keys(&sender))
        .and_then(|()| show(&mut app, &mut terminal, &inputs, &asks, clock));
    ratatui::restore();
    outcome
}

/// Draws a frame after each input, until one of them ends the display.
fn show(
    app: &mut App,
    terminal: &mut DefaultTerminal,
    inputs: &Receiver<Input>,
    asks: &Sender<Ask>,
    clock: Clock,
) -> Result<(), TopError> {
    let mut wish = wish_of(app);
    loop {
        app.now = clock.now().0;
        terminal.draw(|frame| draw(app, frame))?;
        let order = match inputs.recv_timeout(REDRAW) {
            Ok(Input::Console(answer)) => {
                take(app, answer, clock);
                Order::Nothing
            }
            Ok(Input::Key(key)) => app.press(key),
            Ok(Input::Resized) | Err(RecvTimeoutError::Timeout) => Order::Nothing,
            Ok(Input::Quit) | Err(RecvTimeoutError::Disconnected) => Order::Quit,
        };
        let next = wish_of(app);
        let ask = match order {
            Order::Quit => return Ok(()),
            Order::Kill(client) => Some(Ask::Kill(client)),
            Order::Refresh => Some(Ask::Wish(next)),
            Order::Nothing if next != wish => Some(Ask::Wish(next)),
            Order::Nothing => None,
        };
        // Where the console does not answer, too much may be asked: a changed wish is sent again then.
        if let Some(ask) = ask
            && asks.try_send(ask).is_ok()
            && matches!(ask, Ask::Wish(_))
        {
            wish = next;
        }
    }
}

fn take(app: &mut App, answer: Answer, clock: Clock) {
    match answer {
        Answer::Sample(Ok(sample)) => app.add(sample),
        Answer::Sample(Err(error)) => app.lose(error.to_string(), clock.now().0),
        Answer::Said(text) => app.prompt.said = text,
    }
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
