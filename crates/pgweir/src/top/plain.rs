//! One frame as plain text, for scripts.

use std::fmt::Write;

use super::{
    app::App,
    findings::findings,
    screen::totals,
    section::{Section, fitted},
    views::{View, sections},
};

/// The largest number of lines of tables that may be long.
const LINES_MAX: usize = 15;
/// The views that are printed where none is named. The last column says whether the view is left out when it is empty.
const PRINTED: [(View, bool); 6] = [
    (View::Pools, false),
    (View::Waiters, true),
    (View::Pins, true),
    (View::Events, true),
    (View::Statements, true),
    (View::Fleet, true),
];

/// Returns the frame: of one view, or of the most important ones. No line is longer than `width`, if there is one.
pub(super) fn page(app: &App, view: Option<View>, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX / 4);
    let mut page = String::new();
    add(
        &mut page,
        &format!("pgweir top  {}  {}", app.place, app.sample.version),
    );
    add(&mut page, &totals(app));
    for finding in findings(&app.sample, &app.history) {
        add(&mut page, &format!("! {}", finding.text));
    }
    let named = view.map(|view| (view, false));
    let views: Vec<_> = named.map_or_else(|| PRINTED.to_vec(), |view| vec![view]);
    let most = if view.is_some() {
        usize::MAX
    } else {
        LINES_MAX
    };
    for (view, may_be_left_out) in views {
        let pool = app.pool.as_ref();
        for section in sections(view, &app.sample, &app.history, pool, app.screen.is_unicode) {
            if may_be_left_out && section.lines.is_empty() {
                continue;
            }
            add_section(&mut page, &section, width, most);
        }
    }
    page
}

/// Adds a line, without blanks at its end.
fn add(page: &mut String, line: &str) {
    page.push_str(line.trim_end());
    page.push('\n');
}

fn add_section(page: &mut String, section: &Section, width: usize, most: usize) {
    page.push('\n');
    add(page, &section.title);
    if section.lines.is_empty() {
        return add(page, section.nothing);
    }
    let columns = section.fit(width);
    let row = |text: &dyn Fn(usize) -> String| {
        let texts = columns.iter().map(|&(at, width)| {
            let is_right = section.columns[at].is_right;
            fitted(&text(at), width, is_right)
        });
        texts.collect::<Vec<_>>().join("  ")
    };
    add(page, &row(&|at| section.columns[at].head.to_owned()));
    for line in section.lines.iter().take(most) {
        add(page, &row(&|at| line.cells[at].text.clone()));
    }
    if let Some(more) = section
        .lines
        .len()
        .checked_sub(most)
        .filter(|more| *more > 0)
    {
        // A write to a text can't fail.
        let _ = writeln!(page, "... and {more} more");
    }
}
