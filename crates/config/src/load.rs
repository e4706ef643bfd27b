//! Loads files into a checked configuration.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use crate::{
    Changes, Config, Database, Effect, Note, Peer, Place, Problem, ProblemKind, Problems, Scope,
    Secret, UserSettings, connstr,
    ini::{self, Line},
    is_console,
    suggest::{nearest_key, nearest_section, scopes_of},
    table::{Accepted, SetError},
    value::Value,
};

/// The largest depth of files that include each other.
const INCLUDE_DEPTH_MAX: usize = 10;

/// The largest number of a peer: cancel keys have 14 bits for it.
const PEER_ID_MAX: u32 = 16_383;

/// Aliases of keys of entries.
const ALIASES: [(&str, &str); 1] = [("reserve_pool", "reserve_pool_size")];

impl Config {
    /// Reads the ini file at `path`. `read` returns a file's text. Included files are passed to `read` as they are
    /// written.
    ///
    /// # Errors
    /// All problems of the file and of those that it includes.
    pub fn load(
        path: &Path,
        read: &mut dyn FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, Problems> {
        let mut loader = Loader {
            read,
            config: Config::default(),
            section: Section::None,
            files: Vec::new(),
            problems: Vec::new(),
            notes: BTreeMap::new(),
        };
        loader.file(
            path,
            &Place {
                file: path.to_owned(),
                line: 0,
            },
        );
        loader.finish(path)
    }

    /// Returns this configuration with changed entries of `[databases]` and `[users]`, as if the file had them so.
    ///
    /// # Errors
    /// All problems of the entries.
    pub fn with_changes(&self, changes: &Changes) -> Result<Self, Problems> {
        let mut loader = Loader {
            read: &mut |_| Err(io::ErrorKind::Unsupported.into()),
            config: self.clone(),
            section: Section::None,
            files: Vec::new(),
            problems: Vec::new(),
            notes: BTreeMap::new(),
        };
        for (scope, name, change) in changes.iter() {
            match (&change.text, scope) {
                (None, _) => loader.remove(scope, name),
                (Some(text), Scope::User) => loader.user(name, text.expose(), &change.place),
                (Some(text), _) => loader.database(name, text.expose(), &change.place),
            }
        }
        let first = changes.iter().next();
        if let (Some(kind), Some((_, _, change))) = (combined_problem(&loader.config), first) {
            loader.problem(&change.place, kind);
        }
        if !loader.problems.is_empty() {
            return Err(Problems(loader.problems));
        }
        loader.config.notes.extend(once_each(loader.notes));
        Ok(loader.config)
    }

    /// Returns this configuration with one key of `[pgbouncer]` changed, as if the file set it so, and a message for
    /// the operator.
    ///
    /// # Errors
    /// An unknown key, a wrong value, or a key that only a restart can change.
    pub fn with_setting(
        &self,
        key: &str,
        value: &str,
    ) -> Result<(Self, Option<&'static str>), ProblemKind> {
        let mut changed = self.clone();
        let accepted = changed
            .settings
            .set(key, value)
            .map_err(|error| refusal(error, Scope::Global, key, value))?;
        changed.places.remove(accepted.info.name);
        if !accepted.info.reloadable {
            return Err(ProblemKind::NeedsRestart(key.to_owned()));
        }
        if let Some(problem) = combined_problem(&changed) {
            return Err(problem);
        }
        Ok((changed, remark(&accepted)))
    }
}

/// The section of the following lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Before the first section.
    None,
    /// An unknown section, whose lines are skipped.
    Unknown,
    Known(Scope),
}

struct Loader<'a> {
    read: &'a mut dyn FnMut(&Path) -> io::Result<String>,
    config: Config,
    section: Section,
    /// The file that is being read, and the files that include it.
    files: Vec<PathBuf>,
    problems: Vec<Problem>,
    /// Notes by scope, name of the entry (empty in the global scope) and key.
    notes: BTreeMap<(Scope, String, &'static str), Note>,
}

