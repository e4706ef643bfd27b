use std::sync::Arc;

use super::*;
use crate::base::fault::Fault;
use pgweir_wire::tag::backend;

/// Plays a script: client messages by tag, and of the server `G` (CopyInResponse), `!` (error),
/// `z` (ReadyForQuery). Returns whether the replies are settled at the end, and whether they are uncertain.
fn play(script: &str) -> (bool, bool) {
    let mut replies = Replies::default();
    for step in script.bytes() {
        match step {
            b'G' => replies.copy_in_started(),
            b'!' => drop(replies.failed()),
            b'z' => assert!(replies.ready().is_some(), "{script}"),
            tag => replies.client_sent(tag),
        }
    }
    (replies.is_settled(), replies.is_uncertain())
}

#[test]
fn scripts() {
    let check =
        |script: &str, settled, doubtful| assert_eq!(play(script), (settled, doubtful), "{script}");
    check("", true, false);
    check("Q", false, false);
    check("Qz", true, false);
    check("QQz", false, false);
    check("QQzz", true, false);
    check("PBDE", false, false);
    check("PBDES", false, false);
    check("PBDESz", true, false);
    check("PBDESPBESz", false, false);
    check("PBDESPBESzz", true, false);
    check("F", false, false);
    check("Fz", true, false);
    // COPY in the simple protocol.
    check("QGdd", false, false);
    check("QGddc", false, false);
    check("QGddcz", true, false);
    check("QGdd!z", true, false);
    check("QGdd!zc", true, false);
    check("QdcGz", true, false); // all in one go
    check("QdcGQz", false, false);
    // COPY in the extended protocol, as libpq does it: Sync after Execute and after CopyDone.
    check("PBDESGdd", false, false);
    check("PBDESGddcS", false, false);
    check("PBDESGddcSz", true, false);
    check("PBDESGddfSz", true, false);
    check("PBDEGddcSz", true, false);
    check("PBDESddcSGz", true, false); // all in one go
    // If the error came before any data was read, the first Sync is answered after all.
    check("PBDESGd!cSz", true, true);
    check("PBDESGdcS!zz", true, true);
    check("PBDESG!z", true, true);
    check("PBDEGS!z", true, true);
    check("PBDEGSdcSz", true, false);
}

#[test]
fn a_sync_that_was_not_ignored_is_answered_before_our_own_request() {
    let mut replies = Replies::default();
    for tag in *b"PBDES" {
        replies.client_sent(tag);
    }
    replies.copy_in_started();
    for tag in *b"cS" {
        replies.client_sent(tag);
    }
    drop(replies.failed());
    assert_eq!(replies.ready(), Some(Request::Sync));
    assert!(replies.is_settled() && replies.is_uncertain());
    replies.internal_query_sent(InternalQuery::Probe);
    assert_eq!(replies.ready(), Some(Request::Sync), "the client's");
    replies.note_message(backend::DATA_ROW);
    replies.note_message(backend::READY_FOR_QUERY);
    assert_eq!(
        replies.ready(),
        Some(Request::Internal(InternalQuery::Probe))
    );
    // If the replies are certain, no reply for the client comes before the one to the internal query.
    let mut certain = Replies::default();
    certain.internal_query_sent(InternalQuery::Probe);
    assert!(!certain.owes_client_first());
}

fn changing(kind: MarkKind) -> Mark {
    Mark::own(kind, Change::Refused(Fault::TooManyStatements))
}

#[test]
fn changes_of_outstanding_requests_are_uncertain() {
    let mut replies = Replies::default();
    replies.mark_sent(changing(MarkKind::Parse));
    assert!(
        !replies.is_unsure(),
        "whether it fails depends on the messages after it"
    );
    replies.client_sent(frontend::SYNC);
    assert!(replies.is_unsure());
    replies.wait();
    replies.mark_sent(Mark::plain(MarkKind::Parse));
    replies.mark_sent(changing(MarkKind::Parse));
    assert!(!replies.take_awaited());
    assert!(replies.completed(MarkKind::Parse).is_some());
    assert!(!replies.is_unsure());
    assert!(replies.take_awaited());
    assert!(!replies.take_awaited(), "once");
    assert!(replies.ready().is_some());
    replies.client_sent(frontend::SYNC);
    assert!(replies.is_unsure());
    assert_eq!(replies.failed().len(), 2);
    assert!(!replies.is_unsure());
}

