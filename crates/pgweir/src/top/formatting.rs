//! Writes numbers and times with units, and draws plots of one line.

/// The parts of a plot, from low to high.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same for terminals without Unicode.
const PLAIN: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];

/// Returns a time in microseconds with a fitting unit.
pub(super) fn span(micros: u64) -> String {
    let with = |value: f64, unit: &str| match value {
        0.0..10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    };
    let seconds = micros / 1_000_000;
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => with(micros as f64 / 1e3, "ms"),
        1_000_000..60_000_000 => with(micros as f64 / 1e6, "s"),
        _ if seconds < 3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 48 * 3_600 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a number, shortened above 10,000.
pub(super) fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// Returns a number of events a second.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        0.0..10.0 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

/// Returns a noun with its number.
pub(super) fn count_of(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// Returns a plot of the last values, one character for each.
pub(super) fn plot(values: &[Option<f64>], width: usize, is_unicode: bool) -> String {
    let parts = if is_unicode { BLOCKS } else { PLAIN };
    let shown = &values[values.len().saturating_sub(width)..];
    let highest = shown.iter().flatten().copied().fold(0.0, f64::max);
    let part = |value: &Option<f64>| match value {
        Some(value) if *value > 0.0 && highest > 0.0 => {
            let height = (value / highest * 8.0).ceil() as usize;
            parts[height.clamp(1, 8) - 1]
        }
        Some(_) => parts[0],
        None => ' ',
    };
    shown.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (micros, expected) in [
            (0, "0 us"),
            (999, "999 us"),
            (1_500, "1.5 ms"),
            (25_000, "25 ms"),
            (2_300_000, "2.3 s"),
            (75_000_000, "1 min 15 s"),
            (7_260_000_000, "2 h 1 min"),
            (200_000_000_000, "2 d 7 h"),
        ] {
            assert_eq!(span(micros), expected);
        }
        assert_eq!(
            (count(9_999), count(12_345)),
            ("9999".into(), "12.3k".into())
        );
        assert_eq!((rate(0.0), rate(123.4)), ("0.0".into(), "123".into()));
    }

    #[test]
    fn plots_show_the_last_values() {
        let values = [Some(9.0), None, Some(0.0), Some(1.0), Some(4.0), Some(8.0)];
        assert_eq!(plot(&values, 5, true), " ▁▁▄█");
        assert_eq!(plot(&values, 2, false), "-#");
        assert_eq!(plot(&[], 5, true), "");
        assert_eq!(plot(&[Some(0.0); 3], 5, true), "▁▁▁");
    }
}
