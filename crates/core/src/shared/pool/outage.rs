//! Outages of a pool: it has no server, and the last logins to all its hosts have failed.

use crate::Time;

/// When a pool's last outage began and ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outage {
    since: Option<Time>,
    ended_at: Option<Time>,
}

impl Outage {
    /// Notes that the pool has no server left and that no host can be used. Returns whether that is new.
    pub fn begin(&mut self, now: Time) -> bool {
        let is_new = self.since.is_none();
        self.since.get_or_insert(now);
        is_new
    }

    /// Notes that a server has logged in. Returns how long the outage took, in microseconds, if there was one.
    pub fn end(&mut self, now: Time) -> Option<u64> {
        let since = self.since.take()?;
        self.ended_at = Some(now);
        Some(now.since(since))
    }

    /// Returns when the present outage began, if there is one.
    #[must_use]
    pub fn since(&self) -> Option<Time> {
        self.since
    }

    /// Returns whether a client that began to wait at `since` has waited for too long. Times are in microseconds.
    /// Without an outage, a client may wait for `limit` (0: no limit). With a `hold` (`outage_hold`), a client may wait
    /// for `hold` during an outage, and for `limit` after its end.
    #[must_use]
    pub fn is_over(&self, since: Time, now: Time, (limit, hold): (u64, u64)) -> bool {
        let exceeds = |since: Time, limit: u64| limit > 0 && now.since(since) >= limit;
        match (self.since, hold) {
            (_, 0) => exceeds(since, limit),
            (Some(_), hold) => exceeds(since, hold),
            (None, _) => exceeds(self.ended_at.map_or(since, |at| at.max(since)), limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_stops_the_clock_of_those_that_wait() {
        let mut outage = Outage::default();
        let is_over = |outage: &Outage, now, hold| outage.is_over(Time(100), Time(now), (50, hold));
        assert!(!is_over(&outage, 149, 300));
        assert!(is_over(&outage, 150, 300));
        assert!(outage.begin(Time(110)));
        assert!(!outage.begin(Time(120)));
        assert_eq!(outage.since(), Some(Time(110)));
        // Without a hold, nothing changes.
        assert!(is_over(&outage, 150, 0));
        assert!(!is_over(&outage, 399, 300));
        assert!(is_over(&outage, 400, 300));
        assert_eq!(outage.end(Time(390)), Some(280));
        assert_eq!(outage.end(Time(391)), None);
        assert!(!is_over(&outage, 439, 300));
        assert!(is_over(&outage, 440, 300));
        // Clients that began to wait later wait for the usual time.
        assert!(!outage.is_over(Time(400), Time(449), (50, 300)));
        assert!(outage.is_over(Time(400), Time(450), (50, 300)));
        assert!(!outage.is_over(Time(400), Time(u64::MAX), (0, 300)));
    }
}