#[test]
fn messages_after_a_reset_wait() {
    let mut replies = Replies::default();
    replies.client_sent(frontend::QUERY);
    replies.startup_values_taken();
    assert!(!replies.holds_back(), "it is not sent yet");
    replies.client_sent(frontend::QUERY);
    assert!(replies.holds_back());
    replies.wait();
    assert!(replies.ready().is_some() && !replies.take_awaited());
    replies.copy_in_started();
    assert!(
        !replies.holds_back() && replies.take_awaited(),
        "it wants data"
    );
    replies.client_sent(frontend::COPY_DONE);
    assert!(replies.holds_back());
    assert!(replies.ready().is_some() && !replies.holds_back());

    // In the extended protocol, the server ignores a Sync before the data.
    replies.startup_values_taken();
    replies.client_sent(frontend::EXECUTE);
    replies.client_sent(frontend::SYNC);
    replies.copy_in_started();
    replies.client_sent(frontend::COPY_DONE);
    assert!(!replies.holds_back());
    replies.client_sent(frontend::SYNC);
    assert!(replies.holds_back());
    assert!(replies.ready().is_some() && !replies.holds_back());
}

#[test]
fn a_query_after_messages_without_a_sync_waits_for_earlier_replies() {
    let mut replies = Replies::default();
    assert!(!replies.may_skip_query());
    for tag in b"PBE" {
        replies.client_sent(*tag);
    }
    assert!(replies.may_skip_query(), "it may be skipped");
    let closing = || Mark::own(MarkKind::Close, Change::AwaitEarlier);
    replies.mark_sent(closing());
    replies.wait();
    assert!(!replies.take_awaited());
    assert!(replies.completed(MarkKind::Close).is_some());
    assert!(replies.take_awaited() && !replies.may_skip_query());
    replies.client_sent(frontend::QUERY);
    assert_eq!(replies.ready(), Some(Request::Simple));
    assert!(replies.is_settled() && !replies.is_uncertain());

    // The message before the Close fails: PostgreSQL skips the Close, and does not answer it.
    replies.client_sent(frontend::EXECUTE);
    replies.mark_sent(closing());
    replies.wait();
    assert_eq!(replies.failed().len(), 1);
    assert!(replies.take_awaited() && !replies.may_skip_query());
    replies.client_sent(frontend::QUERY);
    assert_eq!(replies.owed_to_client(), 0);
    replies.client_sent(frontend::SYNC);
    assert_eq!(replies.ready(), Some(Request::Sync));
    assert!(replies.is_settled() && !replies.is_uncertain());
}

#[test]
fn messages_after_the_replies_make_a_query_uncertain_again() {
    let mut replies = Replies::default();
    replies.client_sent(frontend::EXECUTE);
    replies.mark_sent(Mark::own(MarkKind::Close, Change::AwaitEarlier));
    assert!(replies.completed(MarkKind::Close).is_some());
    assert!(!replies.may_skip_query());
    replies.client_sent(frontend::EXECUTE);
    assert!(replies.may_skip_query());
    replies.client_sent(frontend::SYNC);
    assert!(!replies.may_skip_query());
}

#[test]
fn syncs_behind_a_query_that_reads_copy_data() {
    let mut replies = Replies::default();
    for tag in *b"QSSdcQ" {
        replies.client_sent(tag);
    }
    assert_eq!(replies.owed_to_client(), 4);
    replies.copy_in_started();
    assert_eq!(replies.owed_to_client(), 2);
    assert_eq!(replies.ready(), Some(Request::Simple));
    assert_eq!(replies.ready(), Some(Request::Simple));
    assert!(replies.is_settled() && !replies.is_uncertain());
    assert_eq!(play("QSGdcz"), (true, false));
    assert_eq!(
        play("QSG!z"),
        (true, true),
        "it may have failed before it read"
    );
    assert_eq!(play("QcSGzz"), (true, false));
}

