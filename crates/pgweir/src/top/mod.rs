//! `pgweir top`: shows in a terminal what pools, clients and servers do. The data are the console's tables. With
//! PgBouncer's console, columns that it does not have stay empty.
//!
//! `app` is the state and `screen` draws it, both without a terminal; `sampling` asks the console on a thread of its own.

mod app;
mod console;
mod figures;
mod findings;
mod formatting;
mod plain;
mod sample;
mod sampling;
mod screen;
mod section;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod views;

use std::{
    env,
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};

use self::{app::App, console::ConsoleError, sampling::Sampler, views::View};
use crate::{
    clock::Clock,
    quickstart::{ConsoleTarget, QuickStartError, console_login},
};

/// The reason why `pgweir top` ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    /// An option or a parameter is invalid.
    #[error(transparent)]
    Target(#[from] QuickStartError),
    /// The console can't be reached, or refuses the login or the commands.
    #[error("cannot read the console at {place} as user \"{user}\": {cause}")]
    Console {
        place: String,
        user: String,
        cause: Box<ConsoleError>,
    },
    /// The console asks for a password, and there is none.
    #[error("no password for user \"{user}\" at {place}: put it into PGPASSWORD or ~/.pgpass")]
    NoPassword { place: String, user: String },
    /// There is no terminal.
    #[error("the standard output is no terminal: --once prints one frame as plain text")]
    NoTerminal,
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
}

/// The options of `pgweir top`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TopOptions {
    /// The console: postgres://user@host:port/pgbouncer. Options override the URL, which overrides the environment.
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// The console's host, or the folder of its Unix socket (else PGHOST, a socket of the port, localhost).
    #[arg(short = 'h', long)]
    host: Option<String>,
    /// The console's port (else PGPORT, 6432).
    #[arg(short, long)]
    port: Option<u16>,
    /// A user of admin_users or stats_users (else PGUSER, the system user).
    #[arg(short = 'U', long, value_name = "USER")]
    username: Option<String>,
    /// The console's name (pgbouncer).
    #[arg(short, long)]
    dbname: Option<String>,
    /// Seconds between two samples.
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    interval: Duration,
    /// Print one frame as plain text, and end.
    #[arg(long)]
    once: bool,
    /// Begin with this view; with --once, print only this one.
    #[arg(long, value_name = "VIEW")]
    view: Option<ViewOption>,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The views that can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ViewOption {
    Pools,
    Waiters,
    Pins,
    Hosts,
    Events,
    Statements,
    Fleet,
}

impl From<ViewOption> for View {
    fn from(option: ViewOption) -> Self {
        match option {
            ViewOption::Pools => Self::Pools,
            ViewOption::Waiters => Self::Waiters,
            ViewOption::Pins => Self::Pins,
            ViewOption::Hosts => Self::Hosts,
            ViewOption::Events => Self::Events,
            ViewOption::Statements => Self::Statements,
            ViewOption::Fleet => Self::Fleet,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    match number {
        0.1..=3600.0 => Ok(Duration::from_secs_f64(number)),
        _ => Err("must be from 0.1 to 3600".to_owned()),
    }
}

/// Runs `pgweir top`.
///
/// # Errors
/// When the console can't be read, or the terminal fails.
pub(crate) fn run(options: &TopOptions) -> Result<(), TopError> {
    if !options.once && !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let clock = Clock::start();
    let (sampler, place) = connect(options, clock)?;
    let mut app = App::new(place.clone(), options.interval);
    app.screen.has_colour = variable("NO_COLOR").is_none();
    app.screen.is_unicode = is_unicode();
    if let Some(view) = options.view {
        app.show(view.into());
    }
    match options.once {
        false => terminal::run(app, sampler, clock),
        true => print_once(app, sampler, options),
    }
}

/// Connects, and asks for a password if the console wants one and none is known.
fn connect(options: &TopOptions, clock: Clock) -> Result<(Sampler, String), TopError> {
    let mut login = console_login(ConsoleTarget {
        url: options.url.clone(),
        host: options.host.clone(),
        port: options.port,
        user: options.username.clone(),
        dbname: options.dbname.clone(),
    })?;
    let (place, user) = (login.place.clone(), login.user().to_owned());
    let mut opened = Sampler::new(login.clone(), clock);
    if opened.as_ref().is_err_and(ConsoleError::needs_password)
        && let Some(password) = terminal::ask_for_password(&user)?
    {
        login.set_password(password);
        opened = Sampler::new(login, clock);
    }
    match opened {
        Ok(sampler) => Ok((sampler, place)),
        Err(cause) if cause.needs_password() => Err(TopError::NoPassword { place, user }),
        Err(cause) => Err(TopError::Console {
            place,
            user,
            cause: Box::new(cause),
        }),
    }
}

/// Prints one frame: two samples, since rates and times are those between two.
fn print_once(mut app: App, mut sampler: Sampler, options: &TopOptions) -> Result<(), TopError> {
    let failed = |cause| TopError::Console {
        place: app.place.clone(),
        user: options.username.clone().unwrap_or_default(),
        cause: Box::new(cause),
    };
    let first = sampler.take(app.needs_connections()).map_err(failed)?;
    thread::park_timeout(options.interval);
    let second = sampler.take(app.needs_connections()).map_err(failed)?;
    app.add(first);
    app.add(second);
    let width = variable("COLUMNS").and_then(|columns| columns.parse().ok());
    let page = plain::page(&app, options.view.map(View::from), width);
    io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the locale's encoding is UTF-8, by the rules of setlocale.
fn is_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let locale = locale.unwrap_or_default().to_uppercase();
    locale.contains("UTF-8") || locale.contains("UTF8")
}
