//! Polls Patroni's REST API for the state of clusters, on a separate thread, and sends changes to a worker.
//!
//! Each cluster has a task. The task sends a request to one member every `patroni_interval`. If this member does not
//! answer within `patroni_timeout`, the task sends a request to the next member. Queries of clients do not wait for
//! these requests.

mod access;
mod request;

use std::{collections::BTreeMap, io, rc::Rc, sync::Arc, thread, time::Duration};

use pgweir_config::{Config, PatroniUrls};
use pgweir_core::{
    Directory, WorkerId,
    mail::Mail,
    shared::hosts::{ClusterReport, PatroniNews},
};
use tokio::{
    runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{self, JoinHandle, LocalSet},
    time,
};

pub(crate) use self::access::{Access, AccessError};
use self::request::Member;
use crate::net::{Mailboxes, WorkerMessage};

/// The maximum number of bytes of an error in the log and the event.
const ERROR_MAX: usize = 300;
/// The maximum number of threads that look up names of hosts.
const LOOKUP_THREADS: usize = 4;

/// The clusters to poll, and the settings of the requests.
#[derive(Debug, Clone)]
struct Plan {
    clusters: Vec<PatroniUrls>,
    terms: Terms,
}

/// The settings of the requests.
#[derive(Debug, Clone)]
struct Terms {
    interval: Duration,
    timeout: Duration,
    access: Access,
}

/// The control thread's handle of the polling thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Patroni {
    mailboxes: Mailboxes,
    directory: Arc<Directory>,
    plans: Option<UnboundedSender<Plan>>,
    /// The CA certificates and the authorization of the configuration in force.
    pub(crate) access: Access,
}

impl Patroni {
    /// Starts the thread, if a database has `patroni`.
    ///
    /// # Errors
    /// The system refuses a new thread.
    pub(crate) fn start(
        mailboxes: &Mailboxes,
        directory: &Arc<Directory>,
        access: Access,
        config: &Config,
    ) -> io::Result<Self> {
        let mut patroni = Self {
            mailboxes: mailboxes.clone(),
            directory: Arc::clone(directory),
            plans: None,
            access,
        };
        patroni.apply(config)?;
        Ok(patroni)
    }

    /// Polls the clusters of this configuration instead of the former ones. Each cluster is reported again.
    ///
    /// # Errors
    /// The system refuses a new thread.
    pub(crate) fn apply(&mut self, config: &Config) -> io::Result<()> {
        let settings = &config.settings;
        let mut clusters = Vec::new();
        // An answer only triggers checks of hosts. With `host_check_interval` 0, there are none.
        if !settings.host_check_interval.is_zero() {
            let databases = config.databases.values().chain(&config.fallback);
            let named = databases.map(|database| &database.patroni);
            clusters.extend(named.filter(|urls| urls.is_set()).cloned());
        }
        clusters.sort();
        clusters.dedup();
        if clusters.is_empty() && self.plans.is_none() {
            return Ok(());
        }
        let plan = Plan {
            clusters,
            terms: Terms {
                interval: Duration::from_micros(settings.patroni_interval.0),
                timeout: Duration::from_micros(settings.patroni_timeout.0),
                access: self.access.clone(),
            },
        };
        // The thread ends only after its sender was dropped.
        let _ = self.sender()?.send(plan);
        Ok(())
    }

    fn sender(&mut self) -> io::Result<&UnboundedSender<Plan>> {
        if self.plans.is_none() {
            let runtime = runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .max_blocking_threads(LOOKUP_THREADS)
                .build()?;
            let (sender, plans) = unbounded_channel();
            let (mailboxes, directory) = (self.mailboxes.clone(), Arc::clone(&self.directory));
            thread::Builder::new()
                .name("patroni".to_owned())
                .spawn(move || {
                    LocalSet::new().block_on(&runtime, follow(plans, mailboxes, directory));
                    // The thread must end even if a look-up hangs.
                    runtime.shutdown_background();
                })?;
            self.plans = Some(sender);
        }
        self.plans
            .as_ref()
            .ok_or_else(|| io::Error::other("no thread"))
    }
}

