//! Splits the bytes of a client at message headers. Bodies are forwarded unread.

use pgweir_wire::{BadLength, HEADER_LEN, Header, tag::frontend};

use crate::base::{fault::Fault, progress::Place};

/// The longest body that PostgreSQL accepts, in bytes: 1 GB (`PQ_LARGE_MESSAGE_LIMIT`).
const BODY_MAX: u32 = 0x3fff_fffe;

/// The position in a client's stream of messages.
#[derive(Debug, Default, Clone, Copy)]
pub struct Upstream {
    body_left: u32,
    /// The number of messages that have begun, modulo 2^32.
    begun: u32,
    /// The type of the last message that has begun.
    tag: u8,
    partial: [u8; HEADER_LEN - 1],
    partial_len: u8,
}

/// The beginning of a message: its header, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Tag and length.
    pub header: Header,
    /// The position of the header in the input; 0 if a part of it arrived with earlier input.
    pub start: usize,
    /// The header's bytes, if a part of them arrived with earlier input and was not forwarded.
    pub split: Option<[u8; HEADER_LEN]>,
}

impl Upstream {
    /// Returns the next message that begins at or after `*at`, which moves past its header; `None` when all bytes are
    /// used up.
    ///
    /// # Errors
    ///
    /// The length or the type is invalid; `*at` is where the message begins.
    #[inline]
    pub fn next(&mut self, bytes: &[u8], at: &mut usize, max: u32) -> Result<Option<Head>, Fault> {
        let skip = (bytes.len() - *at).min(self.body_left as usize);
        *at += skip;
        self.body_left -= skip as u32;
        if self.partial_len > 0 {
            return self.next_split(bytes, at, max);
        }
        match Header::parse(&bytes[*at..]).map_err(Fault::Length)? {
            Some(header) => {
                self.begin(header, max)?;
                let start = *at;
                *at += HEADER_LEN;
                Ok(Some(Head {
                    header,
                    start,
                    split: None,
                }))
            }
            None => {
                let rest = &bytes[*at..];
                self.partial[..rest.len()].copy_from_slice(rest);
                self.partial_len = rest.len() as u8;
                *at = bytes.len();
                Ok(None)
            }
        }
    }

    #[cold]
    fn next_split(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        max: u32,
    ) -> Result<Option<Head>, Fault> {
        let mut whole = [0; HEADER_LEN];
        let held = usize::from(self.partial_len);
        whole[..held].copy_from_slice(&self.partial[..held]);
        let taken = (bytes.len() - *at).min(HEADER_LEN - held);
        whole[held..held + taken].copy_from_slice(&bytes[*at..*at + taken]);
        let Some(header) = Header::parse(&whole[..held + taken]).map_err(Fault::Length)? else {
            *at += taken;
            self.partial.copy_from_slice(&whole[..HEADER_LEN - 1]);
            self.partial_len += taken as u8;
            return Ok(None);
        };
        self.begin(header, max)?;
        *at += taken;
        self.partial_len = 0;
        Ok(Some(Head {
            header,
            start: 0,
            split: Some(whole),
        }))
    }

    #[inline]
    fn begin(&mut self, header: Header, max: u32) -> Result<(), Fault> {
        let Header { tag, body_len } = header;
        if body_len > BODY_MAX {
            return Err(Fault::Length(BadLength {
                tag,
                length: (body_len + 4) as i32,
            }));
        }
        if body_len.saturating_add(HEADER_LEN as u32) > max {
            return Err(Fault::TooLong(tag));
        }
        match tag {
            frontend::QUERY
            | frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE
            | frontend::COPY_DATA
            | frontend::COPY_FAIL
            | frontend::FUNCTION_CALL => {}
            frontend::SYNC | frontend::FLUSH | frontend::COPY_DONE | frontend::TERMINATE => {
                if body_len > 0 {
                    return Err(Fault::Malformed(tag));
                }
            }
            other => return Err(Fault::UnexpectedMessage(other)),
        }
        self.body_left = body_len;
        self.begun = self.begun.wrapping_add(1);
        self.tag = tag;
        Ok(())
    }

    /// Notes that the caller has used this number of bytes of the present message's body.
    #[inline]
    pub fn advance(&mut self, taken: usize) {
        self.body_left = self.body_left.saturating_sub(taken as u32);
    }

    /// Returns how many of the next `there` bytes belong to the present message's body, and whether the body ends with
    /// them.
    #[must_use]
    pub fn left_of(&self, there: usize) -> (usize, bool) {
        let left = self.body_left as usize;
        (left.min(there), left <= there)
    }

