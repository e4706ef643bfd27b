//! The word that says what a statement is.

use super::{
    Suspicion,
    careful::{Expect, Place, Reader},
    keyword::{Keyword, buffer, lower},
    lexer::{Kind, Token},
};

/// Goes on from the first word of a statement.
pub(super) fn first(reader: &mut Reader<'_>, token: Token) {
    let mut buffer = buffer();
    let word = match token.kind {
        Kind::Word => lower(reader.lexer.bytes(token), &mut buffer),
        _ => b"",
    };
    if reader.place == Place::Explain && matches!(word, b"analyze" | b"analyse" | b"verbose") {
        return;
    }
    let (found, place) = match word {
        b"select" | b"values" | b"table" | b"insert" | b"update" | b"delete" | b"merge" => {
            reader.place = Place::Body;
            return reader.body(token);
        }
        b"with" => return reader.begins_with(),
        b"explain" => (Suspicion::NONE, Place::Explain),
        // It may commit DDL.
        b"commit" if commits_prepared(reader) => (Suspicion::OPAQUE, Place::Rest),
        b"begin" | b"start" | b"commit" | b"end" | b"rollback" | b"abort" | b"savepoint"
        | b"release" | b"fetch" | b"move" | b"show" | b"notify" | b"lock" | b"checkpoint" => {
            (Suspicion::NONE, Place::Rest)
        }
        b"set" => {
            reader.set();
            (Suspicion::NONE, Place::Rest)
        }
        b"reset" => (Suspicion::SETTING, Place::Rest),
        b"listen" | b"unlisten" => (Suspicion::LISTEN, Place::Rest),
        b"discard" => (Suspicion::DISCARD, Place::Rest),
        b"deallocate" => (Suspicion::PREPARE, Place::Rest),
        b"close" => (Suspicion::CURSOR, Place::Rest),
        b"load" => (Suspicion::LIBRARY, Place::Rest),
        b"do" => (Suspicion::OPAQUE, Place::Rest),
        b"call" => (Suspicion::OPAQUE, Place::Body),
        b"execute" => {
            // Its name may be followed by a parenthesis, and calls nothing.
            reader.lexer.next();
            (Suspicion::EXECUTE, Place::Body)
        }
        b"prepare" => prepare(reader),
        b"declare" => declare(reader),
        b"copy" => {
            let query = reader.lexer.peek().kind == Kind::Open;
            reader.expect = if query {
                Expect::Source
            } else {
                Expect::Target
            };
            (Suspicion::NONE, Place::Body)
        }
        b"truncate" => return reader.truncates(),
        _ => {
            reader.creates();
            (Suspicion::OPAQUE | Suspicion::TEMP, Place::Body)
        }
    };
    reader.found |= found;
    reader.place = place;
}

/// `COMMIT PREPARED`
fn commits_prepared(reader: &Reader<'_>) -> bool {
    let next = reader.lexer.bytes(reader.lexer.peek());
    next.eq_ignore_ascii_case(b"prepared")
}

/// `PREPARE name [(types)] AS statement`, or `PREPARE TRANSACTION 'id'`.
fn prepare(reader: &mut Reader<'_>) -> (Suspicion, Place) {
    reader.lexer.next();
    if reader.lexer.peek().kind == Kind::Text {
        return (Suspicion::NONE, Place::Rest);
    }
    if skip_to(reader, Keyword::As).is_some() {
        (Suspicion::PREPARE, Place::Start)
    } else {
        (Suspicion::PREPARE | Suspicion::OPAQUE, Place::Body)
    }
}

/// `DECLARE name [options] CURSOR [WITH HOLD] FOR query`.
fn declare(reader: &mut Reader<'_>) -> (Suspicion, Place) {
    match skip_to(reader, Keyword::For) {
        Some(true) => (Suspicion::CURSOR, Place::Start),
        Some(false) => (Suspicion::NONE, Place::Start),
        None => (Suspicion::CURSOR | Suspicion::OPAQUE, Place::Body),
    }
}

/// Goes past the next `wanted` word outside of parentheses: was WITH before it? None if there is no
/// such word in this statement, and it went nowhere.
fn skip_to(reader: &mut Reader<'_>, wanted: Keyword) -> Option<bool> {
    let mut ahead = reader.lexer;
    let mut depth = 0_u32;
    let mut with = false;
    loop {
        let token = ahead.next();
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.checked_sub(1)?,
            Kind::Semicolon | Kind::Broken | Kind::End => return None,
            _ if depth > 0 => {}
            _ => match reader.keyword(token) {
                Some(found) if found == wanted => {
                    reader.lexer = ahead;
                    return Some(with);
                }
                Some(Keyword::With) => with = true,
                _ => {}
            },
        }
    }
}
