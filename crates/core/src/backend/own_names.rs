//! Names of prepared statements that mean on a server what they mean to its client.

/// The names of the present client's prepared statements that its server knows, for the length of a
/// transaction, by the same names: since SQL speaks of them, or of all (`pg_prepared_statements`).
#[derive(Debug, Default)]
pub struct OwnNames {
    names: Vec<Box<[u8]>>,
    all: bool,
    /// Those that it was to get, and did not since something in front of them has failed.
    missed: Vec<Box<[u8]>>,
    /// SQL speaks of these too, and the client had none of them: SQL may make them.
    spoken: Vec<Box<[u8]>>,
    /// What the server knows by these names is not the client's statement, and is not to be used.
    stand_ins: Vec<Box<[u8]>>,
    /// Those of them that requests take away, if they succeed; and how many are answered before each.
    leaving: Vec<(Box<[u8]>, usize)>,
}

impl OwnNames {
    /// Is there none?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.all && self.missed.is_empty() && self.spoken.is_empty()
    }

    /// Is it among them?
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        let stands_in = |names: &[Box<[u8]>]| names.iter().any(|own| **own == *name);
        (self.all || stands_in(&self.names)) && !stands_in(&self.missed)
    }

    /// Are all of them?
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.all && self.missed.is_empty()
    }

    /// This one is from here on. `false` if it was before.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        if self.has(name) {
            return false;
        }
        self.missed.retain(|missed| **missed != *name);
        self.names.push(name.into());
        true
    }

    /// SQL speaks of a name that the client has not given to any statement.
    pub fn speak(&mut self, name: &[u8]) {
        if !self.is_spoken(name) {
            self.spoken.push(name.into());
        }
    }

    /// May SQL have made it?
    #[must_use]
    pub fn is_spoken(&self, name: &[u8]) -> bool {
        self.spoken.iter().any(|spoken| **spoken == *name)
    }

    /// Something else is known by this name.
    pub fn stood_in(&mut self, name: &[u8]) {
        if !self.is_stand_in(name) {
            self.stand_ins.push(name.into());
        }
    }

    /// Is it something else that is known by this name?
    #[must_use]
    pub fn is_stand_in(&self, name: &[u8]) -> bool {
        self.stand_ins.iter().any(|stand_in| **stand_in == *name)
    }

    /// A request is sent that takes away what is known by this name, behind so many that are still to be
    /// answered.
    pub fn leaves(&mut self, name: &[u8], ahead: usize) {
        if self.is_stand_in(name) && !self.is_leaving(name) {
            self.leaving.push((name.into(), ahead));
        }
    }

    /// May any of those leave that stand in for others?
    #[must_use]
    #[inline]
    pub fn are_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Is it taken away by what was sent?
    #[must_use]
    pub fn is_leaving(&self, name: &[u8]) -> bool {
        self.leaving.iter().any(|(leaving, _)| **leaving == *name)
    }

    /// The next of those has left that the present request takes away.
    pub fn left(&mut self) {
        let next = self.leaving.iter().find(|(_, ahead)| *ahead == 0);
        if let Some((name, _)) = next.cloned() {
            self.gone(&name);
        }
    }

    /// The present request has failed: the others of them are still there.
    pub fn stay(&mut self) {
        self.leaving.retain(|(_, ahead)| *ahead > 0);
    }

    /// The present request was answered; there are so many left.
    pub fn answered(&mut self, left: usize) {
        self.stay();
        for (_, ahead) in &mut self.leaving {
            *ahead = (*ahead - 1).min(left);
        }
    }

    /// What was known by this name is taken away.
    pub fn gone(&mut self, name: &[u8]) {
        self.stand_ins.retain(|stand_in| **stand_in != *name);
        self.leaving.retain(|(leaving, _)| **leaving != *name);
    }

    /// All is taken away.
    pub fn all_gone(&mut self) {
        self.stand_ins.clear();
        self.leaving.clear();
    }

    /// This one was not made known.
    pub fn missed(&mut self, name: &[u8]) {
        self.gone(name);
        self.names.retain(|own| **own != *name);
        if !self.missed.iter().any(|missed| **missed == *name) {
            self.missed.push(name.into());
        }
    }

    /// It is not to be made known at present.
    pub fn withhold(&mut self, name: &[u8]) {
        if !self.has(name) {
            self.missed(name);
        }
    }

    /// All are from here on.
    pub fn insert_all(&mut self) {
        self.all = true;
    }

    /// The server gets a statement by another name.
    pub fn mixed(&mut self) {
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
        let mut own = OwnNames::default();
        assert!(own.is_empty() && !own.has(b"a"));
        assert!(own.insert(b"a") && !own.insert(b"a"));
        assert!(own.has(b"a") && !own.has(b"b") && !own.is_empty() && !own.has_all());
        own.insert_all();
        assert!(own.has(b"b") && own.has_all() && !own.insert(b"c"));
        own.mixed();
        assert!(own.has(b"a") && !own.has_all());
        own.insert_all();
        own.missed(b"a");
        assert!(!own.has(b"a") && !own.has_all() && !own.is_empty());
        assert!(own.insert(b"a") && own.has(b"a") && own.has_all());
        own.withhold(b"a");
        assert!(own.has(b"a"), "it is known already");
        own.stood_in(b"a");
        own.stood_in(b"b");
        assert!(own.has(b"a") && own.is_stand_in(b"a") && own.is_stand_in(b"b"));
        own.gone(b"b");
        own.missed(b"a");
        assert!(!own.is_stand_in(b"a") && !own.is_stand_in(b"b"));
        own.stood_in(b"a");
        own.stood_in(b"b");
        own.leaves(b"a", 1);
        own.leaves(b"c", 0);
        own.left();
        own.stay();
        assert!(own.is_leaving(b"a"), "its request has not come yet");
        own.answered(1);
        assert!(own.are_leaving() && own.is_leaving(b"a") && !own.is_leaving(b"c"));
        own.stay();
        own.left();
        assert!(own.is_stand_in(b"a") && !own.are_leaving());
        own.leaves(b"b", 0);
        own.leaves(b"a", 0);
        own.left();
        assert!(own.is_stand_in(b"a") && !own.is_stand_in(b"b"));
        own.all_gone();
        assert!(!own.is_stand_in(b"a"));
        own.clear();
        own.speak(b"a");
        assert!(own.is_spoken(b"a") && !own.has(b"a") && !own.is_empty());
        own.clear();
        own.withhold(b"a");
        assert!(!own.has(b"a") && !own.is_empty());
        own.clear();
        assert!(own.is_empty());
    }
}
