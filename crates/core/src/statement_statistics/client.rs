//! Maps a client's names of prepared statements to entries of the statistics.

use std::collections::HashMap;

use super::StatementId;
use crate::base::memory::OVERHEAD;

/// The largest number of names of statements, and of portals, that are remembered of a client.
const NAMES_MAX: usize = 256;
/// Longer names are not remembered.
const NAME_LEN_MAX: usize = 64;

/// The statements of a client's unnamed statement, portals and named statements, for those names that pgweir does not
/// replace.
#[derive(Debug, Default)]
pub struct ClientStatements {
    unnamed: StatementId,
    portal: StatementId,
    named: Option<Box<Named>>,
}

#[derive(Debug, Default)]
struct Named {
    statements: HashMap<Box<[u8]>, StatementId>,
    portals: HashMap<Box<[u8]>, StatementId>,
    /// The beginning of a text that has not arrived as a whole.
    partial: Option<PartialText>,
}

/// The beginning of a text.
#[derive(Debug, Default)]
pub struct PartialText {
    /// The statement's name in a Parse; `None` if the text is that of a Query.
    pub name: Option<Box<[u8]>>,
    /// The part of the text that has arrived.
    pub text: Vec<u8>,
}

impl ClientStatements {
    /// Returns the bytes that the names and the text that is arriving take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Some(named) = self.named.as_deref() else {
            return 0;
        };
        let names = named.statements.keys().chain(named.portals.keys());
        let entry = size_of::<(Box<[u8]>, StatementId)>() + OVERHEAD;
        let names: usize = names.map(|name| name.len() + entry).sum();
        let partial = named.partial.as_ref();
        names + partial.map_or(0, |partial| partial.text.capacity())
    }

    /// Notes that a name of a statement stands for this one.
    #[inline]
    pub fn parsed(&mut self, name: &[u8], statement: StatementId) {
        match name.is_empty() {
            true => self.unnamed = statement,
            false => insert(&mut self.named().statements, name, statement),
        }
    }

    /// Returns the statement with this name.
    #[inline]
    #[must_use]
    pub fn statement(&self, name: &[u8]) -> StatementId {
        if name.is_empty() {
            return self.unnamed;
        }
        let named = self.named.as_ref();
        let found = named.and_then(|named| named.statements.get(name));
        found.copied().unwrap_or_default()
    }

    /// Notes that a portal belongs to this statement.
    #[inline]
    pub fn bound(&mut self, portal: &[u8], statement: StatementId) {
        match portal.is_empty() {
            true => self.portal = statement,
            false => insert(&mut self.named().portals, portal, statement),
        }
    }

    /// Returns the statement of a portal.
    #[inline]
    #[must_use]
    pub fn portal(&self, portal: &[u8]) -> StatementId {
        if portal.is_empty() {
            return self.portal;
        }
        let named = self.named.as_ref();
        let found = named.and_then(|named| named.portals.get(portal));
        found.copied().unwrap_or_default()
    }

    /// Keeps the beginning of a text until the rest has arrived.
    pub fn keep_partial(&mut self, partial: PartialText) {
        self.named().partial = Some(partial);
    }

    /// Takes the beginning of a text.
    #[inline]
    pub fn take_partial(&mut self) -> Option<PartialText> {
        self.named.as_mut()?.partial.take()
    }

    fn named(&mut self) -> &mut Named {
        self.named.get_or_insert_default()
    }
}

#[cold]
fn insert(names: &mut HashMap<Box<[u8]>, StatementId>, name: &[u8], statement: StatementId) {
    if name.len() > NAME_LEN_MAX {
        return;
    }
    if let Some(known) = names.get_mut(name) {
        *known = statement;
        return;
    }
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    names.insert(name.into(), statement);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let mut client = ClientStatements::default();
        let id = |slot| StatementId { slot, version: 0 };
        assert_eq!(client.statement(b""), StatementId::NONE);
        client.parsed(b"", id(1));
        client.parsed(b"s", id(2));
        client.bound(b"", client.statement(b"s"));
        client.bound(b"p", client.statement(b""));
        assert_eq!((client.portal(b""), client.portal(b"p")), (id(2), id(1)));
        assert_eq!(client.portal(b"other"), StatementId::NONE);
        client.parsed(b"s", id(3));
        assert_eq!(client.statement(b"s"), id(3));
        client.parsed(&[b'x'; 100], id(4));
        assert_eq!(client.statement(&[b'x'; 100]), StatementId::NONE);
        for number in 0..1000_u32 {
            client.parsed(&number.to_be_bytes(), id(number));
        }
        assert_eq!(client.statement(&999_u32.to_be_bytes()), id(999));
        let named = client.named.expect("names");
        assert!(named.statements.len() <= NAMES_MAX);
    }
}
