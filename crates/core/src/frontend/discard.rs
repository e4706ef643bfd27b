//! Discards a request that no server gets: after a cancel request, or while servers reject the client's settings.

use pgweir_wire::tag::frontend;

use super::Upstream;
use crate::base::fault::Fault;

/// A request that is read and discarded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Discard {
    progress: Progress,
}

/// The part of the request that was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No message that has a reply has arrived yet.
    #[default]
    Fresh,
    /// A message that is a request by itself has arrived in part.
    Alone,
    /// The error was sent; all messages up to Sync are skipped.
    UntilSync,
}

/// The result of reading more bytes of the request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    /// The error is to be sent now.
    pub fails: bool,
    /// The request was a simple query.
    pub is_query: bool,
    /// The end of the request, if it was reached.
    pub end: Option<End>,
}

/// The end of a discarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// ReadyForQuery is to be sent; the next request begins here.
    At(usize),
    /// The client has sent Terminate.
    Terminated,
}

impl Discard {
    /// Skips messages as PostgreSQL does after an error: a simple query is a request by itself, and a request of the
    /// extended protocol ends with Sync.
    ///
    /// # Errors
    ///
    /// The errors of [`Upstream::next`].
    pub fn read(
        &mut self,
        stream: &mut Upstream,
        bytes: &[u8],
        longest: u32,
    ) -> Result<Discarded, Fault> {
        let mut found = Discarded::default();
        let mut at = 0;
        loop {
            if self.progress == Progress::Alone {
                at += stream.skip(bytes.len() - at);
                if stream.is_at_boundary() {
                    found.fails = true;
                    found.end = Some(End::At(at));
                }
                return Ok(found);
            }
            let Some(head) = stream.next(bytes, &mut at, longest)? else {
                return Ok(found);
            };
            match head.header.tag {
                frontend::TERMINATE => {
                    found.end = Some(End::Terminated);
                    return Ok(found);
                }
                frontend::SYNC => {
                    found.end = Some(End::At(at));
                    return Ok(found);
                }
                // These messages have no reply.
                frontend::FLUSH
                | frontend::COPY_DATA
                | frontend::COPY_DONE
                | frontend::COPY_FAIL => {}
                _ if self.progress == Progress::UntilSync => {}
                tag @ (frontend::QUERY | frontend::FUNCTION_CALL) => {
                    found.is_query = tag == frontend::QUERY;
                    self.progress = Progress::Alone;
                }
                _ => {
                    found.fails = true;
                    self.progress = Progress::UntilSync;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32 + 4).to_be_bytes();
        [&[tag], &len[..], body].concat()
    }

    /// Checks which messages the client gets, and which of its bytes are left, whatever the parts in which they arrive.
    fn check(bytes: &[u8], expect: &str, rest: &[u8]) {
        for cut in 0..=bytes.len() {
            let (mut discard, mut stream) = (Discard::default(), Upstream::default());
            let (mut replies, mut left) = (String::new(), None);
            for part in [&bytes[..cut], &bytes[cut..]] {
                if let Some(left) = &mut left {
                    let left: &mut Vec<u8> = left;
                    left.extend_from_slice(part);
                    continue;
                }
                let found = discard.read(&mut stream, part, u32::MAX).unwrap();
                if found.fails {
                    replies.push('E');
                }
                match found.end {
                    Some(End::At(at)) => {
                        replies.push('Z');
                        left = Some(part[at..].to_vec());
                    }
                    Some(End::Terminated) => {
                        replies.push('X');
                        left = Some(Vec::new());
                    }
                    None => {}
                }
            }
            assert_eq!(replies, expect, "cut at {cut}");
            assert_eq!(left.unwrap_or_default(), rest, "cut at {cut}");
        }
    }

    #[test]
    fn a_query_is_a_request_by_itself() {
        let next = message(b'Q', b"select 2\0");
        let bytes = [message(b'Q', b"select 1\0"), next.clone()].concat();
        check(&bytes, "EZ", &next);
        check(&message(b'F', b"12345678"), "EZ", b"");
        check(&message(b'Q', b"select 1\0")[..9], "", b"");
    }

    #[test]
    fn the_extended_protocol_goes_on_until_sync() {
        let request = [
            message(b'P', b"\0select 1\0\0\0"),
            message(b'Q', b"skipped\0"),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'H', b""),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
        ];
        let next = message(b'P', b"\0select 2\0\0\0");
        check(&[request.concat(), next.clone()].concat(), "EZ", &next);
        check(&request[..4].concat(), "E", b"");
    }

    #[test]
    fn syncs_and_copy_messages_are_no_requests() {
        check(&message(b'S', b""), "Z", b"");
        let query = message(b'Q', b"select 1\0");
        let copy_messages = [
            message(b'd', b"row"),
            message(b'c', b""),
            message(b'H', b""),
        ]
        .concat();
        check(&[copy_messages.clone(), query].concat(), "EZ", b"");
        check(&[copy_messages, message(b'X', b"")].concat(), "X", b"");
    }
}
