//! Draws a frame.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Sparkline},
};

use super::{
    app::{App, Link},
    figures::Figures,
    findings::{Finding, findings, longest_wait},
    formatting::{count, count_of, plot, rate, span},
    section::{Section, Tone, fitted, wrapped},
    views::{VIEWS, View},
};

/// The largest number of lines for problems.
const FINDING_LINES: usize = 8;
/// The largest number of lines of the selected line's detail.
const DETAIL_LINES: usize = 8;
/// The values of a pool that are plotted in its view.
type Plotted = (&'static str, fn(&Figures) -> Option<f64>, fn(f64) -> String);

const PLOTS: [Plotted; 4] = [
    ("transactions/s", |figures| figures.rate, rate),
    (
        "wait, p95",
        |figures| figures.wait.high().map(|micros| micros as f64),
        micros,
    ),
    (
        "transaction, p95",
        |figures| figures.transaction.high().map(|micros| micros as f64),
        micros,
    ),
    (
        "waiting clients",
        |figures| Some(figures.waiting as f64),
        rate,
    ),
];

const KEYS: &str = "1-7 view  arrows move  Enter pool  Esc back  </> sort  i invert  / filter  Space pause  K kill  +/- interval  \
                    ? help  q quit";
const HELP: &[&str] = &[
    "1 to 7, Tab      another view: pools, waiters, pins, hosts, events, statements, fleet",
    "Up, Down, PgUp   select a line; its details stand below the table",
    "Enter            the clients and servers of the selected line's pool",
    "Esc, Backspace   end the filter; back to the pools",
    "< and >          sort by the column before or after; i turns the order round",
    "/                show only lines that contain a text",
    "Space            hold the display still; samples are still taken",
    "+ and -          a longer or shorter interval between samples",
    "r                a sample at once",
    "K                KILL_CLIENT: ends the client that holds a waiter's server, a pinned client, or a pool's client",
    "q, Ctrl-C        quit",
    "",
    "tx/s are transactions a second. Three times are the median, the 95th and the 99th percentile since the",
    "sample before; PgBouncer has only means, and counts per database.",
];

fn micros(value: f64) -> String {
    span(value as u64)
}

/// Returns the style of a tone.
fn style(app: &App, tone: Tone) -> Style {
    let plain = Style::default();
    match tone {
        Tone::Plain => plain,
        Tone::Soft if app.screen.has_colour => plain.fg(Color::DarkGray),
        Tone::Good if app.screen.has_colour => plain.fg(Color::Green),
        Tone::Soft | Tone::Good => plain,
        Tone::Warning if app.screen.has_colour => plain.fg(Color::Yellow),
        Tone::Bad if app.screen.has_colour => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Warning | Tone::Bad => plain.add_modifier(Modifier::BOLD),
    }
}

/// Draws everything.
pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let width = usize::from(area.width);
    let found = finding_lines(app, width);
    let sections = app.sections();
    let detail = detail_lines(app, &sections, width);
    let plots = if app.view == View::Pool && area.height >= 24 {
        4
    } else {
        0
    };
    let [head, notes, charts, body, foot, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(rows(found.len())),
        Constraint::Length(plots),
        Constraint::Min(3),
        Constraint::Length(rows(detail.len())),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header(app, width)), head);
    frame.render_widget(Paragraph::new(found), notes);
    if plots > 0 {
        draw_plots(app, frame, charts);
    }
    if app.is_help_shown {
        let lines = HELP.iter().map(|line| Line::raw(*line));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), body);
    } else {
        let lines = table_lines(app, &sections, width, usize::from(body.height));
        frame.render_widget(Paragraph::new(lines), body);
    }
    frame.render_widget(Paragraph::new(detail), foot);
    frame.render_widget(Paragraph::new(key_line(app, width)), keys);
}

