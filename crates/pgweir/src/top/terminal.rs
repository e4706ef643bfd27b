//! The terminal: keys, signals and samples arrive through one channel. After each of them a new frame is drawn.

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
    app::{App, KeyAction},
    sampling::{Sampler, SamplerReply, SamplerRequest, SamplingOptions},
    screen::draw,
};
use crate::clock::Clock;

/// Without a key or a sample, a new frame is drawn after this time: it shows how long a connection has been lost.
const REDRAW: Duration = Duration::from_secs(1);

/// An event that the display handles.
enum Input {
    Console(SamplerReply),
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
    let (requests, asked) = bounded(16);
    let options = options_of(&app);
    let answers = sender.clone();
    spawn("console", move || {
        sampler.run(options, &asked, &answers, Input::Console)
    })?;
    watch_signals(sender.clone())?;
    let mut terminal = ratatui::try_init()?;
    let outcome = spawn("keys", move || read_keys(&sender))
        .and_then(|()| show(&mut app, &mut terminal, &inputs, &requests, clock));
    ratatui::restore();
    outcome
}

/// Draws a frame after each input, until one of them ends the display.
fn show(
    app: &mut App,
    terminal: &mut DefaultTerminal,
    inputs: &Receiver<Input>,
    requests: &Sender<SamplerRequest>,
    clock: Clock,
) -> Result<(), TopError> {
    let mut options = options_of(app);
    loop {
        app.now = clock.now().0;
        terminal.draw(|frame| draw(app, frame))?;
        let action = match inputs.recv_timeout(REDRAW) {
            Ok(Input::Console(answer)) => {
                take(app, answer, clock);
                KeyAction::Nothing
            }
            Ok(Input::Key(key)) => app.press(key),
            Ok(Input::Resized) | Err(RecvTimeoutError::Timeout) => KeyAction::Nothing,
            Ok(Input::Quit) | Err(RecvTimeoutError::Disconnected) => KeyAction::Quit,
        };
        let next = options_of(app);
        let request = match action {
            KeyAction::Quit => return Ok(()),
            KeyAction::Kill(client) => Some(SamplerRequest::Kill(client)),
            KeyAction::Refresh => Some(SamplerRequest::Options(next)),
            KeyAction::Nothing if next != options => Some(SamplerRequest::Options(next)),
            KeyAction::Nothing => None,
        };
        // While the console does not answer, the queue of requests may be full. Then changed options are sent with
        // the next input.
        if let Some(request) = request
            && requests.try_send(request).is_ok()
            && matches!(request, SamplerRequest::Options(_))
        {
            options = next;
        }
    }
}

fn take(app: &mut App, answer: SamplerReply, clock: Clock) {
    match answer {
        SamplerReply::Sample(Ok(sample)) => app.add(sample),
        SamplerReply::Sample(Err(error)) => app.lose(error.to_string(), clock.now().0),
        SamplerReply::CommandResult(text) => app.prompt.outcome = text,
    }
}

fn options_of(app: &App) -> SamplingOptions {
    SamplingOptions {
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
