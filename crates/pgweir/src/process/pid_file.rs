//! The pid file: names the process for signals, and ensures that there is only one instance.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, test_kill_process};

use super::ProcessError;

/// The largest number of bytes that are read from a pid file.
const TEXT_MAX: u64 = 128;

/// A pid file that this process owns: locked while the process runs, removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
    replaces_stale: bool,
    /// Whether this process owns the file, rather than the other process of an online restart.
    ours: bool,
}

/// The meaning of a pid file's content.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// The process is gone, or has this process's id, which an earlier run of this machine or container left behind.
    Stale,
    Living(i32),
    /// The file has no process id: it is no pid file, and must not be overwritten.
    Foreign,
}

impl PidFile {
    /// Takes ownership of the file, or finds out which process owns it. Nothing is written yet, since a daemon does not
    /// know its process id before the fork; the lock survives the fork.
    ///
    /// # Errors
    /// When another process owns the file, when it is no pid file, or when it can't be opened.
    pub(crate) fn take(path: &Path) -> Result<Self, ProcessError> {
        let failed = |error| ProcessError::PidFile(path.to_owned(), error);
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(failed)?;
            let locked = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                // The file system has no locks: only the process id can decide.
                Err(TryLockError::Error(_)) => true,
            };
            if locked && !is_at(&file, path).map_err(failed)? {
                // The owner has removed the file between the two steps.
                continue;
            }
            let content = content(&mut file).map_err(failed)?;
            return match content {
                Content::Living(pid) => Err(ProcessError::Running(path.to_owned(), pid)),
                _ if !locked => Err(ProcessError::Locked(path.to_owned())),
                Content::Foreign => Err(ProcessError::NoPidFile(path.to_owned())),
                Content::Nothing | Content::Stale => Ok(Self {
                    path: path.to_owned(),
                    file,
                    replaces_stale: content == Content::Stale,
                    ours: true,
                }),
            };
        }
    }

    /// Checks whether the file may be used as a pid file. Changes nothing; the present owner does not matter.
    ///
    /// # Errors
    /// When the file is no pid file.
    pub(crate) fn check_usable(path: &Path) -> Result<(), ProcessError> {
        match File::open(path).and_then(|mut file| content(&mut file)) {
            Ok(Content::Foreign) => Err(ProcessError::NoPidFile(path.to_owned())),
            _ => Ok(()),
        }
    }

    /// Opens the file of a process that is about to hand over. [`take_back`](Self::take_back) takes ownership.
    ///
    /// # Errors
    /// When the file belongs to another process, or is no pid file.
    pub(crate) fn succeed(path: &Path, pid: u32) -> Result<Self, ProcessError> {
        let failed = |error| ProcessError::PidFile(path.to_owned(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        match content(&mut file).map_err(failed)? {
            Content::Living(other) if other.unsigned_abs() != pid => {
                Err(ProcessError::Running(path.to_owned(), other))
            }
            Content::Foreign => Err(ProcessError::NoPidFile(path.to_owned())),
            _ => Ok(Self {
                path: path.to_owned(),
                file,
                replaces_stale: false,
                ours: false,
            }),
        }
    }

    /// Gives the file to the next process: releases the lock and keeps the file.
    pub(crate) fn give(&mut self) {
        self.ours = false;
        // On a file system without locks there was none.
        let _ = self.file.unlock();
    }

    /// Takes ownership again: locks the file, and writes this process's id.
    ///
    /// # Errors
    /// When another process has locked the file, or it can't be written.
    pub(crate) fn take_back(&mut self) -> Result<(), ProcessError> {
        let failed = |error| ProcessError::PidFile(self.path.clone(), error);
        if !is_at(&self.file, &self.path).map_err(failed)? {
            // The owner in between has removed the file.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            self.file = options.open(&self.path).map_err(failed)?;
        }
        if let Err(TryLockError::WouldBlock) = self.file.try_lock() {
            return Err(ProcessError::Locked(self.path.clone()));
        }
        self.ours = true;
        self.write()
    }

    /// Returns whether a process that is gone left the file behind.
    pub(crate) fn replaces_stale(&self) -> bool {
        self.replaces_stale
    }

    /// Writes this process's id.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn write(&mut self) -> Result<(), ProcessError> {
        self.put()
            .map_err(|error| ProcessError::PidFile(self.path.clone(), error))
    }

    /// Returns whether the file still has this process's id, so that no process that took over has written it: the new
    /// process may use another pid file.
    fn names_us(&mut self) -> io::Result<bool> {
        let mut text = String::new();
        self.file.rewind()?;
        Read::take(&self.file, TEXT_MAX).read_to_string(&mut text)?;
        Ok(text.trim() == std::process::id().to_string() && is_at(&self.file, &self.path)?)
    }

    fn put(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)?;
        writeln!(self.file, "{}", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.ours || self.names_us().unwrap_or(false) {
            // The file may be gone already, or in a directory without write permission.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|at| (at.dev(), at.ino()) == (ours.dev(), ours.ino())))
}

fn content(file: &mut File) -> io::Result<Content> {
    let mut text = Vec::new();
    Read::take(&mut *file, TEXT_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    if text.is_empty() {
        return Ok(Content::Nothing);
    }
    let pid = text.parse().ok().filter(|&number: &i32| number > 0);
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(Content::Foreign);
    };
    let number = pid.as_raw_nonzero().get();
    // A process of another user counts as alive. A process that has ended, but was not waited for by its parent, does
    // not.
    let lives =
        !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)) && !is_zombie(number);
    Ok(if lives && number.unsigned_abs() != std::process::id() {
        Content::Living(number)
    } else {
        Content::Stale
    })
}

