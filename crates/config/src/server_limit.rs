//! The value of `max_server_conn`: a number of servers, or a percentage of the connections that each host allows.

use crate::{
    number,
    value::{BadValue, Value},
};

/// The limit on servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerLimit {
    /// The largest number of servers of the process; 0 is no limit.
    Count(u32),
    /// The largest part of each host's connections, in percent (1 to 100).
    Percent(u8),
}

impl ServerLimit {
    /// Returns the percentage; `None` if the limit is a number.
    #[must_use]
    pub fn percent(self) -> Option<u8> {
        match self {
            Self::Count(_) => None,
            Self::Percent(percent) => Some(percent),
        }
    }

    /// Returns the number of servers of the whole process; 0 if there is no such limit.
    #[must_use]
    pub fn count(self) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(_) => 0,
        }
    }

    /// Returns how many servers a process may have on a host on which `usable` connections are possible: the equal
    /// share of one of so many `nodes` in the percentage, at least 1. `None` if the limit is a number.
    #[must_use]
    pub fn share_of_host(self, usable: u32, nodes: u32) -> Option<u32> {
        let percent = self.percent()?;
        let all_nodes = u64::from(usable) * u64::from(percent) / 100;
        let share = all_nodes / u64::from(nodes.max(1));
        Some(u32::try_from(share).unwrap_or(u32::MAX).max(1))
    }
}

impl Default for ServerLimit {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Value for ServerLimit {
    const KIND: &'static str = "integer, or percentage such as `80%`";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let wrong = || BadValue::new("a whole number, 0 or more, or 1% to 100% (without a space)");
        let Some(digits) = text.strip_suffix('%') else {
            return number::unsigned(text).map(Self::Count).ok_or_else(wrong);
        };
        let percent = number::unsigned(digits).filter(|percent| (1..=100).contains(percent));
        let percent = percent.and_then(|percent| u8::try_from(percent).ok());
        percent.map(Self::Percent).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages() {
        for (text, expect) in [
            ("0", ServerLimit::Count(0)),
            ("60", ServerLimit::Count(60)),
            ("1%", ServerLimit::Percent(1)),
            ("100%", ServerLimit::Percent(100)),
        ] {
            let limit = ServerLimit::parse(text).unwrap();
            assert_eq!((limit, limit.show()), (expect, text.to_owned()));
        }
        for text in [
            "", "%", "0%", "101%", "256%", "80 %", "-5%", "8.5%", "80%%", "% 80", "-1",
        ] {
            assert!(ServerLimit::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_get_equal_shares_of_a_percentage() {
        for (percent, nodes, usable, share) in [
            (80, 1, 97, 77),
            (100, 1, 97, 97),
            (80, 3, 97, 25),
            (1, 1, 97, 1),
            (50, 1_000, 97, 1),
            (100, 1, u32::MAX, u32::MAX),
            (80, 1, 0, 1),
            (80, 0, 10, 8),
        ] {
            let limit = ServerLimit::Percent(percent);
            assert_eq!(limit.share_of_host(usable, nodes), Some(share), "{limit:?}");
        }
        assert_eq!(ServerLimit::Count(60).share_of_host(97, 1), None);
    }
}
