//! The value of `max_server_conn`: a number of servers, or a percentage of the connections that each host allows.

use crate::{
    Share,
    value::{BadValue, Value},
};

/// The limit on servers: a number for the whole process (0 is no limit), or the largest part of each host's connections
/// (1 to 100 %).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimit(Share);

impl ServerLimit {
    /// Returns whether the limit is a percentage.
    #[must_use]
    pub fn is_percentage(self) -> bool {
        matches!(self.0, Share::Percent(_))
    }

    /// Returns the number of servers of the whole process; 0 if there is no such limit.
    #[must_use]
    pub fn count(self) -> u32 {
        match self.0 {
            Share::Number(count) => count,
            Share::Percent(_) => 0,
        }
    }

    /// Returns how many servers a process may have on a host on which `usable` connections are possible: the equal
    /// share of one of so many `nodes` in the percentage, at least 1. `None` if the limit is a number.
    #[must_use]
    pub fn share_of_host(self, usable: u32, nodes: u32) -> Option<u32> {
        let share = self.0.of(usable) / nodes.max(1);
        self.is_percentage().then_some(share.max(1))
    }
}

impl Default for ServerLimit {
    fn default() -> Self {
        Self(Share::Number(0))
    }
}

impl From<Share> for ServerLimit {
    fn from(share: Share) -> Self {
        Self(share)
    }
}

impl Value for ServerLimit {
    const KIND: &'static str = "integer, or percentage such as `80%`";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let share = Share::parse(text).ok();
        let is_valid =
            |share: &Share| *share != Share::Percent(0) && !text.contains(char::is_whitespace);
        share.filter(is_valid).map(Self).ok_or_else(|| {
            BadValue::new("a whole number, 0 or more, or 1% to 100% (without a space)")
        })
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages() {
        for (text, expect) in [
            ("0", Share::Number(0)),
            ("60", Share::Number(60)),
            ("1%", Share::Percent(1)),
            ("100%", Share::Percent(100)),
        ] {
            let limit = ServerLimit::parse(text).unwrap();
            assert_eq!((limit, limit.show()), (expect.into(), text.to_owned()));
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
            let limit = ServerLimit::from(Share::Percent(percent));
            assert_eq!(limit.share_of_host(usable, nodes), Some(share), "{limit:?}");
        }
        assert_eq!(
            ServerLimit::from(Share::Number(60)).share_of_host(97, 1),
            None
        );
    }
}
