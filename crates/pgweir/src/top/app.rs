//! The state of the display, and the keys that change it. This module uses neither the terminal nor a clock.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    figures::{History, PoolName},
    sample::Sample,
    section::Section,
    views::{VIEWS, View, sections},
};

/// The intervals that the keys `+` and `-` choose from, in milliseconds.
const INTERVALS: [u64; 7] = [500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// The action that a pressed key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Quit,
    /// A new sample at once.
    Refresh,
    /// KILL_CLIENT.
    Kill(u64),
}

/// The connection to the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// The connection is lost: why, and since when, in microseconds since 1970.
    Lost {
        error: String,
        since: u64,
    },
}

/// Everything that a frame shows.
#[derive(Debug)]
pub(super) struct App {
    /// The console's address.
    pub(super) place: String,
    pub(super) sample: Sample,
    pub(super) history: History,
    pub(super) link: Link,
    /// The present time, in microseconds since 1970.
    pub(super) now: u64,
    pub(super) view: View,
    /// The pool of [`View::Pool`].
    pub(super) pool: Option<PoolName>,
    /// The selected line, counted over all sections.
    pub(super) cursor: usize,
    /// The column to sort by, and whether the highest comes first.
    pub(super) sort: Option<(usize, bool)>,
    pub(super) filter: String,
    pub(super) prompt: Prompt,
    pub(super) is_paused: bool,
    pub(super) is_help_shown: bool,
    pub(super) interval: Duration,
    pub(super) screen: Screen,
}

/// The bottom line: a question, the outcome of a command, or the filter.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    /// The client that KILL_CLIENT would end, until the user answers yes or no.
    pub(super) to_kill: Option<u64>,
    /// The outcome of the last command, until the next key.
    pub(super) outcome: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
}

/// The capabilities of the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) has_colour: bool,
    pub(super) is_unicode: bool,
}

impl App {
    pub(super) fn new(place: String, interval: Duration) -> Self {
        Self {
            place,
            sample: Sample::default(),
            history: History::default(),
            link: Link::Up,
            now: 0,
            view: View::Pools,
            pool: None,
            cursor: 0,
            sort: None,
            filter: String::new(),
            prompt: Prompt::default(),
            is_paused: false,
            is_help_shown: false,
            interval,
            screen: Screen {
                has_colour: true,
                is_unicode: true,
            },
        }
    }

    /// Takes a sample. While the display is paused, only the history changes.
    pub(super) fn add(&mut self, sample: Sample) {
        if self.link != Link::Up {
            self.history.interrupt();
            self.link = Link::Up;
        }
        self.history.add(&sample);
        if !self.is_paused {
            self.sample = sample;
        }
    }

    /// Notes that there is no connection.
    pub(super) fn lose(&mut self, error: String, now: u64) {
        let since = match self.link {
            Link::Lost { since, .. } => since,
            Link::Up => now,
        };
        self.link = Link::Lost { error, since };
    }

    /// Whether the view needs the tables of all connections.
    pub(super) fn needs_connections(&self) -> bool {
        match self.view {
            View::Pool => true,
            View::Hosts => self.sample.table("HOSTS").is_none(),
            _ => false,
        }
    }