#[test]
fn names_that_are_gone_are_not_given_back() {
    let statements = crate::session::Statements::default();
    let statement = statements.intern(b"x");
    let taken = || {
        let change = Change::Unnamed((*b"x").into(), Arc::clone(&statement));
        Mark::clients(MarkKind::Close, change)
    };
    let mut replies = Replies::default();
    replies.mark_sent(taken());
    replies.client_sent(frontend::SYNC);
    replies.mark_sent(taken());
    replies.mark_sent(changing(MarkKind::Parse));
    assert!(replies.is_unsure());
    replies.statements_gone();
    assert!(!replies.is_unsure());
    replies.mark_sent(taken());
    let marks = replies.failed();
    assert!(marks[0].change.is_none());
    assert!(replies.ready().is_some());
    let marks = replies.failed();
    let changes: Vec<_> = marks.iter().map(|mark| mark.change.is_some()).collect();
    assert_eq!(changes, [false, true, true]);
}

#[test]
fn a_client_is_held_until_half_is_answered() {
    let mut replies = Replies::default();
    for _ in 0..4 {
        replies.client_sent(frontend::SYNC);
    }
    assert!(!replies.is_full() && !replies.take_full(4));
    replies.set_full();
    assert!(replies.ready().is_some() && !replies.take_full(4) && replies.is_full());
    assert!(replies.ready().is_some() && replies.take_full(4) && !replies.is_full());
    assert!(!replies.take_full(4), "once");
}

/// Whatever is sent and answered, the counters say what a walk through the queues would find.
#[test]
fn counters() {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let mut replies = Replies::default();
        for _ in 0..random(60) {
            step(&mut replies, random(14));
            check_counters(&replies);
        }
    }
}

fn step(replies: &mut Replies, kind: u64) {
    match kind {
        0 => replies.client_sent(frontend::QUERY),
        1 | 2 => replies.client_sent(frontend::SYNC),
        3 => replies.client_sent(frontend::COPY_DONE),
        4 => replies.mark_sent(Mark::plain(MarkKind::Parse)),
        5 => replies.mark_sent(Mark::plain(MarkKind::Close)),
        6 => replies.mark_sent(changing(MarkKind::Parse)),
        7 => replies.mark_sent(Mark::own(MarkKind::Close, Change::AwaitEarlier)),
        8 => replies.internal_sync_sent(InternalQuery::Probe),
        9 => replies.copy_in_started(),
        10 => drop(replies.failed()),
        11 => drop(replies.ready()),
        12 => drop(replies.completed(MarkKind::Close)),
        _ => drop(replies.completed(MarkKind::Parse)),
    }
}

fn check_counters(replies: &Replies) {
    let owed = replies
        .requests
        .iter()
        .filter(|sent| sent.request.is_owed_to_client());
    assert_eq!(replies.owed_to_client(), owed.count());
    let awaited = replies.marks().any(Mark::is_awaited);
    assert_eq!(replies.marks.are_awaited(), awaited);
    let makes_unnamed = |mark: &Mark| mark.kind == MarkKind::Parse && mark.change.is_none();
    assert_eq!(replies.make_unnamed(), replies.marks().any(makes_unnamed));
    let ends = replies.requests.iter().map(|sent| sent.marks_end);
    assert!(ends.clone().is_sorted() && ends.clone().all(|end| end >= replies.marks.first()));
    let is_present = |number: &u64| ends.clone().all(|end| end <= *number);
    let numbered = (replies.marks.first()..).zip(replies.marks());
    let mut changing = numbered.filter(|(_, mark)| mark.change.is_some());
    let is_unsure = changing.any(|(number, _)| !is_present(&number));
    assert!(replies.is_unsure() || !is_unsure);
}

#[test]
fn a_ready_for_query_without_a_request() {
    assert_eq!(Replies::default().ready(), None);
}
