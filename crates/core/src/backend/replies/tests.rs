use super::*;
use crate::fault::Fault;
use pgweir_wire::tag::backend;

/// Plays a script: client messages by tag, and of the server `G` (CopyInResponse), `!` (error),
/// `z` (ReadyForQuery). Gives what is settled and doubtful at the end.
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
    (replies.is_settled(), replies.is_doubtful())
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
    assert!(replies.is_settled() && replies.is_doubtful());
    replies.own_sent(Own::Probe);
    assert_eq!(replies.ready(), Some(Request::Sync), "the client's");
    replies.said(backend::DATA_ROW);
    replies.said(backend::READY_FOR_QUERY);
    assert_eq!(replies.ready(), Some(Request::Own(Own::Probe)));
    // Where nothing is in doubt, nothing else can come first.
    let mut certain = Replies::default();
    certain.own_sent(Own::Probe);
    assert!(!certain.owes_client_first());
}

fn changing(kind: MarkKind) -> Mark {
    Mark::own(kind, Change::Refused(Fault::TooManyStatements))
}

#[test]
fn what_an_earlier_request_changes_is_not_certain() {
    let mut replies = Replies::default();
    replies.mark_sent(changing(MarkKind::Parse));
    assert!(
        !replies.is_unsure(),
        "it fails or not with what comes behind it"
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
fn what_comes_behind_a_reset_waits() {
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

    // In the extended protocol, a Sync before the data is none.
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
fn nothing_waits_where_a_sync_is_due() {
    let mut replies = Replies::default();
    for tag in b"PBE" {
        replies.client_sent(*tag);
    }
    replies.startup_values_taken();
    replies.statements_dropped();
    replies.client_sent(frontend::QUERY);
    assert!(
        !replies.is_unsure() && !replies.holds_back(),
        "it may be skipped"
    );
    replies.client_sent(frontend::SYNC);
    assert!(replies.is_unsure() && replies.holds_back());
}

#[test]
fn startup_values_within_a_request() {
    let mut replies = Replies::default();
    replies.startup_values_taken();
    for (tag, comes_behind) in b"PBDE".iter().zip([false; 4]) {
        assert_eq!(replies.comes_behind_reset(*tag), comes_behind);
        replies.client_sent(*tag);
    }
    assert!(!replies.comes_behind_reset(frontend::CLOSE));
    assert!(replies.comes_behind_reset(frontend::PARSE));
    replies.startup_values_restored();
    let restore = MarkKind::Restore(0);
    replies.mark_sent(Mark::plain(MarkKind::Parse));
    replies.mark_sent(Mark::plain(restore));
    replies.mark_sent(Mark::plain(restore));
    replies.client_sent(frontend::SYNC);
    assert!(!replies.holds_back() && !replies.restores(backend::PARSE_COMPLETE));
    assert!(replies.completed(MarkKind::Parse).is_some());
    for _ in 0..2 {
        assert!(!replies.restores(backend::COMMAND_COMPLETE), "the client's");
        for tag in b"12DC33" {
            let is_first = *tag == backend::PARSE_COMPLETE;
            assert_eq!(replies.front().restores, !is_first);
            assert!(replies.restores(*tag));
        }
    }
    assert!(!replies.restores(backend::PARSE_COMPLETE));
    assert_eq!(replies.ready(), Some(Request::Sync));
}

#[test]
fn an_answer_that_nobody_asked_for() {
    assert_eq!(Replies::default().ready(), None);
}