    /// Returns what the view shows: filtered and sorted.
    pub(super) fn sections(&self) -> Vec<Section> {
        let pool = self.pool.as_ref();
        let mut found = sections(
            self.view,
            &self.sample,
            &self.history,
            pool,
            self.screen.is_unicode,
        );
        for section in &mut found {
            if !self.filter.is_empty() {
                section.filter(&self.filter);
            }
            if let Some((column, is_descending)) = self.sort {
                section.sort(column, is_descending);
            }
        }
        found
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyAction {
        if key.kind == KeyEventKind::Release {
            return KeyAction::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyAction::Quit;
        }
        self.prompt.outcome.clear();
        if let Some(client) = self.prompt.to_kill.take() {
            return match key.code {
                KeyCode::Char('y') => KeyAction::Kill(client),
                _ => KeyAction::Nothing,
            };
        }
        if self.prompt.is_typing {
            self.type_filter(key.code);
            return KeyAction::Nothing;
        }
        if self.is_help_shown {
            self.is_help_shown = false;
            return KeyAction::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Char('r') => return KeyAction::Refresh,
            KeyCode::Char('?' | 'h') => self.is_help_shown = true,
            KeyCode::Char('/') => self.prompt.is_typing = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('K') => self.ask_to_kill(),
            KeyCode::Char('+') => self.change_interval(1),
            KeyCode::Char('-') => self.change_interval(-1),
            KeyCode::Char('<') | KeyCode::Left => self.change_sort(-1),
            KeyCode::Char('>') | KeyCode::Right => self.change_sort(1),
            KeyCode::Char('i') => {
                self.sort = self
                    .sort
                    .map(|(column, is_descending)| (column, !is_descending));
            }
            KeyCode::Tab => return self.show_next(1),
            KeyCode::BackTab => return self.show_next(VIEWS.len() - 1),
            KeyCode::Enter => return self.open_pool(),
            KeyCode::Esc | KeyCode::Backspace => return self.go_back(),
            KeyCode::Char(digit @ '1'..='7') => {
                return self.show(VIEWS[digit as usize - '1' as usize].0);
            }
            code => self.move_cursor(code),
        }
        KeyAction::Nothing
    }

    fn ask_to_kill(&mut self) {
        let mut lines = self
            .sections()
            .into_iter()
            .flat_map(|section| section.lines);
        self.prompt.to_kill = lines.nth(self.cursor).and_then(|line| line.client);
        if self.prompt.to_kill.is_none() {
            self.prompt.outcome = "this line names no client: select a waiter, a pinned client, or a client of a pool".to_owned();
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.prompt.is_typing = false,
            KeyCode::Esc => {
                self.prompt.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) if self.filter.len() < 64 && !character.is_control() => {
                self.filter.push(character);
            }
            _ => {}
        }
        self.cursor = 0;
    }

    fn lines(&self) -> usize {
        self.sections()
            .iter()
            .map(|section| section.lines.len())
            .sum()
    }

    fn move_cursor(&mut self, code: KeyCode) {
        let last = self.lines().saturating_sub(1);
        self.cursor = match code {
            KeyCode::Up | KeyCode::Char('k') => self.cursor.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.cursor + 1,
            KeyCode::PageUp => self.cursor.saturating_sub(10),
            KeyCode::PageDown => self.cursor + 10,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.cursor,
        }
        .min(last);
    }

    fn change_interval(&mut self, by: isize) {
        let now = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let at = INTERVALS.partition_point(|one| *one < now);
        let at = at.saturating_add_signed(by).min(INTERVALS.len() - 1);
        self.interval = Duration::from_millis(INTERVALS[at]);
    }

    /// Sorts by the column before or after the present one.
    fn change_sort(&mut self, by: isize) {
        let columns = self
            .sections()
            .first()
            .map_or(0, |section| section.columns.len());
        if columns == 0 {
            return;
        }
        let next = match self.sort {
            None if by > 0 => 0,
            None => columns - 1,
            Some((column, _)) => column.wrapping_add_signed(by).min(columns),
        };
        // Beyond either end is the view's own order.
        self.sort = (next < columns).then_some((next, true));
    }

    fn show_next(&mut self, by: usize) -> KeyAction {
        let at = VIEWS.iter().position(|(view, _)| *view == self.view);
        self.show(VIEWS[(at.unwrap_or(VIEWS.len() - 1) + by) % VIEWS.len()].0)
    }

    pub(super) fn show(&mut self, view: View) -> KeyAction {
        if view != self.view {
            self.view = view;
            self.cursor = 0;
            self.sort = None;
        }
        match self.needs_connections() {
            true => KeyAction::Refresh,
            false => KeyAction::Nothing,
        }
    }

    /// Opens the pool of the selected line.
    fn open_pool(&mut self) -> KeyAction {
        let lines = self
            .sections()
            .into_iter()
            .flat_map(|section| section.lines);
        let Some(pool) = lines.skip(self.cursor).find_map(|line| line.pool) else {
            return KeyAction::Nothing;
        };
        if self.view == View::Pool {
            return KeyAction::Nothing;
        }
        self.pool = Some(pool);
        self.show(View::Pool)
    }

    fn go_back(&mut self) -> KeyAction {
        if !self.filter.is_empty() {
            self.filter.clear();
            return KeyAction::Nothing;
        }
        self.show(View::Pools)
    }
}
