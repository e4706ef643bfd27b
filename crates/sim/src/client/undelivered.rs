//! Messages of lost servers that the pooler has read and the client never gets.

use std::collections::VecDeque;

use pgweir_wire::tag::backend;

use super::own;
use crate::checks::Said;

/// Forgets messages of lost servers in front of `message`, which the client gets now. The client has received an error in
/// their place; or its request was repeated, since nothing of the reply had reached it.
pub(super) fn forget(said: &mut VecDeque<Said>, message: &[u8]) {
    // Another server may say the same when the request is repeated: a description, or the beginning of a COPY.
    let is_said_again = |tag| own::is_description(tag) || tag == backend::COPY_IN_RESPONSE;
    forget_up_to(said, message, |said| {
        said.is_last && is_said_again(said.message[0])
    });
    if said.front().is_some_and(|said| said.message != message) {
        let may_be_held_back = |said: &Said| said.message[0] != backend::READY_FOR_QUERY;
        forget_up_to(said, message, |said| said.is_last && may_be_held_back(said));
    }
}

/// Forgets the first messages that satisfy `is_lost`, if `message` comes behind them.
fn forget_up_to(said: &mut VecDeque<Said>, message: &[u8], is_lost: impl Fn(&Said) -> bool) {
    let lost = said.iter().take_while(|said| is_lost(said)).count();
    if said.get(lost).is_some_and(|said| said.message == message) {
        said.drain(..lost);
    }
}
