//! The next request of a client whose settings are refused: does it do nothing but change them?

use pgweir_wire::{Body, Header, tag::frontend};

use crate::session::{Changes, Settings};

/// A longer request is not looked at, in bytes.
const REQUEST_MAX: usize = 4096;

/// What the request is.
#[derive(Debug)]
pub enum First {
    /// More of it has to come.
    Incomplete,
    /// It does nothing else.
    Opens {
        /// How many bytes it has.
        len: usize,
        /// What it changes.
        changes: Changes,
    },
    /// Anything else.
    Other,
}

impl First {
    /// Reads on from the request's first byte. `definition` gives those of the client's prepared statements.
    #[must_use]
    pub fn read<'s>(
        bytes: &[u8],
        refused: &Settings,
        definition: impl Fn(&[u8]) -> Option<&'s [u8]>,
    ) -> Self {
        let mut segment = Segment {
            refused,
            definition,
            parsed: Vec::new(),
            bound: Vec::new(),
            changes: Changes::default(),
        };
        let mut at = 0;
        loop {
            let header = match Header::parse(&bytes[at..]) {
                Ok(Some(header)) if at + header.message_len() <= REQUEST_MAX => header,
                Ok(None) => return Self::Incomplete,
                _ => return Self::Other,
            };
            let end = at + header.message_len();
            let Some(message) = bytes.get(at..end) else {
                return Self::Incomplete;
            };
            let body = &message[message.len() - header.body_len as usize..];
            let is_first = at == 0;
            at = end;
            let is_end = match header.tag {
                frontend::QUERY if is_first => match segment.query(body) {
                    Some(()) => true,
                    None => return Self::Other,
                },
                frontend::SYNC if !is_first => true,
                tag => match segment.message(tag, body) {
                    Some(()) => false,
                    None => return Self::Other,
                },
            };
            if is_end {
                return Self::Opens {
                    len: end,
                    changes: segment.changes,
                };
            }
        }
    }
}

/// Messages up to a Sync.
struct Segment<'r, 'b, D> {
    refused: &'r Settings,
    definition: D,
    /// Statements that it makes.
    parsed: Vec<(&'b [u8], Changes)>,
    /// Portals that it makes.
    bound: Vec<(&'b [u8], Changes)>,
    /// What it runs.
    changes: Changes,
}

impl<'s, 'b, D: Fn(&[u8]) -> Option<&'s [u8]>> Segment<'_, 'b, D> {
    fn query(&mut self, body: &[u8]) -> Option<()> {
        let text = Body::new(body).cstr().ok()?;
        self.changes = Changes::read(text, self.refused)?;
        Some(())
    }

    /// `None` if it may do anything else.
    fn message(&mut self, tag: u8, body: &'b [u8]) -> Option<()> {
        let mut body = Body::new(body);
        match tag {
            frontend::PARSE => {
                let name = body.cstr().ok()?;
                let text = body.cstr().ok()?;
                let changes = Changes::read(text, self.refused)?;
                self.parsed.retain(|(own, _)| *own != name);
                self.parsed.push((name, changes));
            }
            frontend::BIND => {
                let portal = body.cstr().ok()?;
                let changes = self.changes_of(body.cstr().ok()?)?;
                self.bound.retain(|(own, _)| *own != portal);
                self.bound.push((portal, changes));
            }
            frontend::EXECUTE => {
                let portal = body.cstr().ok()?;
                let (_, changes) = self.bound.iter().find(|(own, _)| *own == portal)?;
                self.changes.join(changes);
            }
            frontend::DESCRIBE if body.u8() == Ok(b'S') => {
                self.changes_of(body.cstr().ok()?)?;
            }
            frontend::DESCRIBE | frontend::CLOSE => {}
            _ => return None,
        }
        Some(())
    }

    fn changes_of(&self, name: &[u8]) -> Option<Changes> {
        if let Some((_, changes)) = self.parsed.iter().find(|(own, _)| *own == name) {
            return Some(changes.clone());
        }
        let text = Body::new((self.definition)(name)?).cstr().ok()?;
        Changes::read(text, self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SettingsTable;
    use pgweir_wire::MessageWriter;

    /// What comes of the request, however much follows; cut anywhere, it is incomplete, or something else.
    #[track_caller]
    fn check(messages: &[(u8, &[u8])], opens: bool) {
        let refused = SettingsTable::default().intern([("role", "x")]);
        let known = |name: &[u8]| (name == b"known").then_some(&b"RESET ROLE\0\0\0"[..]);
        let mut bytes = Vec::new();
        for &(tag, body) in messages {
            MessageWriter::new(&mut bytes).message(tag, |out| out.extend_from_slice(body));
        }
        let len = bytes.len();
        for cut in 0..len {
            let first = First::read(&bytes[..cut], &refused, known);
            assert!(matches!(first, First::Incomplete | First::Other), "{cut}");
            assert!(!opens || matches!(first, First::Incomplete), "{cut}");
        }
        bytes.extend_from_slice(b"Q\0\0\0\x0dSELECT 1\0");
        match First::read(&bytes, &refused, known) {
            First::Opens { len: found, .. } => assert!(opens && found == len),
            First::Other => assert!(!opens),
            First::Incomplete => panic!("incomplete"),
        }
    }

    #[test]
    fn requests() {
        const BIND: &[u8] = b"\0\0\0\0\0\0\0\0";
        const NAMED: &[u8] = b"\0known\0\0\0\0\0\0\0";
        const EXECUTE: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
        const SYNC: (u8, &[u8]) = (b'S', b"");
        let parse = (b'P', &b"\0RESET ROLE\0\0\0"[..]);
        check(&[(b'Q', b"RESET ROLE\0")], true);
        check(&[(b'Q', b"SELECT 1\0")], false);
        check(&[parse, (b'B', BIND), (b'D', b"P\0"), EXECUTE, SYNC], true);
        check(&[parse, (b'D', b"S\0"), SYNC], true);
        check(&[(b'B', NAMED), EXECUTE, (b'C', b"P\0"), SYNC], true);
        check(&[(b'D', b"Sknown\0"), SYNC], true);
        check(&[(b'B', NAMED), SYNC], true);
        check(&[EXECUTE, SYNC], false);
        // What is unknown, or waits for no Sync, or is too long.
        check(&[(b'B', BIND), EXECUTE, SYNC], false);
        check(&[(b'D', b"Sother\0"), SYNC], false);
        check(&[parse, (b'H', b"")], false);
        check(&[parse, (b'Q', b"RESET ROLE\0")], false);
        check(&[(b'P', b"\0SELECT 1\0\0\0"), SYNC], false);
        check(&[SYNC], false);
        check(&[(b'F', b"12345678")], false);
        let long = [&b"RESET ROLE"[..], &[b' '; REQUEST_MAX], b"\0"].concat();
        check(&[(b'Q', &long)], false);
        let refused = Settings::default();
        assert!(matches!(
            First::read(b"Q\0\0\0\x01", &refused, |_| None),
            First::Other
        ));
    }
}