impl Loader<'_> {
    fn file(&mut self, path: &Path, from: &Place) {
        if self.files.len() > INCLUDE_DEPTH_MAX || self.files.iter().any(|file| file == path) {
            return self.problem(from, ProblemKind::IncludeTooDeep);
        }
        let text = match (self.read)(path) {
            Ok(text) => text,
            Err(error) if self.files.is_empty() => {
                return self.problem(from, ProblemKind::Unreadable(error.to_string()));
            }
            Err(error) => {
                let kind = ProblemKind::UnreadableInclude {
                    file: path.to_owned(),
                    error: error.to_string(),
                };
                return self.problem(from, kind);
            }
        };
        self.files.push(path.to_owned());
        for (line, meaning) in ini::lines(&text) {
            let place = Place {
                file: path.to_owned(),
                line,
            };
            match meaning {
                Ok(Line::Section(name)) => self.open_section(name, &place),
                Ok(Line::Include(file)) => self.file(Path::new(&file), &place),
                Ok(Line::Entry { key, value }) => self.entry(&key, &value, &place),
                Err(expected) => self.problem(&place, ProblemKind::Syntax(expected)),
            }
        }
        self.files.pop();
    }

    fn open_section(&mut self, name: String, place: &Place) {
        match Scope::ALL.into_iter().find(|scope| scope.section() == name) {
            Some(scope) => self.section = Section::Known(scope),
            None => {
                self.section = Section::Unknown;
                let nearest = nearest_section(&name);
                self.problem(place, ProblemKind::UnknownSection { name, nearest });
            }
        }
    }

    fn entry(&mut self, key: &str, value: &str, place: &Place) {
        match self.section {
            Section::None => self.problem(place, ProblemKind::NoSection(key.to_owned())),
            Section::Unknown => {}
            Section::Known(Scope::Global) => self.global(key, value, place),
            Section::Known(Scope::Database) => self.database(key, value, place),
            Section::Known(Scope::User) => self.user(key, value, place),
            Section::Known(Scope::Peer) => self.peer(key, value, place),
        }
    }

    fn global(&mut self, key: &str, value: &str, place: &Place) {
        match self.config.settings.set(key, value) {
            Ok(accepted) => {
                self.config.places.insert(accepted.info.name, place.clone());
                self.accept(Scope::Global, "", accepted, place);
            }
            Err(SetError::Unknown) if is_database_entry(key, value) => {
                let kind = wrong_section(key, Scope::Global, vec![Scope::Database]);
                self.problem(place, kind);
            }
            Err(error) => self.refuse(error, Scope::Global, key, value, place),
        }
    }

    fn database(&mut self, name: &str, value: &str, place: &Place) {
        if is_console(name) {
            return self.problem(place, ProblemKind::ReservedDatabase(name.to_owned()));
        }
        let mut database = Database {
            name: name.to_owned(),
            ..Database::default()
        };
        if !self.keys(Scope::Database, name, value, place, &mut |key, value| {
            database.set(key, value)
        }) {
            return;
        }
        let hosts = database.host.len();
        if !database.port.fit(hosts.max(1)) {
            let kind = ProblemKind::BadValue {
                key: "port".to_owned(),
                value: Some(database.port.show()),
                expected: format!("one port, or one for each of the {hosts} hosts"),
            };
            return self.problem(place, kind);
        }
        if !database.zones_match_hosts() {
            let hosts = database.host.len();
            let kind = ProblemKind::BadValue {
                key: "zone".to_owned(),
                value: Some(database.zone.join(",")),
                expected: format!("the zone of each host: {hosts}, separated by commas"),
            };
            return self.problem(place, kind);
        }
        if !database.can_read_after_write() {
            let kind = ProblemKind::BadValue {
                key: "read_after_write".to_owned(),
                value: Some(database.read_after_write.to_string()),
                expected:
                    "off, unless there are several hosts with target_session_attrs=prefer-standby"
                        .to_owned(),
            };
            return self.problem(place, kind);
        }
        self.keep_text(Scope::Database, name, value);
        match name {
            "*" => self.config.fallback = Some(database),
            _ => drop(self.config.databases.insert(name.to_owned(), database)),
        }
    }

    fn keep_text(&mut self, scope: Scope, name: &str, text: &str) {
        let key = (scope, name.to_owned());
        self.config.entries.insert(key, Secret::new(text));
    }

    fn remove(&mut self, scope: Scope, name: &str) {
        self.config.entries.remove(&(scope, name.to_owned()));
        match (scope, name) {
            (Scope::User, _) => drop(self.config.users.remove(name)),
            (_, "*") => self.config.fallback = None,
            _ => drop(self.config.databases.remove(name)),
        }
    }

    fn user(&mut self, name: &str, value: &str, place: &Place) {
        let mut user = UserSettings::default();
        if self.keys(Scope::User, name, value, place, &mut |key, value| {
            user.set(key, value)
        }) {
            self.keep_text(Scope::User, name, value);
            self.config.users.insert(name.to_owned(), user);
        }
    }

    fn peer(&mut self, name: &str, value: &str, place: &Place) {
        let mut peer = Peer::default();
        if !self.keys(Scope::Peer, name, value, place, &mut |key, value| {
            peer.set(key, value)
        }) {
            return;
        }
        let id = name
            .parse()
            .ok()
            .filter(|id| (1..=PEER_ID_MAX).contains(id));
        let wrong = |why| ProblemKind::BadEntry {
            entry: name.to_owned(),
            why,
        };
        match id {
            None => self.problem(place, wrong("a peer is named by its peer_id, 1 to 16383")),
            Some(_) if peer.host.is_none() => self.problem(place, wrong("host= must be set")),
            Some(id) => drop(self.config.peers.insert(id, peer)),
        }
    }

    /// Sets the keys of one entry. Returns `false` if any of them is wrong.
    fn keys(
        &mut self,
        scope: Scope,
        entry: &str,
        text: &str,
        place: &Place,
        set: &mut dyn FnMut(&str, &str) -> Result<Accepted, SetError>,
    ) -> bool {
        let pairs = match connstr::pairs(text) {
            Ok(pairs) => pairs,
            Err(why) => {
                let misplaced = scopes_of(entry).contains(&Scope::Global) && !text.contains('=');
                self.problem(
                    place,
                    match misplaced {
                        true => wrong_section(entry, scope, vec![Scope::Global]),
                        false => ProblemKind::BadEntry {
                            entry: entry.to_owned(),
                            why,
                        },
                    },
                );
                return false;
            }
        };
        for info in scope.settings() {
            self.notes.remove(&(scope, entry.to_owned(), info.name));
        }
        let before = self.problems.len();
        let mut after_secret = false;
        for (key, value) in pairs {
            let key = ALIASES
                .iter()
                .find(|(alias, _)| *alias == key)
                .map_or(key, |(_, name)| name);
            match set(key, &value) {
                Ok(accepted) => {
                    after_secret |= accepted.info.secret;
                    self.accept(scope, entry, accepted, place);
                }
                // Text that looks like a key here may be a part of the password.
                Err(SetError::Unknown) if after_secret => {
                    let why = "unknown key after the password: a password with spaces needs single quotes";
                    self.problem(
                        place,
                        ProblemKind::BadEntry {
                            entry: entry.to_owned(),
                            why,
                        },
                    );
                }
                Err(error) => self.refuse(error, scope, key, &value, place),
            }
        }
        self.problems.len() == before
    }

    fn accept(&mut self, scope: Scope, entry: &str, accepted: Accepted, place: &Place) {
        if accepted.info.is_own() {
            self.config.own.insert((scope, accepted.info.name));
        }
        let text = remark(&accepted);
        let info = accepted.info;
        let key = (scope, entry.to_owned(), info.name);
        match text {
            Some(text) => drop(self.notes.insert(
                key,
                Note {
                    place: place.clone(),
                    scope,
                    key: info.name,
                    text,
                },
            )),
            None => drop(self.notes.remove(&key)),
        }
    }

    fn refuse(&mut self, error: SetError, scope: Scope, key: &str, value: &str, place: &Place) {
        self.problem(place, refusal(error, scope, key, value));
    }

    fn problem(&mut self, place: &Place, kind: ProblemKind) {
        self.problems.push(Problem {
            place: place.clone(),
            kind,
        });
    }

    fn finish(mut self, path: &Path) -> Result<Config, Problems> {
        if let Some(kind) = combined_problem(&self.config) {
            let places = &self.config.places;
            let keys = [
                "fleet_etcd",
                "config_etcd",
                "max_server_conn",
                "fleet_nodes",
                "host_check_interval",
            ];
            let place = keys.map(|key| places.get(key).cloned());
            let of_file = || Place {
                file: path.to_owned(),
                line: 0,
            };
            let place = place.into_iter().flatten().next().unwrap_or_else(of_file);
            self.problem(&place, kind);
        }
        if !self.problems.is_empty() {
            return Err(Problems(self.problems));
        }
        self.config
            .settings
            .conffile
            .get_or_insert_with(|| path.display().to_string());
        self.config.notes = once_each(self.notes);
        Ok(self.config)
    }
}

