//! A table as it is shown: cells with a tone (colour and weight), and columns that are left out where the terminal is
//! narrow. The terminal and `--once` show the same sections.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The emphasis of a text, by colour and by weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Soft,
    Good,
    Warning,
    Bad,
}

/// A text in a tone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Whether the values stand on the right, as numbers do.
    pub(super) is_right: bool,
    /// Columns with the highest rank are left out first; those of rank 0 never.
    pub(super) rank: u8,
    /// Whether the column is cut where it is too wide.
    pub(super) may_shrink: bool,
}

/// A row, and the pool and client that a key opens or ends from there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) cells: Vec<Cell>,
    /// The values to sort by: numbers before texts.
    pub(super) order: Vec<SortValue>,
    /// All values with their names, for the detail below the table.
    pub(super) detail: Vec<(String, String)>,
    /// The client that KILL_CLIENT would end: of a waiting client, the one that holds a server.
    pub(super) client: Option<u64>,
    /// The pool that the row leads to.
    pub(super) pool: Option<(String, String)>,
}

/// A value to sort by.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) enum SortValue {
    Nothing,
    Number(f64),
    Text(String),
}

/// A table with its title.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) lines: Vec<Line>,
    /// A sentence instead of an empty table.
    pub(super) nothing: &'static str,
}

impl Eq for SortValue {}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Plain,
        }
    }

    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl Column {
    /// A column of texts.
    pub(super) const fn text(head: &'static str, rank: u8) -> Self {
        Self {
            head,
            is_right: false,
            rank,
            may_shrink: false,
        }
    }

    /// A column of long texts.
    pub(super) const fn long(head: &'static str, rank: u8) -> Self {
        Self {
            head,
            is_right: false,
            rank,
            may_shrink: true,
        }
    }

    /// A column of numbers.
    pub(super) const fn number(head: &'static str, rank: u8) -> Self {
        Self {
            head,
            is_right: true,
            rank,
            may_shrink: false,
        }
    }
}

/// The narrowest that a column is made which may shrink.
const SHRUNK: usize = 16;

impl Section {
    /// Sorts the lines by a column; equal ones stay in their order.
    pub(super) fn sort(&mut self, column: usize, is_descending: bool) {
        let key = |line: &Line| {
            line.order
                .get(column)
                .cloned()
                .unwrap_or(SortValue::Nothing)
        };
        self.lines.sort_by(|one, other| {
            let (one, other) = (key(one), key(other));
            // Empty cells come last in either direction.
            let emptiness = (one == SortValue::Nothing).cmp(&(other == SortValue::Nothing));
            let order = one.partial_cmp(&other).unwrap_or(std::cmp::Ordering::Equal);
            emptiness.then(if is_descending {
                order.reverse()
            } else {
                order
            })
        });
    }

    /// Keeps the lines that contain a text, whatever its case.
    pub(super) fn filter(&mut self, text: &str) {
        let wanted = text.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&wanted);
        self.lines.retain(|line| {
            line.cells.iter().any(|cell| contains(&cell.text))
                || line.detail.iter().any(|(_, value)| contains(value))
        });
    }

    /// Returns the columns to show in so many cells of a terminal, each with its width.
    pub(super) fn fit(&self, width: usize) -> Vec<(usize, usize)> {
        let mut shown: Vec<(usize, usize)> = (0..self.columns.len())
            .map(|at| (at, self.natural_width(at)))
            .collect();
        let least = |at: usize, natural: usize| match self.columns[at].may_shrink {
            true => natural.min(SHRUNK),
            false => natural,
        };
        loop {
            let gaps = 2 * shown.len().saturating_sub(1);
            let needed: usize = shown.iter().map(|&(at, natural)| least(at, natural)).sum();
            let droppable = shown
                .iter()
                .map(|(at, _)| *at)
                .filter(|at| self.columns[*at].rank > 0);
            let Some(last) = droppable.max_by_key(|at| (self.columns[*at].rank, *at)) else {
                break;
            };
            if needed + gaps <= width {
                break;
            }
            shown.retain(|(at, _)| *at != last);
        }
        self.shrink(&mut shown, width);
        shown
    }

    /// Makes columns that may shrink narrower, the widest first, until the table fits.
    fn shrink(&self, shown: &mut [(usize, usize)], width: usize) {
        let gaps = 2 * shown.len().saturating_sub(1);
        let total: usize = shown.iter().map(|(_, width)| width).sum();
        let mut over = (total + gaps).saturating_sub(width);
        while over > 0 {
            let may_shrink = |at: usize| self.columns[at].may_shrink;
            let widest = shown
                .iter_mut()
                .filter(|(at, width)| may_shrink(*at) && *width > SHRUNK)
                .max_by_key(|(_, width)| *width);
            let Some((_, width)) = widest else { return };
            let less = over.min((*width - SHRUNK).div_ceil(2));
            *width -= less;
            over -= less;
        }
    }

    fn natural_width(&self, at: usize) -> usize {
        let cells = self.lines.iter().filter_map(|line| line.cells.get(at));
        let widest = cells.map(|cell| cell.text.width()).max();
        widest
            .unwrap_or_default()
            .max(self.columns[at].head.width())
    }
}

