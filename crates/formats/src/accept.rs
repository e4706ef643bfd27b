//! The header `Accept` of a scrape.

/// Returns whether the header prefers OpenMetrics to Prometheus' older text format. It does not if there is no header, or
/// if the header names neither format.
#[must_use]
pub fn prefers_openmetrics(accept: Option<&str>) -> bool {
    let ranges = accept.unwrap_or_default().split(',');
    let (mut open, mut classic) = (0, 0);
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut quality = 1_000;
        let mut version = None;
        for part in parts {
            match part.split_once('=') {
                Some(("q", value)) => quality = thousandths(value),
                Some(("version", value)) => version = Some(value.trim_matches('"')),
                _ => {}
            }
        }
        match &*kind {
            "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" | "text/*" | "*/*" => classic = classic.max(quality),
            _ => {}
        }
    }
    open > 0 && open >= classic
}

/// Returns a quality in thousandths: 0 to 1000.
fn thousandths(text: &str) -> u32 {
    let quality = text.trim().parse().unwrap_or(0.0_f32);
    (quality.clamp(0.0, 1.0) * 1_000.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_format_is_chosen() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (None, false),
            (Some(""), false),
            (Some("*/*"), false),
            (Some("text/html, nonsense;;=;q=x"), false),
            (Some("text/plain"), false),
            (Some("application/openmetrics-text"), true),
            (
                Some("Application/OpenMetrics-Text; version=\"1.0.0\""),
                true,
            ),
            (Some("application/openmetrics-text;version=0.0.1"), false),
            (Some("application/openmetrics-text;q=0"), false),
            (
                Some("application/openmetrics-text;q=0.2, text/plain"),
                false,
            ),
            (Some(prometheus_3), true),
        ] {
            assert_eq!(prefers_openmetrics(accept), expected, "{accept:?}");
        }
    }
}