    /// Skips the rest of the present message's body, as far as it is among `there` bytes. Returns the number of bytes
    /// skipped.
    pub fn skip(&mut self, there: usize) -> usize {
        let taken = there.min(self.body_left as usize);
        self.advance(taken);
        taken
    }

    /// Returns the end of the bytes that can be forwarded, in an input of `len` bytes that was used up. The bytes after
    /// that are part of a header, and are kept here.
    #[must_use]
    #[inline]
    pub fn end(&self, len: usize) -> usize {
        // A header that began in earlier input takes up this whole input.
        len.saturating_sub(usize::from(self.partial_len))
    }

    /// Returns the beginning of a header, if the rest of it has not arrived.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.partial[..usize::from(self.partial_len)]
    }

    /// Creates a stream at a message boundary, followed by this beginning of a header. Returns `None` if the bytes
    /// can't begin a header.
    #[must_use]
    pub fn resumed(partial: &[u8]) -> Option<Self> {
        let mut stream = Self::default();
        let to = stream.partial.get_mut(..partial.len())?;
        to.copy_from_slice(partial);
        stream.partial_len = partial.len() as u8;
        Some(stream)
    }

    /// Returns whether a part of a message's body is still missing; `false` if only the beginning of the next header
    /// has arrived.
    #[must_use]
    #[inline]
    pub fn is_in_body(&self) -> bool {
        self.body_left > 0
    }

    /// Returns whether the client has sent nothing of a message that has not arrived as a whole.
    #[must_use]
    #[inline]
    pub fn is_between_messages(&self) -> bool {
        self.body_left == 0 && self.partial_len == 0
    }

    /// Returns the type of the message whose body has not arrived as a whole.
    #[must_use]
    pub fn tag_of_body(&self) -> Option<u8> {
        self.is_in_body().then_some(self.tag)
    }

    /// Returns the position within a message that has not arrived completely.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        (!self.is_between_messages()).then(|| Place {
            // A header that has not arrived as a whole belongs to the next message.
            message: self.begun.wrapping_add(u32::from(self.partial_len > 0)),
            missing: self.body_left,
        })
    }

    /// Returns whether the last message has arrived completely.
    #[must_use]
    #[inline]
    pub fn is_at_boundary(&self) -> bool {
        self.body_left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgweir_wire::MessageWriter;

    /// Returns the bytes that go on to the server, and the tags that were seen.
    fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let (mut stream, mut passed, mut tags) = (Upstream::default(), Vec::new(), Vec::new());
        let mut from = 0;
        for &to in cuts.iter().chain([&bytes.len()]) {
            let (chunk, mut at, mut sent) = (&bytes[from..to], 0, 0);
            while let Some(head) = stream.next(chunk, &mut at, u32::MAX).unwrap() {
                if let Some(split) = head.split {
                    passed.extend_from_slice(&split);
                    sent = at;
                }
                tags.push(head.header.tag);
            }
            passed.extend_from_slice(&chunk[sent..stream.end(chunk.len())]);
            from = to;
        }
        assert!(stream.is_at_boundary());
        (passed, tags)
    }

    #[test]
    fn every_cut_gives_the_same() {
        let mut bytes = Vec::new();
        MessageWriter::new(&mut bytes)
            .query(b"select 1")
            .sync()
            .query(b"")
            .sync()
            .sync();
        let whole = run(&bytes, &[]);
        assert_eq!(whole, (bytes.clone(), b"QSQSS".to_vec()));
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                assert_eq!(
                    run(&bytes, &[first, second]),
                    whole,
                    "cut at {first} and {second}"
                );
            }
        }
    }

    #[test]
    fn refusals() {
        let check = |bytes: &[u8], expect| {
            assert_eq!(
                Upstream::default().next(bytes, &mut 0, 1000).err(),
                Some(expect),
                "{bytes:?}"
            );
        };
        check(
            b"Q\0\0\0\x03",
            Fault::Length(BadLength {
                tag: b'Q',
                length: 3,
            }),
        );
        check(
            b"Q\x7f\xff\xff\xff",
            Fault::Length(BadLength {
                tag: b'Q',
                length: 0x7fff_ffff,
            }),
        );
        check(b"Q\0\0\x04\0", Fault::TooLong(b'Q'));
        check(b"S\0\0\0\x05", Fault::Malformed(b'S'));
        check(b"p\0\0\0\x04", Fault::UnexpectedMessage(b'p'));
        check(b"!\0\0\0\x04", Fault::UnexpectedMessage(b'!'));
    }
}
