//! Answers of Patroni's REST API (`GET /cluster`): the members of a cluster, and which of them is the leader.
//!
//! An answer only makes pgweir check the hosts. The answers of the servers decide which host is used.

use pgweir_config::PatroniUrls;
use serde_json::{Map, Value};

/// The maximum number of members of a cluster.
const MEMBERS_MAX: usize = 100;
/// The maximum number of bytes of a name, a host or a state.
const WORD_MAX: usize = 255;

/// The members of a cluster, as one of them reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterReport {
    members: Vec<ReportedMember>,
}

/// One member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedMember {
    /// The member's name.
    pub name: String,
    /// The role: `leader`, `standby_leader`, `sync_standby`, `replica` and the like.
    pub role: String,
    /// The state: `running`, `streaming`, `stopped` and the like.
    pub state: String,
    /// The host and the port of the member's PostgreSQL; `None` if Patroni does not know them.
    pub address: Option<(String, u16)>,
    /// The timeline of the member's PostgreSQL.
    pub timeline: Option<u32>,
}

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
pub(super) const CHECKS_PER_REPORT: u32 = 20;

impl Reported {
    /// Returns the report about a member of the cluster.
    pub(super) fn of(member: &ReportedMember) -> Self {
        let timeline = member.timeline;
        let timeline = timeline.map_or(String::new(), |at| format!(", timeline {at}"));
        Self {
            text: Some(format!("{}, {}{timeline}", member.role, member.state)),
            checks_left: if member.is_primary() {
                CHECKS_PER_REPORT
            } else {
                0
            },
        }
    }

    /// Takes one of the early checks that may still follow. Returns `false` if none is left.
    pub(super) fn take_check(&mut self) -> bool {
        let left = self.checks_left.checked_sub(1);
        self.checks_left = left.unwrap_or(0);
        left.is_some()
    }
}

/// Why an answer can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportError {
    /// The answer is not JSON.
    NotJson,
    /// The answer is JSON, but has no list of members as Patroni writes them.
    NotPatroni,
    /// The answer has too many members, or a text that is too long.
    TooLarge,
    /// The answer has several leaders.
    SeveralLeaders,
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotJson => "the answer is no JSON",
            Self::NotPatroni => "the answer has no list of members",
            Self::TooLarge => "the answer has too many members or too long names",
            Self::SeveralLeaders => "the answer has several leaders",
        })
    }
}

impl ClusterReport {
    /// Parses the body of an answer. Fields that are not needed may have any form.
    ///
    /// # Errors
    /// Patroni does not write such a body, or the body has several leaders.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        let answer: Value = serde_json::from_slice(body).map_err(|_| ReportError::NotJson)?;
        let listed = answer.get("members").and_then(Value::as_array);
        let listed = listed.ok_or(ReportError::NotPatroni)?;
        if listed.len() > MEMBERS_MAX {
            return Err(ReportError::TooLarge);
        }
        let members = listed.iter().map(|member| {
            let fields = member.as_object().ok_or(ReportError::NotPatroni)?;
            ReportedMember::read(fields)
        });
        let mut members = members.collect::<Result<Vec<_>, _>>()?;
        if members.iter().filter(|member| member.is_leader()).count() > 1 {
            return Err(ReportError::SeveralLeaders);
        }
        // Sorted, so that reports with another order are equal.
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { members })
    }

    /// Returns the members, by name.
    #[must_use]
    pub fn members(&self) -> &[ReportedMember] {
        &self.members
    }

    /// Returns the leader, if the cluster has one.
    #[must_use]
    pub fn leader(&self) -> Option<&ReportedMember> {
        self.members.iter().find(|member| member.is_leader())
    }
}

impl ReportedMember {
    fn read(fields: &Map<String, Value>) -> Result<Self, ReportError> {
        let word = |key: &str| match fields.get(key).and_then(Value::as_str) {
            Some(text) if text.len() > WORD_MAX => Err(ReportError::TooLarge),
            Some(text) => Ok(Some(text.to_owned())),
            None => Ok(None),
        };
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        let port = number("port").and_then(|port| u16::try_from(port).ok());
        Ok(Self {
            name: word("name")?.ok_or(ReportError::NotPatroni)?,
            role: word("role")?.ok_or(ReportError::NotPatroni)?,
            state: word("state")?.unwrap_or_default(),
            address: word("host")?.zip(port),
            timeline: number("timeline").and_then(|timeline| timeline.try_into().ok()),
        })
    }

