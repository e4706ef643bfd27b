//! The plots in the README and below docs/, generated from tables of figures.

mod bars;
mod lines;

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// A plot, and the table that it is made of.
struct Plot {
    /// The path of the plot.
    path: &'static str,
    /// The path of the table.
    figures: &'static str,
    /// Draws the table's lines that follow the comments and the heading; `None` if a line has the wrong form.
    draw: fn(&[Vec<&str>]) -> Option<String>,
    /// The columns of the table.
    columns: &'static str,
}

const PLOTS: [Plot; 3] = [
    Plot {
        path: "docs/benchmark.svg",
        figures: "docs/benchmark.tsv",
        draw: bars::draw,
        columns: "a load and two figures",
    },
    Plot {
        path: "docs/benchmark-clients.svg",
        figures: "docs/benchmark-clients.tsv",
        draw: |lines| lines::draw("Queries, by the number of clients", lines),
        columns: lines::COLUMNS,
    },
    Plot {
        path: "docs/benchmark-logins.svg",
        figures: "docs/benchmark-logins.tsv",
        draw: |lines| {
            let title = "A new connection for each query, by the number of clients";
            lines::draw(title, lines)
        },
        columns: lines::COLUMNS,
    },
];

/// Returns the path and the text of each plot, made from the figures below `root`.
///
/// # Errors
/// A table can't be read, or a line of it has the wrong form.
pub(crate) fn all(root: &Path) -> io::Result<Vec<(&'static str, String)>> {
    PLOTS
        .iter()
        .map(|plot| Ok((plot.path, plot.svg(root)?)))
        .collect()
}

impl Plot {
    fn svg(&self, root: &Path) -> io::Result<String> {
        let text = fs::read_to_string(root.join(self.figures))?;
        let drawn = (self.draw)(&rows(&text)).ok_or_else(|| {
            let (figures, columns) = (self.figures, self.columns);
            let what = format!("{figures}: a line does not have {columns}");
            io::Error::new(ErrorKind::InvalidData, what)
        })?;
        let figures = self.figures;
        Ok(format!(
            "<!-- Generated from {figures} by `cargo xtask docs`. -->\n{drawn}"
        ))
    }
}

/// Returns the columns of the lines after comments and the heading.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.map(|line| line.split('\t').collect()).collect()
}

/// Returns the opening tag of a plot of this size, its title and its background.
fn opening(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\" font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, \
         sans-serif\" font-size=\"14\">\n  <title id=\"title\">{title}</title>\n  \
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_the_heading_are_no_rows() {
        assert_eq!(rows("# why\nload\ta\none\t1\n"), [["one", "1"]]);
    }

    #[test]
    fn the_plots_are_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (path, text) in all(&root).unwrap() {
            let written = fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(text == written, "{path} is stale: run `cargo xtask docs`");
        }
    }
}
