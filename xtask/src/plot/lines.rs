//! Two plots beside each other: throughput and latency by the number of clients, with a line for each subject.

use std::fmt::Write;

use super::opening;

/// The columns of a table.
pub(super) const COLUMNS: &str =
    "the number of clients, the subject, transactions per second, and milliseconds";

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 380.0;
const PLOT_WIDTH: f64 = 340.0;
const TOP: f64 = 108.0;
const BOTTOM: f64 = 336.0;
const LEFT: [f64; 2] = [72.0, 512.0];

/// The subjects, their names in the legend, colors and dashes.
const SUBJECTS: [(&str, &str, &str, &str); 4] = [
    ("direct", "PostgreSQL itself", "#3b6ea5", "none"),
    ("pgbouncer", "PgBouncer", "#8b97a5", "none"),
    ("pgweir:1", "pgweir, one thread", "#d9772b", "none"),
    ("pgweir:2", "pgweir, two threads", "#d9772b", "6 4"),
];

/// The figures of a subject with a number of clients.
struct Point<'t> {
    subject: &'t str,
    clients: f64,
    tps: f64,
    p99_ms: Option<f64>,
}

/// Returns the figure of a point that a panel shows.
type Value = fn(&Point<'_>) -> Option<f64>;

/// Draws a table; `None` if a line has the wrong form. A dash in the last column is a figure that was not measured.
pub(super) fn draw(title: &str, lines: &[Vec<&str>]) -> Option<String> {
    let points = points(lines)?;
    let mut out = opening(WIDTH, HEIGHT, title);
    let _ = writeln!(
        out,
        "  <text x=\"20\" y=\"30\" font-size=\"16\" font-weight=\"600\" fill=\"#24292f\">{title}</text>"
    );
    let is_shown = |subject: &str| points.iter().any(|point| point.subject == subject);
    let shown: Vec<_> = SUBJECTS.iter().filter(|(key, ..)| is_shown(key)).collect();
    for (at, (_, name, color, dashes)) in shown.iter().enumerate() {
        let x = 20.0 + 190.0 * at as f64;
        let _ = write!(
            out,
            "  <line x1=\"{x}\" y1=\"53\" x2=\"{}\" y2=\"53\" stroke=\"{color}\" stroke-width=\"2.5\" \
             stroke-dasharray=\"{dashes}\"/>\n  <text x=\"{}\" y=\"58\" fill=\"#24292f\">{name}</text>\n",
            x + 26.0,
            x + 34.0
        );
    }
    let clients = Axis::logarithmic(points.iter().map(|point| point.clients));
    let tps = Axis::from_zero(points.iter().map(|point| point.tps));
    let p99 = Axis::logarithmic(points.iter().filter_map(|point| point.p99_ms));
    let panels: [(_, _, Value); 2] = [
        ("transactions per second", tps, |point| Some(point.tps)),
        ("latency, 99th percentile, in milliseconds", p99, |point| {
            point.p99_ms
        }),
    ];
    for (left, (heading, values, value)) in LEFT.into_iter().zip(panels) {
        let _ = writeln!(
            out,
            "  <text x=\"{left}\" y=\"{}\" fill=\"#24292f\">{heading}</text>",
            TOP - 16.0
        );
        draw_axes(&mut out, left, &clients, &values);
        for (key, _, color, dashes) in &shown {
            let of_subject = points.iter().filter(|point| point.subject == *key);
            let placed = of_subject.filter_map(|point| {
                let x = left + PLOT_WIDTH * clients.place(point.clients);
                Some((x, BOTTOM - (BOTTOM - TOP) * values.place(value(point)?)))
            });
            let placed: Vec<_> = placed.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "  <polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\" \
                 stroke-dasharray=\"{dashes}\"/>",
                placed.join(" ")
            );
        }
    }
    out.push_str("</svg>\n");
    Some(out)
}