    /// Returns whether the member is the leader of its cluster: its primary, or the standby from which the other
    /// members of a standby cluster replicate.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(
            &*self.role,
            "leader" | "master" | "primary" | "standby_leader"
        )
    }

    /// Returns whether the member is reported as the primary of its cluster.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.is_leader() && self.role != "standby_leader"
    }
}

/// Prints name and address: `pg1 (10.0.0.1:5432)`.
impl std::fmt::Display for ReportedMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.address {
            Some((host, port)) => write!(f, "{} ({host}:{port})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// News of a Patroni cluster: a report that differs from the last one, or the reason why the cluster's members no
/// longer report.
#[derive(Debug)]
pub struct PatroniNews {
    /// The addresses of the cluster's REST API: the value of `patroni` of its databases.
    pub urls: PatroniUrls,
    /// The report, or an error message.
    pub report: Result<ClusterReport, String>,
    /// Whether this is the first report after a RELOAD, which is not listed as an event.
    pub is_repeated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, role: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","role":"{role}","state":"running"{more}}}"#)
    }

    fn parse(members: &[String]) -> Result<ClusterReport, ReportError> {
        let text = format!(
            r#"{{"members":[{}],"scope":"shop","pause":true}}"#,
            members.join(",")
        );
        ClusterReport::parse(text.as_bytes())
    }

    #[test]
    fn a_cluster_of_patroni_3() {
        let text = br#"{"members": [
            {"name": "two", "role": "sync_standby", "state": "streaming", "api_url": "http://10.0.0.2:8008/patroni",
             "host": "10.0.0.2", "port": 5432, "timeline": 3, "lag": 0},
            {"name": "one", "role": "leader", "state": "running", "host": "10.0.0.1", "port": 5433, "timeline": 3},
            {"name": "x", "role": "replica", "state": "start failed", "lag": "unknown"}], "scope": "shop"}"#;
        let report = ClusterReport::parse(text).unwrap();
        let names: Vec<_> = report.members().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["one (10.0.0.1:5433)", "two (10.0.0.2:5432)", "x"]);
        assert_eq!(report.leader().unwrap().name, "one");
        assert_eq!(report.members()[1].timeline, Some(3));
        assert!(!report.members()[1].is_leader());
    }

    #[test]
    fn order_and_lag_are_no_news() {
        let (one, two) = (
            member("one", "leader", ""),
            member("two", "replica", r#","lag":0"#),
        );
        let later = member("two", "replica", r#","lag":77"#);
        assert_eq!(parse(&[one.clone(), two]), parse(&[later, one]));
    }

    #[test]
    fn a_standby_leader_is_no_primary() {
        let report = parse(&[member("one", "standby_leader", "")]).unwrap();
        let leader = report.leader().unwrap();
        assert!(!leader.is_primary());
        assert_eq!(parse(&[]).unwrap().leader(), None);
    }

    #[test]
    fn garbage_is_refused() {
        let leader = |name: &str| member(name, "leader", "");
        assert_eq!(
            parse(&[leader("a"), leader("b")]),
            Err(ReportError::SeveralLeaders)
        );
        let crowd = vec![member("a", "replica", ""); MEMBERS_MAX + 1];
        assert_eq!(parse(&crowd), Err(ReportError::TooLarge));
        assert_eq!(
            parse(&[member(&"a".repeat(300), "replica", "")]),
            Err(ReportError::TooLarge)
        );
        for (text, expect) in [
            ("", ReportError::NotJson),
            ("<html>", ReportError::NotJson),
            ("[]", ReportError::NotPatroni),
            (r#"{"members":{}}"#, ReportError::NotPatroni),
            (r#"{"members":[1]}"#, ReportError::NotPatroni),
            (
                r#"{"members":[{"role":"leader"}]}"#,
                ReportError::NotPatroni,
            ),
            (
                r#"{"members":[{"name":1,"role":"x"}]}"#,
                ReportError::NotPatroni,
            ),
        ] {
            assert_eq!(ClusterReport::parse(text.as_bytes()), Err(expect), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            ClusterReport::parse(deep.as_bytes()),
            Err(ReportError::NotJson)
        );
        // Values of a wrong type count as missing.
        let odd = member("a", "leader", r#","host":7,"port":"x","timeline":-1"#);
        let odd = parse(&[odd]).unwrap();
        assert_eq!(
            (&odd.members()[0].address, odd.members()[0].timeline),
            (&None, None)
        );
        let port = member("a", "leader", r#","host":"h","port":70000"#);
        assert_eq!(parse(&[port]).unwrap().members()[0].address, None);
    }
}