fn rows(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn header<'a>(app: &App, width: usize) -> Vec<Line<'a>> {
    let (state, tone) = state(app);
    let interval = match app.is_paused {
        true => "HELD STILL".to_owned(),
        false => format!("every {} s", app.interval.as_secs_f64()),
    };
    let first = format!(
        "pgweir top  {}  {}  {interval}  ",
        app.place, app.sample.version
    );
    let first = Line::from(vec![
        Span::raw(first),
        Span::styled(state, style(app, tone)),
    ]);
    let mut tabs = Vec::new();
    for (at, (view, name)) in VIEWS.iter().enumerate() {
        let number = match view {
            View::Waiters => waiting(app),
            View::Pins => app.sample.rows("PINS").count() as u64,
            _ => 0,
        };
        let number = if number > 0 {
            format!(" ({})", count(number))
        } else {
            String::new()
        };
        let name = if width < 70 {
            &name[..name.len().min(4)]
        } else {
            name
        };
        let chosen = match *view == app.view {
            true => Style::default().add_modifier(Modifier::REVERSED),
            false => Style::default(),
        };
        tabs.push(Span::styled(format!(" {} {name}{number} ", at + 1), chosen));
    }
    if let (View::Pool, Some((database, user))) = (app.view, &app.pool) {
        let chosen = Style::default().add_modifier(Modifier::REVERSED);
        tabs.push(Span::styled(format!(" {database} / {user} "), chosen));
    }
    vec![first, Line::from(tabs), Line::raw(totals(app))]
}

/// Returns the state of the process or of the connection to its console.
fn state(app: &App) -> (String, Tone) {
    if let Link::Lost { error, since } = &app.link {
        let lost = span(app.now.saturating_sub(*since) / 1_000_000 * 1_000_000);
        return (
            format!("NO CONNECTION for {lost}, trying again: {error}"),
            Tone::Bad,
        );
    }
    let on = app
        .sample
        .rows("STATE")
        .find(|row| row.text("value") == "yes");
    match on.map(|row| row.text("key")) {
        Some("active") => ("active".to_owned(), Tone::Good),
        Some(other) => (other.to_uppercase(), Tone::Bad),
        None => (String::new(), Tone::Plain),
    }
}

fn waiting(app: &App) -> u64 {
    app.sample
        .rows("POOLS")
        .map(|row| row.count("cl_waiting"))
        .sum()
}

/// Returns the line of totals.
pub(super) fn totals(app: &App) -> String {
    let sum = |column: &str| -> u64 { app.sample.rows("POOLS").map(|row| row.count(column)).sum() };
    let waiting = waiting(app);
    let longest = app
        .sample
        .rows("POOLS")
        .map(longest_wait)
        .max()
        .unwrap_or_default();
    let longest = if waiting > 0 {
        format!(" ({})", span(longest))
    } else {
        String::new()
    };
    let values = app.history.total();
    let now = values.last().copied().flatten();
    format!(
        "{}, {} waiting{longest}; {} in use, {} idle; {} pinned; {} tx/s {}",
        count_of(sum("cl_active") + waiting, "client"),
        count(waiting),
        count_of(sum("sv_active"), "server"),
        count(sum("sv_idle") + sum("sv_used")),
        count(app.sample.rows("PINS").count() as u64),
        now.map_or_else(|| "-".to_owned(), rate),
        plot(&values, 30, app.screen.is_unicode),
    )
}

fn finding_lines<'a>(app: &App, width: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for Finding { tone, text } in findings(&app.sample, &app.history) {
        for (at, part) in wrapped(&text, width.saturating_sub(2))
            .into_iter()
            .enumerate()
        {
            let mark = if at == 0 { "! " } else { "  " };
            lines.push(Line::styled(format!("{mark}{part}"), style(app, tone)));
        }
    }
    if lines.len() > FINDING_LINES {
        lines.truncate(FINDING_LINES - 1);
        lines.push(Line::raw(
            "  ... and more: see the waiters, pins and events",
        ));
    }
    lines
}

