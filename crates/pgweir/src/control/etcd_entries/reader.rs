//! Reads, watches and writes the keys, over a connection to one member of etcd at a time.

use std::time::Duration;

use crossbeam_channel::Sender as ControlSender;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, Txn, TxnOp, WatchOptions,
    WatchResponse, WatchStream,
};
use pgweir_config::{Changes, Settings};
use pgweir_formats::etcd_entries::{Keys, Meaning, value_of};
use tokio::{sync::mpsc::Receiver, time};

use super::{Asked, EntryWrite, EtcdEntries};
use crate::control::{
    ChangeError, FleetAccess, Request,
    change::{Reply, answer},
};

/// The number of keys in one answer of etcd.
const PAGE: i64 = 1000;
/// The maximum number of bytes of all keys and values.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why the entries can't be read, or a change can't be written.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// etcd can't be reached, or refuses the request.
    #[error("{0}")]
    Etcd(#[from] etcd_client::Error),
    /// The answer took longer than `config_etcd_timeout`.
    #[error("no answer within {} s (config_etcd_timeout)", .0.as_secs_f64())]
    Timeout(Duration),
    /// etcd has ended the watch.
    #[error("etcd has ended the watch ({0})")]
    Watch(String),
    /// An answer has no header.
    #[error("an answer without a header")]
    NoHeader,
    /// The keys and values are too long.
    #[error("the entries have more than {BYTES_MAX} bytes")]
    TooLong,
    /// The control thread has ended.
    #[error("the process ends")]
    Ended,
}

/// The thread's state.
pub(super) struct Reader {
    urls: Vec<String>,
    options: ConnectOptions,
    keys: Keys,
    timeout: Duration,
    control: ControlSender<Request>,
    asked: Receiver<Asked>,
    /// Why etcd could not be read, until it is read again.
    failure: Option<String>,
}

impl Reader {
    pub(super) fn new(
        access: &FleetAccess,
        settings: &Settings,
        control: ControlSender<Request>,
        asked: Receiver<Asked>,
    ) -> Self {
        let timeout = Duration::from_micros(settings.config_etcd_timeout.0);
        // Without these probes, a cut connection would look like a store in which nothing changes.
        let options = access.options().with_keep_alive(timeout, timeout);
        Self {
            urls: settings.config_etcd.urls().to_vec(),
            options: options
                .with_keep_alive_while_idle(true)
                .with_connect_timeout(timeout),
            keys: Keys::new(&settings.fleet_name),
            timeout,
            control,
            asked,
            failure: None,
        }
    }

    /// Runs until the control thread has dropped its handle.
    pub(super) async fn run(mut self) {
        let mut at = 0;
        loop {
            let url = self.urls[at % self.urls.len()].clone();
            at += 1;
            match self.follow(&url).await {
                Ok(()) | Err(ReadError::Ended) => return,
                Err(error) => self.note_failure(format!("{url}: {error}")),
            }
            if at.is_multiple_of(self.urls.len()) && !self.pause().await {
                return;
            }
        }
    }

    /// Follows the entries over one connection. Returns when the control thread has dropped its handle.
    async fn follow(&mut self, url: &str) -> Result<(), ReadError> {
        let connecting = Client::connect([url.to_owned()], Some(self.options.clone()));
        let mut client = self.within(connecting).await?;
        let mut read = self.read(&mut client, None).await?;
        let mut watch = self.watch(&mut client, read).await?;
        loop {
            tokio::select! {
                answer = watch.message() => {
                    let answer = answer?.ok_or_else(|| ReadError::Watch("it gave no reason".to_owned()))?;
                    if is_newer(&answer, read)? {
                        read = self.read(&mut client, None).await?;
                    }
                }
                asked = self.asked.recv() => match asked {
                    Some(Asked::Write(write)) => {
                        read = self.write(&mut client, write).await?.unwrap_or(read);
                    }
                    Some(Asked::ReadAgain) => read = self.read(&mut client, None).await?,
                    None => return Ok(()),
                }
            }
        }
    }

    /// Watches the keys for changes after a revision.
    async fn watch(&self, client: &mut Client, read: i64) -> Result<WatchStream, ReadError> {
        let options = WatchOptions::new().with_prefix();
        let options = options.with_start_revision(read + 1);
        let watching = client.watch(self.keys.prefix(), Some(options));
        self.within(watching).await
    }

