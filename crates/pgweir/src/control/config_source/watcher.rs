//! The thread that watches files by inotify.
//!
//! The kernel reports changes in the folders of the files. When the folders have been quiet for a moment, the thread
//! compares the contents of all files with those that it has seen before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    io::{self, ErrorKind},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
};

use pgweir_config::{Config, Settings};
use pgweir_core::{Level, Time};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::folders::folders_of;
use crate::{clock::Clock, log::LogBuffer};

/// The time without a change after which files are compared, in microseconds: several files often change together.
const QUIET_US: u64 = 200_000;

/// The longest time between a change and the comparison, in microseconds, however busy a folder is.
const WAIT_MAX_US: u64 = 2_000_000;

/// The changes in a folder that may be changes of a file.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Reports changed contents. Returns whether the receiver of the reports still exists.
type Notify = Box<dyn Fn() -> bool + Send>;

/// This side of a socket pair with the thread. The thread ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Stop(#[expect(dead_code, reason = "its end is the sign")] UnixStream);

/// The contents of an ini file and of the files that it names, at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    ini: PathBuf,
    hash: [u8; 32],
}

impl Contents {
    /// Reads the files.
    pub(crate) fn read(ini: &Path) -> Self {
        WatchedFiles::new(ini.to_owned()).contents()
    }
}

/// An ini file, and the files that it names.
#[derive(Debug)]
struct WatchedFiles {
    ini: PathBuf,
    /// The files that the settings name, as the last readable configuration has them.
    named: Vec<PathBuf>,
}

/// Watches an ini file and the files that it names.
pub(super) struct Watcher {
    files: WatchedFiles,
    inotify: OwnedFd,
    stop: UnixStream,
    /// The folders that are watched, and the kernel's numbers for them.
    folders: BTreeMap<PathBuf, i32>,
    /// The folders that can't be watched.
    unwatched: BTreeSet<PathBuf>,
    /// The contents at the last comparison.
    seen: Contents,
    /// Whether the files have changed before the watch began.
    is_outdated: bool,
    notify: Notify,
    log: (LogBuffer, Clock),
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("files", &self.files)
            .field("folders", &self.folders)
            .finish_non_exhaustive()
    }
}

impl WatchedFiles {
    fn new(ini: PathBuf) -> Self {
        let named = Vec::new();
        Self { ini, named }
    }

    /// Reads the files of [`list`](Self::list).
    fn contents(&mut self) -> Contents {
        let mut hash = Sha256::new();
        for file in self.list() {
            match fs::read(file).map(Zeroizing::new) {
                Ok(content) => {
                    hash.update(b"file");
                    hash.update((content.len() as u64).to_le_bytes());
                    hash.update(&*content);
                }
                Err(error) => hash.update(format!("{:?}", error.kind())),
            }
        }
        Contents {
            ini: self.ini.clone(),
            hash: hash.finalize().into(),
        }
    }

    /// Returns the ini file, the files that it includes, and those that its settings name.
    fn list(&mut self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let loaded = Config::load(&self.ini, &mut |path| {
            files.push(path.to_owned());
            fs::read_to_string(path)
        });
        if let Ok(config) = loaded {
            self.named = named_files(&config.settings);
        }
        files.extend(self.named.iter().cloned());
        files
    }
}

impl Watcher {
    /// Begins to watch the files. `known` has the contents that the configuration in force was read from, if they are
    /// known: the thread begins with a report if the files have changed since.
    ///
    /// # Errors
    /// The system refuses to watch anything.
    pub(super) fn new(
        ini: PathBuf,
        known: Option<&Contents>,
        notify: Notify,
        log: (LogBuffer, Clock),
    ) -> io::Result<(Self, Stop)> {
        let (stop, end) = UnixStream::pair()?;
        let mut watcher = Self {
            seen: Contents {
                ini: ini.clone(),
                hash: [0; 32],
            },
            files: WatchedFiles::new(ini),
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            stop,
            folders: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            is_outdated: false,
            notify,
            log,
        };
        watcher.seen = watcher.look();
        let known = known.filter(|known| known.ini == watcher.seen.ini);
        watcher.is_outdated = known.is_some_and(|known| *known != watcher.seen);
        Ok((watcher, Stop(end)))
    }

    /// Runs until the [`Stop`] is dropped, or nobody takes reports any more.
    pub(super) fn run(mut self) {
        if self.is_outdated && !(self.notify)() {
            return;
        }
        while self.wait_for_change() {
            let now = self.look();
            let is_changed = now != self.seen;
            self.seen = now;
            if is_changed && !(self.notify)() {
                return;
            }
        }
    }

    /// Watches the folders of all files, and returns the files' contents. The kernel reports each later change.
    fn look(&mut self) -> Contents {
        let files = self.files.list();
        self.watch(folders_of(&files));
        self.files.contents()
    }