/// Returns one note for each key and scope, however many entries have it: the first in the file.
fn once_each(notes: BTreeMap<(Scope, String, &'static str), Note>) -> Vec<Note> {
    let mut first: BTreeMap<(Scope, &'static str), Note> = BTreeMap::new();
    for ((scope, _, key), note) in notes {
        let seen = first.entry((scope, key)).or_insert_with(|| note.clone());
        if note.place.line < seen.place.line {
            *seen = note;
        }
    }
    let mut notes: Vec<_> = first.into_values().collect();
    notes.sort_by(|a, b| (&a.place.file, a.place.line).cmp(&(&b.place.file, b.place.line)));
    notes
}

/// Returns the problem that describes why a key could not be set.
fn refusal(error: SetError, scope: Scope, key: &str, value: &str) -> ProblemKind {
    let key = key.to_owned();
    match error {
        SetError::Bad(info, bad) => ProblemKind::BadValue {
            key,
            value: (!info.secret).then(|| value.to_owned()),
            expected: bad.expected,
        },
        SetError::Unknown => match scopes_of(&key) {
            belongs if !belongs.is_empty() => ProblemKind::WrongSection {
                key,
                scope,
                belongs,
            },
            _ => ProblemKind::UnknownKey {
                nearest: nearest_key(&key, scope),
                key,
                scope,
            },
        },
    }
}

/// Returns the problem of settings that don't go together: those of a fleet whose nodes can't share the limit, those of entries
/// that come from etcd, or those of reads that must see earlier writes.
fn combined_problem(config: &Config) -> Option<ProblemKind> {
    let problem = config.fleet_problem();
    let problem = problem.or_else(|| config.settings.shared_entries_problem());
    let (key, value, expected) = problem.or_else(|| config.replay_problem())?;
    Some(ProblemKind::BadValue {
        key: key.to_owned(),
        value: Some(value),
        expected,
    })
}

/// Returns the message for the operator about a key that was set.
fn remark(accepted: &Accepted) -> Option<&'static str> {
    match accepted.info.effect {
        Effect::Now => accepted.note,
        _ if accepted.is_default => None,
        Effect::Never => Some("accepted, but has no effect"),
    }
}

fn wrong_section(key: &str, scope: Scope, belongs: Vec<Scope>) -> ProblemKind {
    ProblemKind::WrongSection {
        key: key.to_owned(),
        scope,
        belongs,
    }
}

/// Returns whether this is an entry of `[databases]` whose name is no setting.
fn is_database_entry(key: &str, value: &str) -> bool {
    let known = |key: &str| {
        Scope::Database
            .settings()
            .iter()
            .any(|info| info.name == key)
    };
    scopes_of(key).is_empty()
        && connstr::pairs(value)
            .is_ok_and(|pairs| !pairs.is_empty() && pairs.iter().all(|(key, _)| known(key)))
}