    /// Reads all entries at one revision, passes them to the control thread, and returns the revision.
    async fn read(&mut self, client: &mut Client, reply: Option<Reply>) -> Result<i64, ReadError> {
        let (mut changes, mut wrong) = (Changes::default(), Vec::new());
        let (mut revision, mut bytes, mut is_unused) = (0, 0, true);
        let mut from = self.keys.prefix().as_bytes().to_vec();
        loop {
            let options = GetOptions::new().with_range(self.keys.end());
            let options = options.with_limit(PAGE).with_revision(revision);
            let answer = self.within(client.get(from, Some(options))).await?;
            if revision == 0 {
                revision = answer.header().ok_or(ReadError::NoHeader)?.revision();
            }
            for pair in answer.kvs() {
                is_unused = false;
                bytes += pair.key().len() + pair.value().len();
                let key = String::from_utf8_lossy(pair.key()).into_owned();
                match self.keys.meaning(pair.key(), pair.value()) {
                    Ok(Meaning::Entry(scope, name, text)) => {
                        changes.set_from(&key, scope, &name, text);
                    }
                    Ok(Meaning::InUse) => {}
                    Err(problem) => wrong.push(problem),
                }
            }
            if bytes > BYTES_MAX {
                return Err(ReadError::TooLong);
            }
            from = match answer.kvs().last() {
                // The next key in the order of bytes.
                Some(last) if answer.more() => [last.key(), b"\0"].concat(),
                _ => break,
            };
        }
        self.failure = None;
        self.tell(Request::EtcdEntries(EtcdEntries {
            read: if wrong.is_empty() {
                Ok(changes)
            } else {
                Err(wrong)
            },
            revision,
            is_unused,
            reply,
        }))?;
        Ok(revision)
    }

    /// Writes an entry, if nobody has changed it since the control thread has seen it. Then reads all entries, which lets the
    /// control thread answer the HTTP request, and returns their revision; `None` if nothing was written.
    async fn write(
        &mut self,
        client: &mut Client,
        write: EntryWrite,
    ) -> Result<Option<i64>, ReadError> {
        let key = self.keys.of_entry(write.scope, &write.name);
        let next = write.revision + 1;
        let same = Compare::mod_revision(key.clone(), CompareOp::Less, next);
        let put = TxnOp::put(key, value_of(write.text.as_ref()), None);
        let mark = TxnOp::put(self.keys.in_use(), "", None);
        let txn = Txn::new().when([same]).and_then([put, mark]);
        match self.within(client.txn(txn)).await {
            Ok(answer) if answer.succeeded() => {
                self.read(client, Some(write.reply)).await.map(Some)
            }
            Ok(_) => {
                answer(write.reply, Err(ChangeError::Conflict));
                Ok(None)
            }
            Err(error) => {
                let text = format!("{error}: the change may have been written nevertheless");
                answer(write.reply, Err(ChangeError::Etcd(text)));
                Err(error)
            }
        }
    }

    /// Awaits an answer of etcd for `config_etcd_timeout` at most.
    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, ReadError> {
        let answer = time::timeout(self.timeout, asked).await;
        Ok(answer.map_err(|_| ReadError::Timeout(self.timeout))??)
    }

    /// Waits before the next try. Changes that come meanwhile are refused. Returns `false` if the control thread has dropped
    /// its handle.
    async fn pause(&mut self) -> bool {
        let ends = time::sleep(self.timeout);
        tokio::pin!(ends);
        loop {
            tokio::select! {
                () = &mut ends => return true,
                asked = self.asked.recv() => match asked {
                    // The next try reads all entries in any case.
                    Some(Asked::ReadAgain) => {}
                    Some(Asked::Write(write)) => {
                        let why = self.failure.clone().unwrap_or_default();
                        answer(write.reply, Err(ChangeError::Etcd(why)));
                    }
                    None => return false,
                }
            }
        }
    }

    /// Tells the control thread once why etcd can't be read.
    fn note_failure(&mut self, failure: String) {
        if self.failure.replace(failure.clone()).is_none() {
            // After its end, the thread has nobody to tell.
            let _ = self.tell(Request::EtcdEntriesFailed(failure));
        }
    }

    fn tell(&self, request: Request) -> Result<(), ReadError> {
        self.control.send(request).map_err(|_| ReadError::Ended)
    }
}

/// Returns whether an answer to the watch has a change that is later than this revision.
fn is_newer(answer: &WatchResponse, read: i64) -> Result<bool, ReadError> {
    if answer.canceled() {
        return Err(ReadError::Watch(answer.cancel_reason().to_owned()));
    }
    let mut changed = answer.events().iter().filter_map(|event| event.kv());
    Ok(changed.any(|pair| pair.mod_revision() > read))
}
