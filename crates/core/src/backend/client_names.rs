//! The names under which a server has its client's prepared statements.

use crate::{base::conditions::first_of, session::statement_key};

/// The names of the prepared statements on a server, and the texts that SQL has prepared there since the last
/// inspection.
#[derive(Debug, Default)]
pub struct ClientNames {
    /// Whether the protocol-level statements have pgweir's names or the client's.
    pub(crate) naming: Naming,
    /// The texts that SQL has prepared, by name, as far as pgweir knows them.
    prepared: Vec<Prepared>,
    /// The length of all names and texts in `prepared`, in bytes.
    prepared_bytes: usize,
    /// Whether SQL may have prepared statements that are not in `prepared`.
    has_hidden: bool,
    /// The last change to the client's names whose replies pgweir awaits before it forwards the client's message.
    awaited: Option<AwaitedChange>,
}

/// A change to [`Naming::Own`], while pgweir waits for the replies to its Parse messages.
#[derive(Debug)]
struct AwaitedChange {
    /// The id of the client.
    client: u64,
    /// Whether a Parse failed. The message that waits is then processed again, but the change is not repeated.
    has_failed: bool,
    /// The names of the statements that the client's role may not prepare.
    refused: Vec<Box<[u8]>>,
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
    /// The maximum length of the texts that are kept, together with their names, in bytes.
    const BYTES_MAX: usize = 256 * 1024;

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

    /// Notes that SQL prepares this text under this name, if the name is free. Returns whether the text is kept.
    pub fn prepare(&mut self, name: &[u8], text: &[u8]) -> bool {
        if self.prepared(name).any(|known| known == text) {
            return true;
        }
        let bytes = self.prepared_bytes + name.len() + text.len();
        if self.prepared.len() >= Self::TEXTS_MAX || bytes > Self::BYTES_MAX {
            self.has_hidden = true;
            return false;
        }
        self.prepared_bytes = bytes;
        self.prepared.push((name.into(), text.into()));
        true
    }

    /// Returns the known texts that SQL may have prepared under a name.
    pub fn prepared(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let key = statement_key(name);
        let of_name = self.prepared.iter().filter(move |(of, _)| **of == *key);
        of_name.map(|(_, text)| &**text)
    }

    /// Returns all known names and texts that SQL may have prepared.
    pub fn all_prepared(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.prepared.iter().map(|(name, text)| (&**name, &**text))
    }

    /// Begins a change to the client's names. With a client's id, pgweir awaits the replies before it forwards this
    /// client's message.
    pub fn change_to_own(&mut self, waiting: Option<u64>) {
        self.naming = Naming::Own;
        self.awaited = waiting.map(|client| AwaitedChange {
            client,
            has_failed: false,
            refused: Vec::new(),
        });
    }

    /// Returns a description of a note that has outlasted the last loan: see
    /// [`Server::unfinished`](super::Server::unfinished).
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        first_of(&[
            (
                self.naming != Naming::Pooled,
                "statements under a client's names",
            ),
            (self.has_hidden, "prepared statements with unknown texts"),
            (
                self.awaited.is_some(),
                "a change to a client's names, which awaits replies",
            ),
        ])
    }

    /// Notes that the role of the client may not prepare the statement of this name.
    pub fn note_refused(&mut self, name: &[u8]) {
        if let Some(change) = &mut self.awaited {
            change.refused.push(name.into());
        }
    }

    /// Notes that a Parse of the change to the client's names failed.
    pub fn note_failed(&mut self) {
        self.naming = Naming::Mixed;
        if let Some(change) = &mut self.awaited {
            change.has_failed = true;
        }
    }

    /// If the change that this client's message has waited for failed, returns, only once, the statements that the
    /// client's role may not prepare.
    pub fn take_refused(&mut self, client: u64) -> Option<Vec<Box<[u8]>>> {
        let change = self.awaited.take()?;
        (change.client == client && change.has_failed).then_some(change.refused)
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
        self.prepared_bytes = 0;
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
    fn bytes_of_texts() {
        let mut names = ClientNames::default();
        let text = vec![b'x'; ClientNames::BYTES_MAX / 4];
        for name in [b"a", b"b", b"c"] {
            names.prepare(name, &text);
            names.prepare(name, &text);
        }
        assert!(!names.has_hidden(), "the same text again takes no memory");
        names.prepare(b"d", &text);
        assert!(names.has_hidden() && names.prepared(b"d").next().is_none());
        names.forget_texts();
        names.prepare(b"d", &text);
        assert!(!names.has_hidden() && names.prepared(b"d").next().is_some());
    }

    #[test]
    fn statements_that_the_role_may_not_prepare() {
        let mut names = ClientNames::default();
        names.note_refused(b"s");
        names.note_failed();
        assert_eq!(names.take_refused(1), None, "nothing was awaited");
        names.change_to_own(Some(1));
        assert_eq!(names.take_refused(1), None, "nothing failed");
        names.change_to_own(Some(1));
        names.note_failed();
        assert_eq!(
            names.take_refused(1),
            Some(Vec::new()),
            "nothing was refused"
        );
        names.change_to_own(Some(1));
        names.note_refused(b"s");
        names.note_failed();
        assert_eq!(names.take_refused(1), Some(vec![Box::from(&b"s"[..])]));
        assert_eq!(names.take_refused(1), None, "only once");
        names.change_to_own(Some(1));
        names.note_failed();
        assert_eq!(names.take_refused(2), None, "another client's");
        names.change_to_own(Some(1));
        names.change_to_own(None);
        names.note_failed();
        assert_eq!(names.take_refused(1), None, "another change followed");
    }
}
