//! Messages of lost servers that the pooler has read but that the client never receives.

use std::collections::VecDeque;

use pgweir_wire::tag::backend;

use super::direct_session;
use crate::checks::SentMessage;

/// Forgets messages of lost servers that should have come before `message`, which the client receives now. There are
/// two cases: the client has received an error instead of the messages, or the pooler has repeated the client's request
/// on another server, since the client had received nothing of the reply.
pub(super) fn forget(said: &mut VecDeque<SentMessage>, message: &[u8]) {
    // When a request is repeated, the other server may send the same description, BindComplete or CopyInResponse again.
    let is_said_again = |tag| {
        direct_session::is_description(tag)
            || matches!(tag, backend::BIND_COMPLETE | backend::COPY_IN_RESPONSE)
    };
    forget_up_to(said, message, |said| {
        said.is_last && is_said_again(said.message[0])
    });
    if said.front().is_some_and(|said| said.message != message) {
        let may_be_held_back = |said: &SentMessage| said.message[0] != backend::READY_FOR_QUERY;
        forget_up_to(said, message, |said| said.is_last && may_be_held_back(said));
    }
}

/// Forgets the first messages that satisfy `is_lost`, if `message` follows them. A backend whose later message arrives has
/// lost none of its earlier ones: the equal message of the pooler's own is older than all of them.
fn forget_up_to(
    said: &mut VecDeque<SentMessage>,
    message: &[u8],
    is_lost: impl Fn(&SentMessage) -> bool,
) {
    let lost = said.iter().take_while(|said| is_lost(said)).count();
    let Some(next) = said.get(lost).filter(|next| next.message == message) else {
        return;
    };
    let backend = next.backend;
    if said.iter().take(lost).all(|said| said.backend != backend) {
        said.drain(..lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(backend: usize, tag: u8) -> SentMessage {
        SentMessage {
            backend,
            end: 0,
            message: vec![tag, 0, 0, 0, 4],
            is_last: true,
        }
    }

    /// Returns the backends whose messages are left when a ReadyForQuery arrives.
    fn left(said: impl IntoIterator<Item = SentMessage>) -> Vec<usize> {
        let mut said = said.into_iter().collect();
        forget(&mut said, &[backend::READY_FOR_QUERY, 0, 0, 0, 4]);
        said.iter().map(|said| said.backend).collect()
    }

    /// The pooler answers a Sync itself, and the backend that has answered the next request is lost before the client
    /// reads.
    #[test]
    fn the_answer_to_a_later_request_is_kept() {
        let all = [backend::BIND_COMPLETE, backend::READY_FOR_QUERY];
        assert_eq!(left(all.map(|tag| said(7, tag))), [7, 7]);
    }

    /// Both backends have sent the same BindComplete.
    #[test]
    fn the_same_message_of_a_lost_backend_is_forgotten() {
        let all = [
            (7, backend::BIND_COMPLETE),
            (8, backend::BIND_COMPLETE),
            (8, backend::READY_FOR_QUERY),
        ];
        let mut said: VecDeque<_> = all.map(|(backend, tag)| said(backend, tag)).into();
        said[1].is_last = false;
        forget(&mut said, &[backend::BIND_COMPLETE, 0, 0, 0, 4]);
        assert_eq!(
            said.iter().map(|said| said.backend).collect::<Vec<_>>(),
            [8, 8]
        );
    }

    #[test]
    fn messages_before_those_of_another_backend_are_forgotten() {
        let lost = said(7, backend::BIND_COMPLETE);
        assert_eq!(left([lost, said(8, backend::READY_FOR_QUERY)]), [8]);
    }
}
