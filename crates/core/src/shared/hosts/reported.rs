//! Patroni's report about one host, and the checks that follow a report.

use super::{HostFacts, ReportedMember};
use crate::{Time, shared::pool::ServerRole};

/// Patroni's report about a host.
#[derive(Debug, Clone, Default)]
pub struct Reported {
    /// Role, state and timeline in Patroni's words, for SHOW HOSTS; `None` if Patroni does not report the host.
    pub text: Option<String>,
    /// How many early checks may still follow, while Patroni calls the host the primary but the host says that it is a
    /// standby.
    checks_left: u32,
}

/// The maximum number of early checks after one report. Patroni reports a new leader shortly before it is promoted.
const CHECKS_PER_REPORT: u32 = 20;

impl HostFacts {
    /// Records Patroni's report about the host; `None` if Patroni does not report the host.
    pub fn note_reported(&mut self, member: Option<&ReportedMember>) {
        let is_primary = member.is_some_and(ReportedMember::is_primary);
        self.reported = Reported {
            text: member.map(|member| {
                let timeline = member.timeline;
                let timeline = timeline.map_or(String::new(), |at| format!(", timeline {at}"));
                format!("{}, {}{timeline}", member.role, member.state)
            }),
            checks_left: if is_primary { CHECKS_PER_REPORT } else { 0 },
        };
    }

    /// Called after a check. If Patroni calls the host the primary and the host says that it is a standby, the host may
    /// be about to be promoted. Then the next check begins `pause` microseconds from now. The number of such early
    /// checks is limited.
    pub fn check_announced_primary(&mut self, now: Time, pause: u64) {
        let is_standby = self.role.is_some_and(ServerRole::is_standby);
        if is_standby && self.reported.checks_left > 0 {
            self.reported.checks_left -= 1;
            let at = now.after(pause);
            self.check_at = Some(self.check_at.map_or(at, |before| before.min(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::hosts::ClusterReport;

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