fn draw_axes(out: &mut String, left: f64, clients: &Axis, values: &Axis) {
    let right = left + PLOT_WIDTH;
    for mark in values.marks() {
        let y = BOTTOM - (BOTTOM - TOP) * values.place(mark);
        let _ = write!(
            out,
            "  <line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#d8dee4\"/>\n  \
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"12\" fill=\"#57606a\">{}</text>\n",
            left - 8.0,
            y + 4.0,
            with_commas(mark)
        );
    }
    for mark in clients.marks() {
        let x = left + PLOT_WIDTH * clients.place(mark);
        let _ = writeln!(
            out,
            "  <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#57606a\">{}</text>",
            BOTTOM + 18.0,
            with_commas(mark)
        );
    }
    let _ = writeln!(
        out,
        "  <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#57606a\">clients</text>",
        left + PLOT_WIDTH / 2.0,
        BOTTOM + 36.0
    );
}

fn points<'t>(lines: &[Vec<&'t str>]) -> Option<Vec<Point<'t>>> {
    let point = |line: &Vec<&'t str>| match line[..] {
        [clients, subject, tps, p99] => Some(Point {
            subject,
            clients: clients.parse().ok().filter(|clients| *clients > 0.0)?,
            tps: tps.parse().ok()?,
            p99_ms: match p99 {
                "-" => None,
                p99 => Some(p99.parse().ok().filter(|p99| *p99 > 0.0)?),
            },
        }),
        _ => None,
    };
    lines.iter().map(point).collect()
}

/// An axis from one value to another.
struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Axis {
    /// Returns an axis on which each factor has the same length.
    fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            from: values.clone().fold(f64::MAX, f64::min).min(1e9),
            to: values.fold(1e-9, f64::max),
            is_logarithmic: true,
        }
    }

    /// Returns an axis that begins with 0 and ends with a round number.
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let largest = values.fold(1.0, f64::max);
        let step = Self::step(largest);
        Self {
            from: 0.0,
            to: (largest / step).ceil() * step,
            is_logarithmic: false,
        }
    }

    fn step(largest: f64) -> f64 {
        let power = 10_f64.powf(largest.log10().floor());
        match largest / power {
            few if few < 2.0 => power / 4.0,
            few if few < 5.0 => power / 2.0,
            _ => power,
        }
    }

    /// Returns the place of a value on the axis, between 0 and 1.
    fn place(&self, value: f64) -> f64 {
        let Self { from, to, .. } = *self;
        match self.is_logarithmic {
            true if to > from => (value / from).ln() / (to / from).ln(),
            true => 0.5,
            false => (value - from) / (to - from),
        }
    }

    /// Returns the values that are written at the axis.
    fn marks(&self) -> Vec<f64> {
        if !self.is_logarithmic {
            let step = Self::step(self.to);
            let count = (self.to / step).round() as u32;
            return (0..=count).map(|mark| f64::from(mark) * step).collect();
        }
        let powers = (-3..7).map(|power| 10_f64.powi(power));
        let marks = powers.flat_map(|power| [power, 3.0 * power]);
        let is_within = |mark: &f64| *mark >= self.from * 0.999 && *mark <= self.to * 1.001;
        marks.filter(is_within).collect()
    }
}

/// Writes a number with commas between thousands, and with its decimal places.
fn with_commas(number: f64) -> String {
    let text = format!("{}", (number * 1000.0).round() / 1000.0);
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_wrong_figures_are_refused() {
        for line in [
            "1\tdirect\t10",
            "0\tdirect\t10\t1",
            "1\tdirect\tmany\t1",
            "1\tdirect\t10\t0",
        ] {
            let columns = line.split('\t').collect();
            assert!(draw("title", &[columns]).is_none(), "{line}");
        }
        let few = vec!["1", "direct", "10", "-"];
        assert!(draw("title", &[few]).is_some());
    }

    #[test]
    fn axes() {
        let axis = Axis::logarithmic([10.0, 5_000.0].into_iter());
        assert_eq!(axis.marks(), [10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0]);
        assert_eq!((axis.place(10.0), axis.place(5_000.0)), (0.0, 1.0));
        let axis = Axis::from_zero([9_900.0, 23_456.0].into_iter());
        assert_eq!(axis.marks().last(), Some(&25_000.0));
        assert_eq!(axis.place(12_500.0), 0.5);
    }

    #[test]
    fn numbers() {
        assert_eq!(with_commas(1_234_567.0), "1,234,567");
        assert_eq!(with_commas(0.3), "0.3");
        assert_eq!(with_commas(300.0), "300");
    }
}
