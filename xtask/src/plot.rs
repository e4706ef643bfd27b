//! `docs/benchmark.svg`, the plot in the README, generated from the figures in `docs/benchmark.tsv`.

use std::{
    fmt::Write,
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// The path of the plot.
pub(crate) const PLOT: &str = "docs/benchmark.svg";

const FIGURES: &str = "docs/benchmark.tsv";

const WIDTH: f64 = 880.0;
const ROW: f64 = 52.0;
const TOP: f64 = 66.0;
const BARS_AT: f64 = 300.0;
const BARS_MAX: f64 = 500.0;

/// A load, and the figures of each subject.
struct Row<'t> {
    load: &'t str,
    values: [f64; 2],
}

/// Returns the plot, made from the figures below `root`.
pub(crate) fn svg(root: &Path) -> io::Result<String> {
    let text = fs::read_to_string(root.join(FIGURES))?;
    let rows = rows(&text).ok_or_else(|| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("{FIGURES}: not a load and two figures"),
        )
    })?;
    Ok(draw(&rows))
}

/// Returns the lines after comments and the heading.
fn rows(text: &str) -> Option<Vec<Row<'_>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            let mut cells = line.split('\t');
            let load = cells.next()?;
            let values = [cells.next()?.parse().ok()?, cells.next()?.parse().ok()?];
            cells.next().is_none().then_some(Row { load, values })
        })
        .collect()
}

fn draw(rows: &[Row<'_>]) -> String {
    let largest = rows.iter().flat_map(|row| row.values).fold(1.0, f64::max);
    let height = TOP + ROW * rows.len() as f64 + 10.0;
    let mut out = format!(
        "<!-- Generated from {FIGURES} by `cargo xtask docs`. -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\" font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, \
         sans-serif\" font-size=\"14\">\n  <title id=\"title\">CPU time of the pooler for each transaction, PgBouncer and \
         pgweir</title>\n  <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n  \
         <text x=\"20\" y=\"30\" font-size=\"16\" font-weight=\"600\" fill=\"#24292f\">CPU time of the pooler for each \
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
    out
}

const SUBJECTS: [(&str, &str); 2] = [("PgBouncer", "#8b97a5"), ("pgweir", "#d9772b")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let read = rows("# why\nload\ta\tb\none\t1\t2.5\n").unwrap();
        assert_eq!((read[0].load, read[0].values), ("one", [1.0, 2.5]));
        assert!(rows("load\ta\tb\none\t1\n").is_none());
        assert!(rows("load\ta\tb\none\t1\t2\t3\n").is_none());
    }

    #[test]
    fn the_plot_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let written = fs::read_to_string(root.join(PLOT)).unwrap_or_default();
        assert!(
            svg(&root).unwrap() == written,
            "{PLOT} is stale: run `cargo xtask docs`"
        );
    }
}
