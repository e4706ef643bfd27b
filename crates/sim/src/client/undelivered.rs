//! Messages of lost servers that the pooler has read but that the client never receives.

use std::collections::VecDeque;

use pgweir_wire::tag::backend;

use super::direct_session;
use crate::checks::SentMessage;

/// Forgets messages of lost servers that should have come before `message`, which the client receives now. There are
/// two cases: the client has received an error instead of the messages, or the pooler has repeated the client's request
/// on another server, since the client had received nothing of the reply.
pub(super) fn forget(said: &mut VecDeque<SentMessage>, message: &[u8]) {
    // When a request is repeated, the other server may send the same description or CopyInResponse again.
    let is_said_again =
        |tag| direct_session::is_description(tag) || tag == backend::COPY_IN_RESPONSE;
    forget_up_to(said, message, |said| {
        said.is_last && is_said_again(said.message[0])
    });
    if said.front().is_some_and(|said| said.message != message) {
        let may_be_held_back = |said: &SentMessage| said.message[0] != backend::READY_FOR_QUERY;
        forget_up_to(said, message, |said| said.is_last && may_be_held_back(said));
    }
}

/// Forgets the first messages that satisfy `is_lost`, if `message` follows them.
fn forget_up_to(
    said: &mut VecDeque<SentMessage>,
    message: &[u8],
    is_lost: impl Fn(&SentMessage) -> bool,
) {
    let lost = said.iter().take_while(|said| is_lost(said)).count();
    if said.get(lost).is_some_and(|said| said.message == message) {
        said.drain(..lost);
    }
}
