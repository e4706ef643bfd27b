//! The source of the configuration: an ini file, or a URL. With `config_watch`, a thread watches the ini file and the
//! files that it names, and asks for a RELOAD when their contents have changed.

mod folders;
mod watcher;

use std::{
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use crossbeam_channel::Sender;
use pgweir_config::Settings;
use pgweir_core::Level;

pub(crate) use self::watcher::Contents;
use self::watcher::Watcher;
use super::{Origin, Request};
use crate::{clock::Clock, log::Log};

/// The source of the configuration.
#[derive(Debug)]
pub(crate) struct ConfigSource {
    origin: Origin,
    control: Sender<Request>,
    log: Log,
    clock: Clock,
    watch: Option<Watch>,
    /// The contents that the configuration was read from at the start of the process, until the watch begins.
    read_at_start: Option<Contents>,
}

/// The thread that watches files. The thread ends when this value is dropped.
#[derive(Debug)]
struct Watch {
    ini: PathBuf,
    stop: Option<watcher::Stop>,
    thread: Option<JoinHandle<()>>,
}

impl ConfigSource {
    /// Begins to watch the files of the configuration, if `config_watch` says so. `read` has the contents that the
    /// configuration was read from. If they have changed since, there is a RELOAD at once.
    pub(crate) fn new(
        (origin, read): (Origin, Option<Contents>),
        control: Sender<Request>,
        (log, clock): (Log, Clock),
        settings: &Settings,
    ) -> Self {
        let mut source = Self {
            origin,
            control,
            log,
            clock,
            watch: None,
            read_at_start: read,
        };
        source.watch(settings);
        source
    }

    /// Returns the file that the next RELOAD reads, if the configuration comes from a file.
    pub(super) fn path(&self, settings: &Settings) -> Option<PathBuf> {
        let Origin::Ini(ini) = &self.origin else {
            return None;
        };
        let conffile = settings.conffile.as_ref();
        Some(conffile.map_or_else(|| ini.clone(), PathBuf::from))
    }

    /// Returns the ini file that is watched.
    pub(super) fn watched(&self) -> Option<&Path> {
        self.watch.as_ref().map(|watch| &*watch.ini)
    }

    /// Begins to watch the files, or stops it, as `config_watch` says.
    pub(super) fn watch(&mut self, settings: &Settings) {
        let read = self.read_at_start.take();
        let path = self.path(settings).filter(|_| settings.config_watch);
        if path.as_deref() == self.watched() {
            return;
        }
        self.watch = None;
        let Some(ini) = path else {
            return;
        };
        match self.begin(&ini, read.as_ref()) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                let text = format!(
                    "config_watch: cannot watch files: {error}; changes take effect at RELOAD"
                );
                let mut lines = self.log.buffer();
                lines.say(self.clock.now(), Level::Warning, text);
            }
        }
    }

    fn begin(&self, ini: &Path, read: Option<&Contents>) -> std::io::Result<Watch> {
        let control = self.control.clone();
        let notify = move || control.send(Request::FilesChanged).is_ok();
        let log = (self.log.buffer(), self.clock);
        let (watcher, stop) = Watcher::new(ini.to_owned(), read, Box::new(notify), log)?;
        let thread = thread::Builder::new()
            .name("config-watch".to_owned())
            .spawn(move || watcher.run())?;
        Ok(Watch {
            ini: ini.to_owned(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Nothing can be done after a panic of the thread.
            let _ = thread.join();
        }
    }
}
