//! Numbers and times in the formats of `strtol`, `strtod` and `%g`, which PgBouncer uses.

/// Parses a number as `strtoul(.., 0)` does: decimal, `0x` hexadecimal, leading `0` octal.
pub(crate) fn unsigned(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // from_str_radix would accept a sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// Parses a time. Returns microseconds; a number without a unit counts units of `bare` microseconds.
pub(crate) fn duration(text: &str, bare: f64) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" => bare,
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "min" => 60e6,
        "h" => 3_600e6,
        "d" => 86_400e6,
        _ => return None,
    };
    // Rounded, as 0.000012 seconds times a million is a little less than 12.
    let micros = (number.trim_end().parse::<f64>().ok()? * unit).round();
    // A float is exact to one microsecond up to 2^53, which is 285 years.
    (micros >= 0.0 && micros <= (1_u64 << 53) as f64).then_some(micros as u64)
}

/// The units of memory, as PostgreSQL writes them, and their sizes in bytes.
pub(crate) const MEMORY_UNITS: [(&str, u64); 5] = [
    ("B", 1),
    ("kB", 1 << 10),
    ("MB", 1 << 20),
    ("GB", 1 << 30),
    ("TB", 1 << 40),
];

/// Parses an amount of memory. Returns bytes; a number without a unit counts bytes.
pub(crate) fn memory(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" => "B",
        unit => unit,
    };
    let mut units = MEMORY_UNITS.iter();
    let (_, size) = units.find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let digits = number.trim_end();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*size)
}

/// Prints a number as C's `%g` does: six significant digits, no needless zeros.
pub(crate) fn general(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return without_zeros(&format!("{value:.*}", (5 - exponent) as usize)).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_units() {
        let cases = [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("64kB", Some(65_536)),
            ("64 KB", Some(65_536)),
            ("256MB", Some(256 << 20)),
            ("2gb", Some(2 << 30)),
            ("16777216TB", None),
            ("1.5GB", None),
            ("-1", None),
            ("+1", None),
            ("MB", None),
            ("5 apples", None),
            ("", None),
        ];
        for (text, expect) in cases {
            assert_eq!(memory(text), expect, "{text}");
        }
    }

    #[test]
    fn unsigned_reads_as_strtoul() {
        let cases = [
            ("0", Some(0)),
            ("12", Some(12)),
            ("0777", Some(0o777)),
            ("0x1F", Some(31)),
            ("2147483647", Some(2_147_483_647)),
            ("4294967296", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("0x", None),
            ("0x+1", None),
            ("08", None),
            ("1 ", None),
            ("1x", None),
        ];
        for (text, expect) in cases {
            assert_eq!(unsigned(text), expect, "{text:?}");
        }
    }

    #[test]
    fn duration_takes_units() {
        let cases = [
            ("0", Some(0)),
            ("15", Some(15_000_000)),
            ("0.5", Some(500_000)),
            ("1e3", Some(1_000_000_000)),
            ("250ms", Some(250_000)),
            ("250 ms", Some(250_000)),
            ("7us", Some(7)),
            ("0.000012", Some(12)),
            ("2.3ms", Some(2_300)),
            ("2min", Some(120_000_000)),
            ("1h", Some(3_600_000_000)),
            ("1d", Some(86_400_000_000)),
            ("-1", None),
            ("", None),
            ("s", None),
            ("inf", None),
            ("nan", None),
            ("1e300", None),
            ("5 weeks", None),
            ("5sec", None),
        ];
        for (text, expect) in cases {
            assert_eq!(duration(text, 1e6), expect, "{text:?}");
        }
    }

    #[test]
    fn general_prints_as_percent_g() {
        let cases = [
            (0.0, "0"),
            (3600.0, "3600"),
            (1.5, "1.5"),
            (0.000001, "1e-06"),
            (10_000_000.0, "1e+07"),
            (0.0001, "0.0001"),
            (123_456.7, "123457"),
            (999_999.6, "1e+06"),
        ];
        for (value, expect) in cases {
            assert_eq!(general(value), expect);
        }
    }
}
