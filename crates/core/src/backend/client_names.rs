//! Names of prepared statements that mean on a server what they mean to its client.

/// The names of the present client's prepared statements that its server knows by the same names, until the session
/// is looked at the next time: since SQL speaks of them, or of all (`pg_prepared_statements`).
#[derive(Debug, Default)]
pub struct ClientNames {
    named: Vec<(Box<[u8]>, NameState)>,
    all: bool,
    /// The texts that SQL has prepared, by their names, as far as they were seen.
    prepared: Vec<Prepared>,
    /// Something out of sight may have prepared others.
    has_hidden: bool,
}

/// A name, and the text that was prepared under it.
type Prepared = (Box<[u8]>, Box<[u8]>);

/// What a name is to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// The client's statement.
    Prepared,
    /// Nothing: an empty statement of this name, for the DEALLOCATE behind it.
    StandInLeaving,
    /// An empty statement, since something has failed before a DEALLOCATE, or only the name is to be seen.
    StandIn,
    /// The client's statement could not be made, or is not to be.
    Missing,
    /// SQL speaks of this name, and the client had no statement of it: SQL may make one.
    Mentioned,
}

impl ClientNames {
    /// Of more names than this the session is looked at, so that they can be forgotten.
    const NAMES_MAX: usize = 1000;

    fn state(&self, name: &[u8]) -> Option<NameState> {
        let found = self.named.iter().find(|(known, _)| **known == *name);
        found.map(|(_, state)| *state)
    }

    fn set(&mut self, name: &[u8], state: NameState) {
        match self.named.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = state,
            None => self.named.push((name.into(), state)),
        }
    }

    /// Is there none?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.all
    }

    /// Is the session to be looked at before anything else, so that the names are the client's alone again?
    #[must_use]
    pub fn need_inspection(&self) -> bool {
        let is_spoken = |(_, state): &(_, NameState)| *state == NameState::Mentioned;
        self.all || self.named.len() > Self::NAMES_MAX || !self.named.iter().all(is_spoken)
    }

    /// Does the server know the client's statement by this name?
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.is_prepared(name) || self.all && !self.is_missing(name)
    }

    /// Does it know all of them?
    #[must_use]
    pub fn has_all(&self) -> bool {
        let is_missed = |(_, state): &(_, NameState)| *state == NameState::Missing;
        self.all && !self.named.iter().any(is_missed)
    }

    /// May SQL have made it?
    #[must_use]
    pub fn is_mentioned(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::Mentioned)
    }

    /// Was it given to the server, or something else in its place?
    #[must_use]
    pub fn is_prepared(&self, name: &[u8]) -> bool {
        let state = self.state(name);
        matches!(
            state,
            Some(NameState::Prepared | NameState::StandInLeaving | NameState::StandIn)
        )
    }

    /// Is something else known by this name?
    #[must_use]
    pub fn is_stand_in(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::StandIn)
    }

    /// Was it not made, though it was wanted?
    #[must_use]
    pub fn is_missing(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::Missing)
    }

    /// The server gets it.
    pub fn give(&mut self, name: &[u8]) {
        self.set(name, NameState::Prepared);
    }

    /// The server gets something else of this name.
    pub fn stand_in(&mut self, name: &[u8]) {
        self.set(name, NameState::StandIn);
    }

    /// The same, and it is about to be deallocated.
    pub fn leave(&mut self, name: &[u8]) {
        self.set(name, NameState::StandInLeaving);
    }

    /// Something has failed, perhaps before it was deallocated.
    pub fn failed(&mut self) {
        for (_, state) in &mut self.named {
            if *state == NameState::StandInLeaving {
                *state = NameState::StandIn;
            }
        }
    }

    /// What has stood in is gone.
    pub fn gone(&mut self, name: &[u8]) {
        self.named.retain(|(known, _)| **known != *name);
    }

    /// SQL speaks of a name that the client has not given to any statement.
    pub fn mention(&mut self, name: &[u8]) {
        if self.state(name).is_none() {
            self.set(name, NameState::Mentioned);
        }
    }

    /// SQL prepares this text under this name, if nothing has that.
    pub fn prepare(&mut self, name: &[u8], text: &[u8]) {
        if self.prepared.len() >= Self::NAMES_MAX {
            self.has_hidden = true;
        } else if !self.prepared(name).any(|known| known == text) {
            self.prepared.push((name.into(), text.into()));
        }
    }

    /// The texts that SQL may have prepared under a name, of those that were seen.
    pub fn prepared(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let of_name = self.prepared.iter().filter(move |(of, _)| **of == *name);
        of_name.map(|(_, text)| &**text)
    }

    /// Something runs that may prepare statements out of sight.
    pub fn hide(&mut self) {
        self.has_hidden = true;
    }

    /// May there be statements that were prepared out of sight?
    #[must_use]
    pub fn has_hidden(&self) -> bool {
        self.has_hidden
    }

    /// This one was not made known.
    pub fn miss(&mut self, name: &[u8]) {
        self.set(name, NameState::Missing);
    }

    /// All are from here on.
    pub fn prepare_all_names(&mut self) {
        self.all = true;
    }

    /// The server gets a statement by another name.
    pub fn mixed(&mut self) {
        self.all = false;
    }

    /// The client's names are its own again. What SQL has prepared stays.
    pub fn forget(&mut self) {
        self.named.clear();
        self.all = false;
    }

    /// None is any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_all() {
        let mut own = ClientNames::default();
        assert!(own.is_empty() && !own.need_inspection() && !own.has(b"a"));
        own.mention(b"s");
        assert!(
            own.is_mentioned(b"s") && !own.has(b"s") && !own.is_empty() && !own.need_inspection()
        );
        own.give(b"a");
        own.mention(b"a");
        assert!(own.has(b"a") && !own.has(b"b") && own.need_inspection() && !own.has_all());
        own.prepare_all_names();
        assert!(own.has(b"b") && own.has(b"s") && own.has_all());
        own.mixed();
        assert!(own.has(b"a") && !own.has(b"b") && !own.has_all());
        own.prepare_all_names();
        own.miss(b"a");
        assert!(own.is_missing(b"a") && !own.has(b"a") && !own.has_all());
        own.leave(b"a");
        assert!(own.has(b"a") && !own.is_stand_in(b"a") && own.has_all());
        own.failed();
        assert!(own.has(b"a") && own.is_stand_in(b"a") && own.has_all());
        own.gone(b"a");
        assert!(!own.is_prepared(b"a") && own.has(b"a"));
        own.clear();
        assert!(own.is_empty() && !own.has(b"a"));
        for name in 0..=ClientNames::NAMES_MAX {
            own.prepare(b"p", b"SELECT 1");
            own.mention(&name.to_be_bytes());
        }
        assert!(own.need_inspection() && own.prepared(b"p").count() == 1);
    }
}
