//! The names under which a server has its client's prepared statements.

/// The names of the prepared statements on a server, and the texts that SQL has prepared there since the last
/// inspection.
#[derive(Debug, Default)]
pub struct ClientNames {
    /// Whether the protocol-level statements have pgweir's names or the client's.
    pub(crate) naming: Naming,
    /// The texts that SQL has prepared, by name, as far as pgweir knows them.
    prepared: Vec<Prepared>,
    /// Whether a text that pgweir can't read may have prepared others.
    has_hidden: bool,
    /// The names of statements that the role of the client with this id may not prepare, while pgweir waits for the
    /// replies to its Parse messages under the client's names.
    refused: Option<(u64, Vec<Box<[u8]>>)>,
}

/// A name, and the text that was prepared under it.
type Prepared = (Box<[u8]>, Box<[u8]>);

/// The names of the protocol-level statements on a server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// pgweir's names.
    #[default]
    Pooled,
    /// pgweir's names, and perhaps some of the client's: an empty statement for a DEALLOCATE, or statements of a change
    /// to [`Naming::Own`] that failed.
    Mixed,
    /// The client's names. The client's messages are forwarded unchanged.
    Own,
}

impl ClientNames {
    /// The largest number of texts that are kept.
    const TEXTS_MAX: usize = 1000;

    /// Returns whether the server has the client's statements under the client's names, and no others.
    #[must_use]
    #[inline]
    pub fn are_own(&self) -> bool {
        self.naming == Naming::Own
    }

    /// Returns whether all protocol-level statements have pgweir's names.
    #[must_use]
    #[inline]
    pub fn are_pooled(&self) -> bool {
        self.naming == Naming::Pooled
    }

    /// Notes that SQL prepares this text under this name, if the name is free.
    pub fn prepare(&mut self, name: &[u8], text: &[u8]) {
        if self.prepared.len() >= Self::TEXTS_MAX {
            self.has_hidden = true;
        } else if !self.prepared(name).any(|known| known == text) {
            self.prepared.push((name.into(), text.into()));
        }
    }

    /// Returns the known texts that SQL may have prepared under a name.
    pub fn prepared(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let of_name = self.prepared.iter().filter(move |(of, _)| **of == *name);
        of_name.map(|(_, text)| &**text)
    }

    /// Returns all known names and texts that SQL may have prepared.
    pub fn all_prepared(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.prepared.iter().map(|(name, text)| (&**name, &**text))
    }

    /// Notes that pgweir waits for the server's replies to the Parse messages under this client's names.
    pub fn await_refusals(&mut self, client: u64) {
        self.refused = Some((client, Vec::new()));
    }

    /// Notes that the role of the client may not prepare the statement of this name.
    pub fn note_refused(&mut self, name: &[u8]) {
        if let Some((_, names)) = &mut self.refused {
            names.push(name.into());
        }
    }

    /// Returns, only once, the statements that the role of this client may not prepare; `None` if pgweir has not waited
    /// for the replies to this client's statements.
    pub fn take_refused(&mut self, client: u64) -> Option<Vec<Box<[u8]>>> {
        let (of, names) = self.refused.take()?;
        (of == client).then_some(names)
    }

    /// Forgets which statements a role may not prepare: all statements were prepared.
    pub fn forget_refused(&mut self) {
        self.refused = None;
    }

    /// Notes a text that may prepare statements whose names the text does not show.
    pub fn hide(&mut self) {
        self.has_hidden = true;
    }

    /// Returns whether SQL may have prepared statements that pgweir does not know.
    #[must_use]
    pub fn has_hidden(&self) -> bool {
        self.has_hidden
    }

    /// Forgets the texts that SQL has prepared: an inspection has found all of them.
    pub fn forget_texts(&mut self) {
        self.prepared.clear();
        self.has_hidden = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let mut names = ClientNames::default();
        for number in 0..ClientNames::TEXTS_MAX {
            names.prepare(b"p", b"SELECT 1");
            names.prepare(&number.to_be_bytes(), b"SELECT 2");
        }
        assert!(names.has_hidden(), "one too many");
        assert_eq!(names.prepared(b"p").count(), 1);
        names.forget_texts();
        assert!(!names.has_hidden() && names.prepared(b"p").next().is_none());
    }

    #[test]
    fn statements_that_the_role_may_not_prepare() {
        let mut names = ClientNames::default();
        names.note_refused(b"s");
        assert_eq!(names.take_refused(1), None, "nothing was awaited");
        names.await_refusals(1);
        assert_eq!(
            names.take_refused(1),
            Some(Vec::new()),
            "nothing was refused"
        );
        names.await_refusals(1);
        names.note_refused(b"s");
        assert_eq!(names.take_refused(1), Some(vec![Box::from(&b"s"[..])]));
        assert_eq!(names.take_refused(1), None, "only once");
        names.await_refusals(1);
        names.note_refused(b"s");
        assert_eq!(names.take_refused(2), None, "another client's");
        names.await_refusals(1);
        names.forget_refused();
        assert_eq!(names.take_refused(1), None, "forgotten");
    }
}