/// Returns a text in exactly so many cells of a terminal: cut with `~` at the end, or filled up.
pub(super) fn fitted(text: &str, width: usize, is_right: bool) -> String {
    let natural = text.width();
    if natural <= width {
        let fill = " ".repeat(width - natural);
        return match is_right {
            true => fill + text,
            false => text.to_owned() + &fill,
        };
    }
    let kept = prefix(text, width.saturating_sub(1));
    let fill = " ".repeat(width.saturating_sub(kept.width() + 1));
    let mark = if width > 0 { "~" } else { "" };
    format!("{kept}{mark}{fill}")
}

/// Returns the longest beginning of a text that is no wider.
fn prefix(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or_default();
        if used > width {
            return &text[..at];
        }
    }
    text
}

/// Returns a text in lines of at most so many cells, broken at blanks where there are any.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        loop {
            let last = lines.len() - 1;
            let gap = usize::from(!lines[last].is_empty());
            if lines[last].width() + gap + word.width() <= width {
                if gap > 0 {
                    lines[last].push(' ');
                }
                lines[last].push_str(&word);
                break;
            }
            if word.width() <= width {
                lines.push(String::new());
                continue;
            }
            let head = prefix(&word, width).to_owned();
            word.drain(..head.len());
            if !lines[last].is_empty() {
                lines.push(String::new());
            }
            let last = lines.len() - 1;
            lines[last] = head;
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let line = |name: &str, number: Option<f64>| Line {
            cells: vec![
                Cell::new(name),
                Cell::new(number.map(|number| number.to_string()).unwrap_or_default()),
                Cell::new("a long text that says more than fits"),
            ],
            order: vec![
                SortValue::Text(name.to_owned()),
                number.map_or(SortValue::Nothing, SortValue::Number),
            ],
            ..Line::default()
        };
        Section {
            columns: vec![
                Column::text("name", 0),
                Column::number("number", 2),
                Column::long("text", 1),
            ],
            lines: vec![line("b", Some(1.0)), line("a", None), line("c", Some(10.0))],
            ..Section::default()
        }
    }

    #[test]
    fn narrow_terminals_lose_columns() {
        let section = section();
        assert_eq!(section.fit(200), [(0, 4), (1, 6), (2, 36)]);
        assert_eq!(section.fit(40), [(0, 4), (1, 6), (2, 26)]);
        assert_eq!(section.fit(29), [(0, 4), (2, 23)]);
        assert_eq!(section.fit(10), [(0, 4)]);
    }

    #[test]
    fn lines_are_sorted_and_filtered() {
        let mut section = section();
        let names = |section: &Section| -> String {
            section
                .lines
                .iter()
                .map(|line| line.cells[0].text.as_str())
                .collect()
        };
        section.sort(1, true);
        assert_eq!(names(&section), "cba", "nothing comes last");
        section.sort(1, false);
        assert_eq!(names(&section), "bca");
        section.filter("10");
        assert_eq!(names(&section), "c");
    }

    #[test]
    fn texts_are_cut_and_wrapped() {
        assert_eq!(fitted("abc", 5, true), "  abc");
        assert_eq!(fitted("abcdef", 4, false), "abc~");
        assert_eq!(fitted("東京東京", 6, false), "東京~ ");
        assert_eq!(fitted("abc", 0, false), "");
        assert_eq!(wrapped("one two three", 9), ["one two", "three"]);
        assert_eq!(wrapped("~~~~~~~~~~~~", 8), ["~~~~~~~~", "~~~~"]);
        assert!(wrapped("", 8).is_empty());
    }
}