fn is_zombie(pid: i32) -> bool {
    let about = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the program's name, which may contain parentheses.
    let state = about.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stale_pid_file_is_taken() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pid");
        for (text, stale) in [
            ("", false),
            ("\n", false),
            ("2147483647\n", true),
            (&format!("{}\n", std::process::id()), true),
        ] {
            fs::write(&path, text).expect("written");
            let mut ours = PidFile::take(&path).expect(text);
            assert_eq!(ours.replaces_stale(), stale, "{text:?}");
            ours.write().expect("written");
            let expected = format!("{}\n", std::process::id());
            assert_eq!(fs::read_to_string(&path).expect("read"), expected);
            drop(ours);
            assert!(!path.exists());
        }
        fs::write(&path, "1\n").expect("written");
        assert!(matches!(
            PidFile::take(&path),
            Err(ProcessError::Running(_, 1))
        ));
        fs::remove_file(&path).expect("removed");
        let mut child = std::process::Command::new("true")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        // When the process ends, the pipe closes first; the kernel marks the process as a zombie a moment later.
        let mut out = child.stdout.take().expect("a pipe");
        out.read_to_end(&mut Vec::new()).expect("read");
        let pid = i32::try_from(child.id()).expect("a process id");
        while !is_zombie(pid) {
            std::thread::yield_now();
        }
        fs::write(&path, format!("{pid}\n")).expect("written");
        assert!(
            PidFile::take(&path)
                .expect("a zombie has it")
                .replaces_stale()
        );
        child.wait().expect("ended");
        for foreign in ["some text", "-5", "12 13"] {
            fs::write(&path, foreign).expect("written");
            assert!(
                matches!(PidFile::take(&path), Err(ProcessError::NoPidFile(_))),
                "{foreign:?}"
            );
            assert_eq!(fs::read_to_string(&path).expect("still there"), foreign);
        }
    }

    #[test]
    fn a_handed_over_file_is_removed_unless_another_process_has_taken_it() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pid");
        let given = || {
            let mut ours = PidFile::take(&path).expect("nobody has it");
            ours.write().expect("written");
            ours.give();
            ours
        };
        drop(given());
        assert!(!path.exists(), "the next process has another one");
        let ours = given();
        fs::write(&path, "1\n").expect("written by the next process");
        drop(ours);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "1\n");
        fs::remove_file(&path).expect("removed");
        let mut ours = given();
        fs::remove_file(&path).expect("removed by the next process, with its end");
        ours.take_back().expect("made again");
        let expected = format!("{}\n", std::process::id());
        assert_eq!(fs::read_to_string(&path).expect("read"), expected);
    }

    #[test]
    fn a_pid_file_is_held_before_it_is_written() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pid");
        let ours = PidFile::take(&path).expect("nobody has it");
        assert!(matches!(PidFile::take(&path), Err(ProcessError::Locked(_))));
        drop(ours);
        PidFile::take(&path).expect("nobody has it any more");
    }
}
