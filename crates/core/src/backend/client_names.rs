//! Keeps the names of prepared statements that have the same meaning on a server as for its client.

/// The names of the client's prepared statements that the server knows by the same names, until the next inspection:
/// SQL refers to these, or to all of them (`pg_prepared_statements`).
#[derive(Debug, Default)]
pub struct ClientNames {
    named: Vec<(Box<[u8]>, NameState)>,
    all: bool,
    /// The texts that SQL has prepared, by name, as far as pgweir saw them.
    prepared: Vec<Prepared>,
    /// Whether a text that pgweir can't read may have prepared others.
    has_hidden: bool,
    /// The number of texts so far that deallocate one statement.
    deallocations: u32,
}

/// A name, and the text that was prepared under it.
type Prepared = (Box<[u8]>, Box<[u8]>);

/// The meaning of a name on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// The client's statement.
    Prepared,
    /// An empty statement of this name, for the DEALLOCATE behind it.
    StandInLeaving,
    /// None any more: the DEALLOCATE has succeeded.
    Deallocated,
    /// An empty statement, since an error came before a DEALLOCATE, or since only the name must be visible.
    StandIn,
    /// The client's statement could not be made, or must not be.
    Missing,
    /// SQL refers to this name, and the client had no such statement: SQL may make one.
    Mentioned,
}

impl ClientNames {
    /// Above this number of names the session is inspected, so that the names can be dropped.
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

    /// Returns whether there is no name.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.all
    }

    /// Returns whether the session must be inspected first, so that the names are only the client's again.
    #[must_use]
    pub fn need_inspection(&self) -> bool {
        let is_spoken = |(_, state): &(_, NameState)| *state == NameState::Mentioned;
        self.all || self.named.len() > Self::NAMES_MAX || !self.named.iter().all(is_spoken)
    }

    /// Returns whether the server knows the client's statement by this name.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.is_prepared(name) || self.all && !self.is_missing(name)
    }

    /// Returns whether the server knows all the client's names.
    #[must_use]
    pub fn has_all(&self) -> bool {
        let is_missed = |(_, state): &(_, NameState)| *state == NameState::Missing;
        self.all && !self.named.iter().any(is_missed)
    }

    /// Returns whether SQL may have made this statement.
    #[must_use]
    pub fn is_mentioned(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::Mentioned)
    }

    /// Returns whether the server has the client's statement of this name, or a stand-in.
    #[must_use]
    pub fn is_prepared(&self, name: &[u8]) -> bool {
        let state = self.state(name);
        matches!(
            state,
            Some(
                NameState::Prepared
                    | NameState::StandInLeaving
                    | NameState::StandIn
                    | NameState::Deallocated
            )
        )
    }

    /// Returns whether a stand-in has this name.
    #[must_use]
    pub fn is_stand_in(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::StandIn)
    }

    /// Returns whether the statement could not be made.
    #[must_use]
    pub fn is_missing(&self, name: &[u8]) -> bool {
        self.state(name) == Some(NameState::Missing)
    }

    /// Notes that the server gets the client's statement.
    pub fn give(&mut self, name: &[u8]) {
        self.set(name, NameState::Prepared);
    }

    /// Notes that the server gets a stand-in of this name.
    pub fn stand_in(&mut self, name: &[u8]) {
        self.set(name, NameState::StandIn);
    }

    /// Notes that the server gets a stand-in that is about to be deallocated.
    pub fn leave(&mut self, name: &[u8]) {
        if self.state(name) != Some(NameState::Deallocated) {
            self.set(name, NameState::StandInLeaving);
        }
    }

    /// Notes that a text is sent that deallocates one statement.
    pub fn deallocates(&mut self) {
        self.deallocations = self.deallocations.saturating_add(1);
    }

    /// Notes that a DEALLOCATE of one statement has succeeded. Among several it is not known which one.
    pub fn deallocated(&mut self) {
        let is_leaving = |(_, state): &&mut (_, NameState)| *state == NameState::StandInLeaving;
        if self.deallocations == 1
            && let Some((_, state)) = self.named.iter_mut().find(is_leaving)
        {
            *state = NameState::Deallocated;
        }
    }

    /// Notes an error, perhaps before a stand-in was deallocated.
    pub fn failed(&mut self) {
        for (_, state) in &mut self.named {
            if *state == NameState::StandInLeaving {
                *state = NameState::StandIn;
            }
        }
    }

    /// Notes that a stand-in is gone.
    pub fn gone(&mut self, name: &[u8]) {
        self.named.retain(|(known, _)| **known != *name);
    }

    /// Notes that SQL refers to a name that the client has given to no statement.
    pub fn mention(&mut self, name: &[u8]) {
        if self.state(name).is_none() {
            self.set(name, NameState::Mentioned);
        }
    }

    /// Notes that SQL prepares this text under this name, if the name is free.
    pub fn prepare(&mut self, name: &[u8], text: &[u8]) {
        if self.prepared.len() >= Self::NAMES_MAX {
            self.has_hidden = true;
        } else if !self.prepared(name).any(|known| known == text) {
            self.prepared.push((name.into(), text.into()));
        }
    }

    /// Returns the texts that SQL may have prepared under a name, of those that pgweir saw.
    pub fn prepared(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let of_name = self.prepared.iter().filter(move |(of, _)| **of == *name);
        of_name.map(|(_, text)| &**text)
    }

    /// Notes a text that may prepare statements that pgweir can't see.
    pub fn hide(&mut self) {
        self.has_hidden = true;
    }

    /// Returns whether there may be statements that pgweir did not see.
    #[must_use]
    pub fn has_hidden(&self) -> bool {
        self.has_hidden
    }

    /// Notes that the server did not get this statement.
    pub fn miss(&mut self, name: &[u8]) {
        self.set(name, NameState::Missing);
    }

    /// Notes that the server knows all names from now on.
    pub fn prepare_all_names(&mut self) {
        self.all = true;
    }

    /// Notes that the server gets a statement by another name.
    pub fn mixed(&mut self) {
        self.all = false;
    }

    /// Drops the client's names. The statements that SQL has prepared stay.
    pub fn forget(&mut self) {
        self.named.clear();
        self.all = false;
        self.deallocations = 0;
    }

    /// Drops all names.
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
        own.deallocates();
        own.leave(b"a");
        own.deallocated();
        own.leave(b"a");
        own.failed();
        assert!(own.has(b"a") && !own.is_stand_in(b"a"));
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
