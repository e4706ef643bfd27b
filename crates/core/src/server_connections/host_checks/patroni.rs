//! Handles changes that Patroni reports about clusters: checks the hosts concerned. The answers of the servers decide
//! which host is used.

use std::sync::Arc;

use super::request_check;
use crate::{
    Actions, Endpoint, Level,
    effect::Env,
    shared::{
        events::EventKind,
        hosts::{ClusterReport, Host, PatroniNews, ReportedMember},
    },
};

/// Records the reports about the hosts of the cluster's databases, and checks these hosts.
pub(crate) fn take_news(env: &Env<'_>, news: &PatroniNews, out: &mut Actions) {
    let config = &env.snapshot.config;
    let mut hosts: Vec<Arc<Host>> = Vec::new();
    for database in config.databases.values().chain(&config.fallback) {
        if database.patroni != news.urls {
            continue;
        }
        for endpoint in Endpoint::all_of(database) {
            let host = env.directory.hosts().at(&Arc::new(endpoint));
            if !hosts.iter().any(|one| Arc::ptr_eq(one, &host)) {
                hosts.push(host);
            }
        }
    }
    let report = news.report.as_ref().ok();
    let mut leader = None;
    for host in &hosts {
        let member = report.and_then(|report| member_at(report, &host.endpoint));
        let _ = host.update(|facts| facts.note_reported(member));
        if member.is_some_and(ReportedMember::is_primary) {
            leader = Some(host);
        }
    }
    if !news.is_repeated {
        write_down(env, news, out);
    }
    // Requests a check of the reported leader, since its role has changed. The request also checks all other hosts of
    // its lists, unless hosts were checked a short time ago.
    if let (Ok(_), Some(host)) = (&news.report, leader.or(hosts.first())) {
        let _ = request_check(env, host, out);
    }
}

/// Returns the member that has this address. Names of hosts are compared as they are written.
fn member_at<'r>(report: &'r ClusterReport, endpoint: &Endpoint) -> Option<&'r ReportedMember> {
    report.members().iter().find(|member| {
        let address = member.address.as_ref();
        address.is_some_and(|(host, port)| Endpoint::of(host, *port) == *endpoint)
    })
}

/// Writes a log line and an event.
fn write_down(env: &Env<'_>, news: &PatroniNews, out: &mut Actions) {
    let subject = format!("patroni {}", news.urls);
    let (level, kind, text) = match &news.report {
        Ok(report) => {
            let count = report.members().len();
            let text = match report.leader() {
                Some(leader) => format!("{count} members, the leader is {leader}"),
                None => format!("{count} members, and no leader"),
            };
            (Level::Log, EventKind::PatroniReported, text)
        }
        Err(why) => {
            let text = format!("no answer that can be used: {why}");
            (Level::Warning, EventKind::PatroniFailed, text)
        }
    };
    let event = format!("{subject}: {text}");
    env.directory.note_event(kind, ("", ""), &event, env.now);
    out.log(level, subject, text);
}
