//! The checks that follow Patroni's report about a host.

use super::{HostFacts, Reported, ReportedMember};
use crate::{Time, shared::pool::ServerRole};

impl HostFacts {
    /// Records Patroni's report about the host; `None` if Patroni does not report the host.
    pub fn note_reported(&mut self, member: Option<&ReportedMember>) {
        self.reported = member.map_or_else(Reported::default, Reported::of);
    }

    /// Called after a check. If Patroni calls the host the primary and the host says that it is a standby, the host may
    /// be about to be promoted. Then the next check begins `pause` microseconds from now. The number of such early
    /// checks is limited.
    pub fn check_announced_primary(&mut self, now: Time, pause: u64) {
        let is_standby = self.role.is_some_and(ServerRole::is_standby);
        if is_standby && self.reported.take_check() {
            let at = now.after(pause);
            self.check_at = Some(self.check_at.map_or(at, |before| before.min(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::hosts::{ClusterReport, cluster_report::CHECKS_PER_REPORT};

    #[test]
    fn an_announced_primary_is_checked_until_it_is_one() {
        let report = br#"{"members":[{"name":"a","role":"leader","state":"running","timeline":2},
                                     {"name":"b","role":"replica","state":"streaming"}]}"#;
        let report = ClusterReport::parse(report).unwrap();
        let [leader, replica] = report.members() else {
            panic!("two members");
        };
        let mut facts = HostFacts::default();
        facts.role = Some(ServerRole::new(true, true));
        facts.check_announced_primary(Time(10), 5);
        assert_eq!(facts.check_at, None);
        facts.note_reported(Some(leader));
        assert_eq!(
            facts.reported.text.as_deref(),
            Some("leader, running, timeline 2")
        );
        facts.check_announced_primary(Time(10), 5);
        assert_eq!(facts.check_at, Some(Time(15)));
        facts.note_check(Time(15), None);
        facts.role = Some(ServerRole::new(false, false));
        facts.check_announced_primary(Time(15), 5);
        assert_eq!(facts.check_at, None);
        // Patroni may be wrong permanently.
        facts.role = Some(ServerRole::new(true, true));
        let checks = (0..100).filter(|_| {
            facts.note_check(Time(20), None);
            facts.check_announced_primary(Time(20), 5);
            facts.check_at.is_some()
        });
        assert_eq!(checks.count(), CHECKS_PER_REPORT as usize - 1);
        facts.note_reported(Some(replica));
        facts.check_announced_primary(Time(20), 5);
        assert_eq!(facts.check_at, None);
        facts.note_reported(None);
        assert_eq!(facts.reported.text, None);
    }
}