/// Runs one task for each cluster of the last plan.
async fn follow(
    mut plans: UnboundedReceiver<Plan>,
    mailboxes: Mailboxes,
    directory: Arc<Directory>,
) {
    let mut tasks: BTreeMap<PatroniUrls, JoinHandle<()>> = BTreeMap::new();
    while let Some(plan) = plans.recv().await {
        let known: Vec<_> = tasks.keys().cloned().collect();
        for task in tasks.values() {
            task.abort();
        }
        tasks.clear();
        let terms = Rc::new(plan.terms);
        for urls in plan.clusters {
            let cluster = Cluster::new(&urls, known.contains(&urls));
            let (terms, directory) = (Rc::clone(&terms), Arc::clone(&directory));
            let task = task::spawn_local(cluster.watch(terms, directory, mailboxes.clone()));
            tasks.insert(urls, task);
        }
    }
}

/// The last answer of a cluster's members.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Nothing,
    Report(ClusterReport),
    /// No member has sent a usable answer.
    Failure,
}

/// One cluster.
struct Cluster {
    urls: PatroniUrls,
    members: Vec<Member>,
    /// The index of the member that answered last.
    at: usize,
    known: Known,
    /// Whether the last configuration had the same cluster.
    was_asked: bool,
}

impl Cluster {
    fn new(urls: &PatroniUrls, was_asked: bool) -> Self {
        Self {
            members: urls.urls().iter().cloned().map(Member::new).collect(),
            urls: urls.clone(),
            at: 0,
            known: Known::Nothing,
            was_asked,
        }
    }

    async fn watch(mut self, terms: Rc<Terms>, directory: Arc<Directory>, mailboxes: Mailboxes) {
        loop {
            let found = self.ask_in_turn(&terms, &directory).await;
            if let Some(news) = self.note(found) {
                let message = WorkerMessage::Mail(Mail::PatroniNews(Box::new(news)));
                mailboxes.send(WorkerId(0), message);
            }
            time::sleep(terms.interval).await;
        }
    }

    /// Sends a request to the member that answered last, and then to the others until one answers.
    async fn ask_in_turn(
        &mut self,
        terms: &Terms,
        directory: &Directory,
    ) -> Result<ClusterReport, String> {
        let count = self.members.len();
        let mut errors = Vec::new();
        for offset in 0..count {
            let at = (self.at + offset) % count;
            let member = &mut self.members[at];
            let answer = member.ask(&terms.access, terms.timeout).await;
            directory.hosts().patroni_requests().add(answer.is_ok());
            match answer {
                Ok(report) => {
                    self.at = at;
                    return Ok(report);
                }
                Err(error) => errors.push(format!("{}: {error}", member.url())),
            }
        }
        let mut text = errors.join("; ");
        text.truncate(text.floor_char_boundary(ERROR_MAX));
        Err(text)
    }

    /// Returns the news, if the answer differs from the last one. Consecutive failures are one piece of news, even with
    /// different reasons.
    fn note(&mut self, found: Result<ClusterReport, String>) -> Option<PatroniNews> {
        let known = match &found {
            Ok(report) => Known::Report(report.clone()),
            Err(_) => Known::Failure,
        };
        if known == self.known {
            return None;
        }
        let is_first = self.known == Known::Nothing;
        self.known = known;
        Some(PatroniNews {
            urls: self.urls.clone(),
            report: found,
            is_repeated: is_first && self.was_asked,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_reports_are_not_sent() {
        let report = |role: &str| {
            let text = format!(r#"{{"members":[{{"name":"a","role":"{role}"}}]}}"#);
            Ok(ClusterReport::parse(text.as_bytes()).unwrap())
        };
        let failure = |why: &str| Err(why.to_owned());
        let mut cluster = Cluster::new(&PatroniUrls::default(), false);
        let mut is_news = |found| cluster.note(found).is_some();
        assert!(is_news(failure("a")));
        assert!(!is_news(failure("b")));
        assert!(is_news(report("leader")));
        assert!(!is_news(report("leader")));
        assert!(is_news(report("replica")));
        assert!(is_news(failure("a")));
        assert!(is_news(report("replica")));
        let mut again = Cluster::new(&PatroniUrls::default(), true);
        assert!(again.note(report("leader")).unwrap().is_repeated);
        assert!(!again.note(report("replica")).unwrap().is_repeated);
    }
}