/// Returns the lines of the tables that fit, so that the selected one is among them.
fn table_lines<'a>(app: &App, sections: &[Section], width: usize, height: usize) -> Vec<Line<'a>> {
    let (mut lines, mut selected, mut at) = (Vec::new(), 0, 0);
    for section in sections {
        lines.push(Line::styled(
            section.title.clone(),
            Style::default().add_modifier(Modifier::BOLD),
        ));
        if section.lines.is_empty() {
            lines.push(Line::styled(section.nothing, style(app, Tone::Soft)));
            continue;
        }
        let columns = section.fit(width);
        lines.push(heads(app, section, &columns));
        for line in &section.lines {
            let spans = columns.iter().map(|&(column, width)| {
                let cell = &line.cells[column];
                let text = fitted(&cell.text, width, section.columns[column].is_right);
                Span::styled(text + "  ", style(app, cell.tone))
            });
            let mut drawn = Line::from(spans.collect::<Vec<_>>());
            if at == app.cursor {
                selected = lines.len();
                drawn = drawn.style(Style::default().add_modifier(Modifier::REVERSED));
            }
            lines.push(drawn);
            at += 1;
        }
    }
    // The first lines stay as long as the selected line is visible.
    let skipped = (selected + 1).saturating_sub(height);
    lines.into_iter().skip(skipped).take(height).collect()
}

fn heads<'a>(app: &App, section: &Section, columns: &[(usize, usize)]) -> Line<'a> {
    let sorted = app.sort.map(|(column, _)| column);
    let spans = columns.iter().map(|&(at, width)| {
        let column = section.columns[at];
        let head = fitted(column.head, width, column.is_right);
        let mut style = style(app, Tone::Soft).add_modifier(Modifier::UNDERLINED);
        if sorted == Some(at) {
            style = style.add_modifier(Modifier::BOLD | Modifier::REVERSED);
        }
        [Span::styled(head, style), Span::raw("  ")]
    });
    Line::from(spans.flatten().collect::<Vec<_>>())
}

/// Returns all values of the selected line.
fn detail_lines<'a>(app: &App, sections: &[Section], width: usize) -> Vec<Line<'a>> {
    let mut lines = sections.iter().flat_map(|section| &section.lines);
    let Some(line) = lines.nth(app.cursor) else {
        return Vec::new();
    };
    if line.detail.is_empty() || app.is_help_shown {
        return Vec::new();
    }
    let pairs = line
        .detail
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    let text = pairs.collect::<Vec<_>>().join("; ");
    let mut lines = wrapped(&text, width);
    lines.truncate(DETAIL_LINES);
    let soft = style(app, Tone::Soft);
    let rule = Line::styled("-".repeat(width), soft);
    std::iter::once(rule)
        .chain(lines.into_iter().map(Line::raw))
        .collect()
}

fn draw_plots(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let Some(pool) = &app.pool else { return };
    let shown = if area.width < 100 { 2 } else { PLOTS.len() };
    let areas = Layout::horizontal(vec![Constraint::Fill(1); shown])
        .spacing(2)
        .split(area);
    for (&(title, value, words), area) in PLOTS.iter().zip(areas.iter()) {
        let values = app.history.values_over_time(pool, value);
        let last = values.iter().rev().find_map(|value| *value);
        let text = format!("{title}: {}", last.map_or_else(|| "-".to_owned(), words));
        let [head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(*area);
        frame.render_widget(Paragraph::new(text), head);
        let width = usize::from(body.width);
        if !app.screen.is_unicode {
            frame.render_widget(Paragraph::new(plot(&values, width, false)), body);
            continue;
        }
        let shown = &values[values.len().saturating_sub(width)..];
        let scaled = shown
            .iter()
            .map(|value| value.map(|value| (value * 1e3) as u64));
        let plot = Sparkline::default().data(scaled.collect::<Vec<_>>());
        frame.render_widget(plot.style(style(app, Tone::Good)), body);
    }
}

fn key_line<'a>(app: &App, width: usize) -> Line<'a> {
    if let Some(client) = app.prompt.to_kill {
        let text = format!(
            "KILL_CLIENT {client}: disconnect this client at once? y: yes, any other key: no"
        );
        return Line::styled(text, style(app, Tone::Bad));
    }
    if !app.prompt.outcome.is_empty() {
        return Line::styled(app.prompt.outcome.clone(), style(app, Tone::Warning));
    }
    if app.prompt.is_typing {
        return Line::raw(format!(
            "filter: {}_   (Enter keeps it, Esc ends it)",
            app.filter
        ));
    }
    let filter = match app.filter.is_empty() {
        true => String::new(),
        false => format!("[filter: {}]  ", app.filter),
    };
    let text = fitted(&format!("{filter}{KEYS}"), width, false);
    Line::styled(text, style(app, Tone::Soft))
}