    fn watch(&mut self, folders: BTreeSet<PathBuf>) {
        let mut watched = BTreeMap::new();
        let mut unwatched = BTreeSet::new();
        for folder in folders {
            match inotify::add_watch(&self.inotify, &folder, CHANGES) {
                Ok(number) => drop(watched.insert(folder, number)),
                // The folder has just been removed, which the watch of the one above it reports.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    if !self.unwatched.contains(&folder) {
                        self.say_unwatched(&folder.display(), error);
                    }
                    unwatched.insert(folder);
                }
            }
        }
        let numbers: BTreeSet<i32> = watched.values().copied().collect();
        for number in self.folders.values().filter(|one| !numbers.contains(one)) {
            // The kernel has forgotten the number already if the folder was removed.
            let _ = inotify::remove_watch(&self.inotify, *number);
        }
        self.folders = watched;
        self.unwatched = unwatched;
    }

    fn say_unwatched(&mut self, folder: &dyn fmt::Display, error: Errno) {
        let why = match error {
            Errno::NOSPC => "fs.inotify.max_user_watches is reached".to_owned(),
            error => io::Error::from(error).to_string(),
        };
        let text = format!(
            "config_watch: cannot watch {folder}: {why}; changes there take effect at RELOAD"
        );
        let (lines, clock) = &mut self.log;
        lines.say(clock.now(), Level::Warning, text);
        lines.flush();
    }

    /// Waits for a change, and then until there is no further one for a moment. Returns `false` if the thread has to
    /// end.
    fn wait_for_change(&mut self) -> bool {
        if !self.wait(None) {
            return false;
        }
        let clock = self.log.1;
        let latest = clock.now().after(WAIT_MAX_US);
        loop {
            match self.take_changes() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
            let quiet = clock.now().after(QUIET_US).min(latest);
            if !self.wait(Some(quiet)) {
                return false;
            }
            if clock.now() >= latest {
                return self.take_changes().is_ok();
            }
        }
    }

    /// Waits for a change, or until this time. Returns `false` if the thread has to end.
    fn wait(&self, until: Option<Time>) -> bool {
        loop {
            let timeout = until.map(|until| {
                let left = until.since(self.log.1.now());
                Timespec {
                    tv_sec: (left / 1_000_000) as i64,
                    tv_nsec: (left % 1_000_000 * 1_000) as i64,
                }
            });
            let mut fds = [
                PollFd::new(&self.inotify, PollFlags::IN),
                PollFd::new(&self.stop, PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return fds[1].revents().is_empty(),
            }
        }
    }

    /// Takes the kernel's reports. Returns whether there was any.
    fn take_changes(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut any = false;
        loop {
            match reader.next() {
                Ok(_) => any = true,
                Err(error) => match io::Error::from(error) {
                    error if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                    error if error.kind() == ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

/// Returns the files that settings name, and that RELOAD reads.
fn named_files(settings: &Settings) -> Vec<PathBuf> {
    let files = [
        &settings.auth_file,
        &settings.auth_hba_file,
        &settings.auth_ident_file,
        &settings.client_tls_key_file,
        &settings.client_tls_cert_file,
        &settings.client_tls_ca_file,
        &settings.client_tls_crl_file,
        &settings.server_tls_key_file,
        &settings.server_tls_cert_file,
        &settings.server_tls_ca_file,
        &settings.server_tls_crl_file,
        &settings.http_tokens,
        &settings.patroni_tls_ca_file,
        &settings.patroni_tls_cert_file,
        &settings.patroni_tls_key_file,
        &settings.patroni_auth_file,
    ];
    let named = files.into_iter().flatten().filter(|path| !path.is_empty());
    named.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        thread::{self, JoinHandle},
        time::Duration,
    };

    use crossbeam_channel::{Receiver, unbounded};

    use super::*;
    use crate::log::Log;

    const PATIENCE: Duration = Duration::from_secs(20);
    /// Longer than the watcher waits for further changes.
    const SILENCE: Duration = Duration::from_millis(600);

    struct Watching {
        reports: Receiver<()>,
        stop: Option<Stop>,
        thread: Option<JoinHandle<()>>,
    }

    impl Watching {
        fn begin(ini: &Path) -> Self {
            Self::since(ini, None)
        }

        fn since(ini: &Path, known: Option<&Contents>) -> Self {
            let (sender, reports) = unbounded();
            let notify = Box::new(move || sender.send(()).is_ok());
            let log = (Log::new(0, false).buffer(), Clock::start());
            let (watcher, stop) =
                Watcher::new(ini.to_owned(), known, notify, log).expect("inotify");
            Self {
                reports,
                stop: Some(stop),
                thread: Some(thread::spawn(move || watcher.run())),
            }
        }

        fn expect_report(&self, what: &str) {
            self.reports.recv_timeout(PATIENCE).expect(what);
        }

        /// Takes the reports of changes that have been made already.
        fn settle(&self) {
            while self.reports.recv_timeout(SILENCE).is_ok() {}
        }

        fn expect_none(&self) {
            assert!(self.reports.recv_timeout(SILENCE).is_err());
        }
    }

    impl Drop for Watching {
        fn drop(&mut self) {
            self.stop.take();
            let ended = self.thread.take().map(JoinHandle::join);
            assert!(matches!(ended, Some(Ok(()))), "the thread ends");
        }
    }

    fn write(path: impl AsRef<Path>, text: &str) {
        fs::write(path, text).expect("written");
    }

    #[test]
    fn changed_contents_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        write(at("userlist.txt"), "");
        write(at("more.ini"), "default_pool_size = 5\n");
        let ini = format!(
            "[databases]\n[pgbouncer]\nauth_file = {}\n%include {}\n",
            at("userlist.txt").display(),
            at("more.ini").display()
        );
        write(at("pgweir.ini"), &ini);
        let watching = Watching::begin(&at("pgweir.ini"));
        write(at("userlist.txt"), "\"a\" \"b\"\n");
        watching.expect_report("of auth_file");
        write(at("more.ini"), "default_pool_size = 6\n");
        write(at("userlist.txt"), "");
        watching.expect_report("of both files");
        watching.settle();
        // Other files, and the same contents.
        write(at("other"), "");
        write(at("pgweir.ini"), &ini);
        watching.expect_none();
        // While the configuration is wrong, the files that it has named are still watched.
        write(at("pgweir.ini"), "nonsense\n");
        watching.expect_report("of a wrong configuration");
        write(at("userlist.txt"), "\"c\" \"d\"\n");
        watching.expect_report("of auth_file");
    }

    /// Files change after the configuration was read, and before they are watched.
    #[test]
    fn a_change_before_the_watch_begins_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        write(at("userlist.txt"), "");
        let users = at("userlist.txt");
        let ini = format!(
            "[databases]\n[pgbouncer]\nauth_file = {}\n",
            users.display()
        );
        write(at("pgweir.ini"), &ini);
        let known = Contents::read(&at("pgweir.ini"));
        Watching::since(&at("pgweir.ini"), Some(&known)).expect_none();
        write(at("userlist.txt"), "\"a\" \"b\"\n");
        let watching = Watching::since(&at("pgweir.ini"), Some(&known));
        watching.expect_report("of auth_file");
        watching.expect_none();
    }

    #[test]
    fn each_file_that_reload_reads_is_watched() {
        let names_file = |key: &str| {
            // pgweir writes the file of this setting itself.
            (key.ends_with("_file") || key == "http_tokens") && key != "api_config_file"
        };
        let rows = Config::quick_start("/run", 5432, "").rows().into_iter();
        let keys: BTreeSet<_> = rows
            .filter(|row| row.changeable && names_file(row.key))
            .map(|row| row.key)
            .collect();
        let settings = keys.iter().map(|key| format!("{key} = /{key}\n"));
        let ini = format!("[pgbouncer]\n{}", settings.collect::<String>());
        let config = Config::load(Path::new("a.ini"), &mut |_| Ok(ini.clone())).expect("an ini");
        let watched = named_files(&config.settings).into_iter();
        let watched = watched.map(|path| path.display().to_string());
        let expect: BTreeSet<_> = keys.iter().map(|key| format!("/{key}")).collect();
        assert_eq!(watched.collect::<BTreeSet<_>>(), expect);
    }

    #[test]
    fn files_and_folders_may_be_removed_and_come_back() {
        let root = tempfile::tempdir().expect("a folder");
        let (folder, ini) = (root.path().join("etc"), root.path().join("etc/pgweir.ini"));
        fs::create_dir(&folder).expect("a folder");
        write(&ini, "[databases]\n");
        let watching = Watching::begin(&ini);
        fs::remove_file(&ini).expect("removed");
        watching.expect_report("of the removal");
        write(&ini, "[databases]\n");
        watching.expect_report("of the file");
        fs::remove_dir_all(&folder).expect("removed");
        watching.expect_report("of the removal with the folder");
        fs::create_dir(&folder).expect("a folder");
        write(&ini, "[databases]\n[pgbouncer]\n");
        watching.expect_report("of the file in another folder");
        write(&ini, "[databases]\n");
        watching.expect_report("of a change there");
    }

    #[test]
    fn a_swapped_link_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let version = |name: &str, text: &str| {
            fs::create_dir(at(name)).expect("a folder");
            write(at(name).join("pgweir.ini"), text);
            symlink(name, at("..data_tmp")).expect("a link");
            fs::rename(at("..data_tmp"), at("..data")).expect("renamed");
        };
        version("..1", "[databases]\n");
        symlink("..data/pgweir.ini", at("pgweir.ini")).expect("a link");
        let watching = Watching::begin(&at("pgweir.ini"));
        for (old, new, text) in [("..1", "..2", "[pgbouncer]\n"), ("..2", "..3", "[users]\n")] {
            version(new, text);
            fs::remove_dir_all(at(old)).expect("removed");
            watching.expect_report(new);
        }
    }
}
