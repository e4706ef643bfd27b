//! Any body as an answer of Patroni's REST API: a report has at most one leader, and the length of each text in it is
//! limited.

use pgweir_core::shared::hosts::ClusterReport;

/// See the module.
pub fn run(data: &[u8]) {
    let Ok(report) = ClusterReport::parse(data) else {
        return;
    };
    let leaders = report
        .members()
        .iter()
        .filter(|member| member.is_leader())
        .count();
    assert!(leaders <= 1);
    assert_eq!(report.leader().is_some(), leaders == 1);
    for member in report.members() {
        assert!(member.to_string().len() < 1_000);
        assert!(member.role.len() < 1_000 && member.state.len() < 1_000);
    }
}
