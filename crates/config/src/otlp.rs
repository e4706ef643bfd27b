//! The types of the settings for OpenTelemetry: the address of a collector, and the fraction of transactions to trace.

use std::fmt;

use crate::{
    number,
    url::{UrlParts, authority},
    value::{BadValue, Value},
};

const EXPECTED: &str = "http://HOST:PORT, such as http://127.0.0.1:4318, or nothing";

/// The port on which collectors take OTLP over HTTP.
const PORT: u16 = 4318;

/// The collector to which OTLP over HTTP is sent, if one is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtlpEndpoint(Option<Collector>);

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// A name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The URL's part before `/v1/traces` and `/v1/metrics`, without a slash at its end.
    pub path: String,
}

impl OtlpEndpoint {
    /// Returns the collector, if there is one.
    #[must_use]
    pub fn collector(&self) -> Option<&Collector> {
        self.0.as_ref()
    }

    /// Returns whether there is a collector.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

impl Collector {
    /// Returns host and port, as an HTTP request names them.
    #[must_use]
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    fn parse(text: &str) -> Result<Self, BadValue> {
        let wrong = |why: &str| BadValue::new(format!("{EXPECTED} (\"{text}\" {why})"));
        if text.starts_with("https://") {
            let why = "has TLS, which pgweir does not use here: run a collector on this machine";
            return Err(wrong(why));
        }
        let rest = text.strip_prefix("http://");
        let rest = rest.ok_or_else(|| wrong("does not begin with http://"))?;
        let UrlParts { host, port, path } = UrlParts::parse(rest, PORT).map_err(wrong)?;
        Ok(Self { host, port, path })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl Value for OtlpEndpoint {
    const KIND: &'static str = "URL";

    fn parse(text: &str) -> Result<Self, BadValue> {
        match text.is_empty() {
            true => Ok(Self(None)),
            false => Collector::parse(text).map(|collector| Self(Some(collector))),
        }
    }

    fn show(&self) -> String {
        self.0.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// A part of something, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u32);

impl Ratio {
    /// Returns the ratio in millionths.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl Value for Ratio {
    const KIND: &'static str = "number from 0 to 1";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let ratio = text.parse::<f64>().ok();
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.ok_or_else(|| BadValue::new("a number from 0 to 1, such as 0.01"))?;
        Ok(Self((ratio * 1e6).round() as u32))
    }

    fn show(&self) -> String {
        number::general(f64::from(self.0) / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors() {
        for (text, shown) in [
            ("", ""),
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("http://collector", "http://collector:4318"),
            ("http://[::1]:80/", "http://[::1]:80"),
            ("http://[::1]", "http://[::1]:4318"),
            ("http://a:1/otlp/", "http://a:1/otlp"),
        ] {
            assert_eq!(OtlpEndpoint::parse(text).unwrap().show(), shown, "{text}");
        }
        for text in [
            "127.0.0.1:4318",
            "https://collector:4318",
            "http://",
            "http://:4318",
            "http://a:0",
            "http://a:65536",
            "http://[::1",
            "http://user@a:1",
            "http://a:1/x?y",
            "http://a b:1",
        ] {
            let bad = OtlpEndpoint::parse(text).unwrap_err();
            assert!(
                bad.expected.starts_with(EXPECTED),
                "{text}: {}",
                bad.expected
            );
        }
    }

    #[test]
    fn ratios() {
        for (text, millionths) in [("0", 0), ("1", 1_000_000), ("0.01", 10_000), ("1e-6", 1)] {
            assert_eq!(
                Ratio::parse(text).unwrap().millionths(),
                millionths,
                "{text}"
            );
        }
        for text in ["", "-0.1", "1.1", "NaN", "inf", "1%", "x"] {
            assert!(Ratio::parse(text).is_err(), "{text}");
        }
        assert_eq!(Ratio(10_000).show(), "0.01");
    }
}
