//! The messages of servers that can be checked one by one, without the messages before them.

use pgweir_wire::{Report, tag::backend};

/// Returns whether this is the notice of `query_wait_notify`.
pub(super) fn is_of_waiting(body: &[u8]) -> bool {
    Report::parse(body).is_ok_and(|report| {
        report
            .message
            .starts_with(b"No server connection available")
            && report.detail.is_some()
    })
}

/// Returns whether a server's message of this kind contains the id of a request.
pub(super) fn is_marked(tag: u8, body: &[u8]) -> bool {
    let is_plain = tag == backend::COMMAND_COMPLETE && PLAIN.contains(&body);
    !is_plain
        && matches!(
            tag,
            backend::COMMAND_COMPLETE
                | backend::DATA_ROW
                | backend::COPY_DATA
                | backend::ERROR_RESPONSE
                | backend::NOTICE_RESPONSE
                | backend::FUNCTION_CALL_RESPONSE
        )
}

/// The tags that PostgreSQL sends for commands on the session or the transaction, which the pooler has to understand.
const PLAIN: [&[u8]; 23] = [
    b"BEGIN\0",
    b"COMMIT\0",
    b"ROLLBACK\0",
    b"SAVEPOINT\0",
    b"RELEASE\0",
    b"SET\0",
    b"RESET\0",
    b"DISCARD ALL\0",
    b"DISCARD TEMP\0",
    b"DISCARD SEQUENCES\0",
    b"DISCARD PLANS\0",
    b"DECLARE CURSOR\0",
    b"CLOSE CURSOR\0",
    b"CLOSE CURSOR ALL\0",
    b"LISTEN\0",
    b"UNLISTEN\0",
    b"NOTIFY\0",
    b"PREPARE\0",
    b"DEALLOCATE\0",
    b"DEALLOCATE ALL\0",
    b"CREATE TABLE\0",
    b"DROP TABLE\0",
    b"INSERT 0 1\0",
];

pub(super) fn show(message: &[u8]) -> String {
    let shown = &message[5..message.len().min(70)];
    format!(
        "'{}' \"{}\"",
        message[0].escape_ascii(),
        shown.escape_ascii()
    )
}
