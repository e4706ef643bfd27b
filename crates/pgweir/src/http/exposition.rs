//! The text formats of Prometheus: OpenMetrics 1.0, and the older one, version 0.0.4.
//!
//! Both formats, and the messages of OTLP, are made from the same families. The values of the families are read from
//! their sources for each answer. The crate prometheus-client writes OpenMetrics only; older Prometheus servers and
//! `promtool check metrics` need the other format.

use std::fmt::Write as _;

use pgweir_core::base::stats::{Histogram, upper_bound};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `text/plain; version=0.0.4`
    Classic,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// Names and values of labels.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// A value of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PointValue {
    Number(u64),
    /// A time, in microseconds.
    Micros(u64),
    Histogram(Box<Histogram>),
}

/// A family and its values, for a protocol other than a text format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FamilyPoints {
    /// The name, without `_total`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// The labels of each series, and its value.
    pub(crate) points: Vec<(Vec<(String, String)>, PointValue)>,
}

/// The text of all series, to which families are added.
#[derive(Debug)]
pub(super) enum Exposition {
    Text(Format, String),
    Points(Vec<FamilyPoints>),
}

/// A family: all series with one name.
#[derive(Debug)]
pub(super) enum Family<'e> {
    Text {
        text: &'e mut String,
        /// The name of the family's samples.
        name: String,
    },
    Points(&'e mut Vec<(Vec<(String, String)>, PointValue)>),
}

impl Exposition {
    pub(super) fn new(format: Format) -> Self {
        Self::Text(format, String::new())
    }

    /// Begins a family. `name` has no `_total`, which the samples of a counter get.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let (format, text) = match self {
            Self::Text(format, text) => (*format, text),
            Self::Points(families) => {
                let family = families.push_mut(FamilyPoints {
                    name: name.to_owned(),
                    kind,
                    help: help.to_owned(),
                    points: Vec::new(),
                });
                return Family::Points(&mut family.points);
            }
        };
        let sample = match kind {
            Kind::Counter => format!("{name}_total"),
            Kind::Gauge | Kind::Histogram => name.to_owned(),
        };
        let described = match format {
            Format::Classic => &*sample,
            Format::OpenMetrics => name,
        };
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        text.push_str("# HELP ");
        text.push_str(described);
        text.push(' ');
        escape(help, text);
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n# TYPE {described} {kind}");
        Family::Text { text, name: sample }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Gauge, help).add(&[], value);
    }

    /// Returns the whole text.
    pub(super) fn finish(self) -> String {
        match self {
            Self::Text(Format::OpenMetrics, text) => text + "# EOF\n",
            Self::Text(Format::Classic, text) => text,
            Self::Points(_) => String::new(),
        }
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub(super) fn add(&mut self, labels: &Labels<'_>, value: u64) {
        self.add_value(labels, PointValue::Number(value));
    }

    /// Adds a time.
    pub(super) fn add_micros(&mut self, labels: &Labels<'_>, micros: u64) {
        self.add_value(labels, PointValue::Micros(micros));
    }

    /// Adds all samples of a histogram.
    pub(super) fn add_histogram(&mut self, labels: &Labels<'_>, histogram: &Histogram) {
        self.add_value(labels, PointValue::Histogram(Box::new(*histogram)));
    }

    fn add_value(&mut self, labels: &Labels<'_>, value: PointValue) {
        let (text, name) = match self {
            Self::Text { text, name } => (text, &**name),
            Self::Points(points) => {
                let labels = labels.iter();
                let owned = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                return points.push((owned.collect(), value));
            }
        };
        match value {
            PointValue::Number(number) => line(text, name, labels, None, &number.to_string()),
            PointValue::Micros(micros) => line(text, name, labels, None, &seconds(micros)),
            PointValue::Histogram(histogram) => {
                let bucket_name = format!("{name}_bucket");
                for (bucket, count) in histogram.cumulative().enumerate() {
                    let bound = seconds(upper_bound(bucket));
                    line(text, &bucket_name, labels, Some(&bound), &count.to_string());
                }
                let count = histogram.count().to_string();
                line(text, &bucket_name, labels, Some("+Inf"), &count);
                let sum = seconds(histogram.sum());
                line(text, &format!("{name}_sum"), labels, None, &sum);
                line(text, &format!("{name}_count"), labels, None, &count);
            }
        }
    }
}

fn line(text: &mut String, name: &str, labels: &Labels<'_>, bound: Option<&str>, value: &str) {
    text.push_str(name);
    let bound = bound.map(|bound| ("le", bound));
    let mut separator = '{';
    for (name, value) in labels.iter().copied().chain(bound) {
        text.push(separator);
        text.push_str(name);
        text.push_str("=\"");
        escape(value, text);
        text.push('"');
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    text.push(' ');
    text.push_str(value);
    text.push('\n');
}

/// Returns a time in seconds, without needless zeros.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str, into: &mut String) {
    if !text.contains(['\\', '"', '\n']) {
        return into.push_str(text);
    }
    for char in text.chars() {
        match char {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            '\n' => into.push_str("\\n"),
            other => into.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_its_suffix_where_the_format_wants_it() {
        let text = |format| {
            let mut exposition = Exposition::new(format);
            let mut family = exposition.family("a_queries", Kind::Counter, "Queries.");
            family.add(&[("database", "app")], 7);
            exposition.gauge("a_up", "Is it up?", 1);
            exposition.finish()
        };
        assert_eq!(
            text(Format::Classic),
            "# HELP a_queries_total Queries.\n# TYPE a_queries_total counter\n\
             a_queries_total{database=\"app\"} 7\n\
             # HELP a_up Is it up?\n# TYPE a_up gauge\na_up 1\n"
        );
        assert_eq!(
            text(Format::OpenMetrics),
            "# HELP a_queries Queries.\n# TYPE a_queries counter\n\
             a_queries_total{database=\"app\"} 7\n\
             # HELP a_up Is it up?\n# TYPE a_up gauge\na_up 1\n# EOF\n"
        );
    }

    #[test]
    fn quotes_backslashes_and_newlines_in_labels_are_escaped() {
        let mut exposition = Exposition::new(Format::Classic);
        let mut family = exposition.family("a", Kind::Gauge, "h");
        family.add(&[("name", "a\"b\\c\nd"), ("other", "é")], 1);
        let text = exposition.finish();
        assert!(
            text.ends_with("a{name=\"a\\\"b\\\\c\\nd\",other=\"é\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn histograms_end_with_all() {
        let mut histogram = Histogram::default();
        histogram.observe(100);
        histogram.observe(1_000_000_000);
        let mut exposition = Exposition::new(Format::Classic);
        let mut family = exposition.family("a_seconds", Kind::Histogram, "h");
        family.add_histogram(&[("user", "ann")], &histogram);
        let text = exposition.finish();
        for line in [
            "a_seconds_bucket{user=\"ann\",le=\"0.000064\"} 0",
            "a_seconds_bucket{user=\"ann\",le=\"0.000128\"} 1",
            "a_seconds_bucket{user=\"ann\",le=\"+Inf\"} 2",
            "a_seconds_sum{user=\"ann\"} 1000.0001",
            "a_seconds_count{user=\"ann\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
