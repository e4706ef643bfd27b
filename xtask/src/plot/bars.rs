//! Bars: two figures for each load.

use std::fmt::Write;

use super::opening;

const WIDTH: f64 = 880.0;
const ROW: f64 = 52.0;
const TOP: f64 = 66.0;
const BARS_AT: f64 = 300.0;
const BARS_MAX: f64 = 500.0;

const SUBJECTS: [(&str, &str); 2] = [("PgBouncer", "#8b97a5"), ("pgweir", "#d9772b")];

/// A load, and the figures of each subject.
struct Row<'t> {
    load: &'t str,
    values: [f64; 2],
}

/// Draws the CPU time of both subjects for each load; `None` if a line is not a load and two figures.
pub(super) fn draw(lines: &[Vec<&str>]) -> Option<String> {
    let rows = rows(lines)?;
    let largest = rows.iter().flat_map(|row| row.values).fold(1.0, f64::max);
    let height = TOP + ROW * rows.len() as f64 + 10.0;
    let title = "CPU time of the pooler for each transaction, PgBouncer and pgweir";
    let mut out = opening(WIDTH, height, title);
    out.push_str(
        "  <text x=\"20\" y=\"30\" font-size=\"16\" font-weight=\"600\" fill=\"#24292f\">CPU time of the pooler for each \
         transaction, in microseconds (less is better)</text>\n",
    );
    for (at, (name, color)) in SUBJECTS.iter().enumerate() {
        let x = BARS_AT + 110.0 * at as f64;
        let _ = write!(
            out,
            "  <rect x=\"{x}\" y=\"43\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{color}\"/>\n  \
             <text x=\"{}\" y=\"54\" fill=\"#24292f\">{name}</text>\n",
            x + 18.0
        );
    }
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        let _ = writeln!(
            out,
            "  <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#24292f\">{}</text>",
            BARS_AT - 12.0,
            y + 24.0,
            row.load
        );
        for (bar, (value, (_, color))) in row.values.iter().zip(SUBJECTS).enumerate() {
            let top = y + 19.0 * bar as f64;
            let width = BARS_MAX * value / largest;
            let _ = write!(
                out,
                "  <rect x=\"{BARS_AT}\" y=\"{top}\" width=\"{width:.1}\" height=\"17\" rx=\"2\" fill=\"{color}\"/>\n  \
                 <text x=\"{:.1}\" y=\"{}\" fill=\"#24292f\">{value}</text>\n",
                BARS_AT + width + 6.0,
                top + 13.5
            );
        }
    }
    out.push_str("</svg>\n");
    Some(out)
}

fn rows<'t>(lines: &[Vec<&'t str>]) -> Option<Vec<Row<'t>>> {
    let row = |line: &Vec<&'t str>| match line[..] {
        [load, one, other] => Some(Row {
            load,
            values: [one.parse().ok()?, other.parse().ok()?],
        }),
        _ => None,
    };
    lines.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let read = rows(&[vec!["one", "1", "2.5"]]).unwrap();
        assert_eq!((read[0].load, read[0].values), ("one", [1.0, 2.5]));
        assert!(rows(&[vec!["one", "1"]]).is_none());
        assert!(rows(&[vec!["one", "1", "2", "3"]]).is_none());
    }
}
