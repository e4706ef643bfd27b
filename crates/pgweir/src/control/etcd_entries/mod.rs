//! Entries of `[databases]` and `[users]` that come from etcd (`config_etcd`), on a thread of its own.
//!
//! The thread reads all entries at one revision of etcd, watches them, and passes them to the control thread at each change.
//! The control thread checks all of them together, writes them to `api_config_file`, and puts them in force. A change by the
//! HTTP API goes the other way: the thread writes the entry to etcd, and then reads all entries again.

mod in_force;
mod reader;

use std::{io, thread};

use crossbeam_channel::Sender as ControlSender;
use pgweir_config::{Changes, Scope, Secret, Settings};
use pgweir_core::shared::fleet::EntriesView;
use pgweir_formats::etcd_entries::secret_key;
use tokio::{
    runtime,
    sync::mpsc::{Sender, channel, error::TrySendError},
    task::LocalSet,
};

use self::reader::Reader;
use super::{
    ChangeError, FleetAccess, Request,
    change::{Reply, answer},
};

/// The maximum number of requests to the thread that wait for etcd. Further changes are refused.
const ASKED_MAX: usize = 32;

/// All entries in etcd.
#[derive(Debug)]
pub(crate) struct EtcdEntries {
    /// The entries; or a line for each key that can't be one.
    pub(super) read: Result<Changes, Vec<String>>,
    /// The revision of etcd at which they were read.
    pub(super) revision: i64,
    /// Whether etcd has none of the keys, not even the one that each change by the HTTP API writes.
    pub(super) is_unused: bool,
    /// The change by the HTTP API that waits for these entries.
    pub(super) reply: Option<Reply>,
}

/// A change of one entry that is to be written to etcd.
#[derive(Debug)]
pub(super) struct EntryWrite {
    pub(super) scope: Scope,
    pub(super) name: String,
    /// The entry's text; `None` removes the entry.
    pub(super) text: Option<Secret>,
    /// The revision of etcd that the change is based on.
    pub(super) revision: i64,
    pub(super) reply: Reply,
}

/// A request to the thread.
#[derive(Debug)]
enum Asked {
    /// Write an entry, and answer the HTTP request.
    Write(EntryWrite),
    /// Read all entries again.
    ReadAgain,
}

/// The control thread's handle of the thread. The thread ends when the handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct EntryStore {
    asked: Option<Sender<Asked>>,
    /// The state of the entries in etcd, for metrics.
    pub(super) view: EntriesView,
}

impl EntryStore {
    /// Starts the thread, if `config_etcd` is set.
    ///
    /// # Errors
    /// The system refuses a new thread.
    pub(crate) fn start(
        access: &FleetAccess,
        settings: &Settings,
        control: ControlSender<Request>,
    ) -> io::Result<Self> {
        if !settings.config_etcd.is_set() {
            return Ok(Self::default());
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .build()?;
        let (asked, receiver) = channel(ASKED_MAX);
        let reader = Reader::new(access, settings, control, receiver);
        thread::Builder::new()
            .name("entries".to_owned())
            .spawn(move || {
                LocalSet::new().block_on(&runtime, reader.run());
                // The thread must end even if a look-up of a name hangs.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            asked: Some(asked),
            view: EntriesView::default(),
        })
    }

    /// Returns whether entries come from etcd.
    pub(super) fn is_in_use(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks the thread to write an entry. The thread answers the HTTP request.
    pub(super) fn write(&self, write: EntryWrite) {
        let Some(asked) = &self.asked else {
            return;
        };
        let refused = asked.try_send(Asked::Write(write)).err();
        if let Some(Asked::Write(write)) = refused.map(TrySendError::into_inner) {
            let text = "too many changes wait for etcd".to_owned();
            answer(write.reply, Err(ChangeError::Etcd(text)));
        }
    }

    /// Asks the thread to read all entries again: after RELOAD, those of the file are in force, which may be older.
    pub(super) fn read_again(&self) {
        if let Some(asked) = &self.asked {
            // If the queue is full, one of the changes in it makes the thread read all entries.
            let _ = asked.try_send(Asked::ReadAgain);
        }
    }
}
