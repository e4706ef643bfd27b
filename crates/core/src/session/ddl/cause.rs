//! Describes what makes a text invalidate the certificates of its database, for administrators.

use super::{
    super::certificates::may_do_ddl, BEFORE_KIND, Certificates, Dialect, Piece, block_of_do,
    pieces, statements,
};
use crate::session::{
    sql::Name,
    word_list::{is_any, words},
};

/// Words that begin a description of a statement. Any other first word may be a mistake of the client.
const SHOWN: [&str; 21] = words(
    "create alter drop comment grant revoke vacuum analyze analyse reindex cluster refresh repack security import reassign \
     commit do call execute prepare",
);
/// Kinds of objects that are shown.
const KINDS: [&str; 26] = words(
    "table index view materialized sequence schema function procedure aggregate trigger rule policy operator cast type \
     domain extension event foreign language constraint role user group database prepared",
);

/// The cause of an invalidation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdlCause {
    /// The cause in words, without values of the text.
    pub words: Box<str>,
    /// Whether the cause is a function or relation of the database whose code may do DDL.
    pub is_code: bool,
}

/// Returns why a text may change anything in the catalog.
#[must_use]
pub fn ddl_cause(text: &[u8], dialect: Dialect, certificates: &Certificates) -> DdlCause {
    let of_text = |words: String| DdlCause {
        words: words.into(),
        is_code: false,
    };
    if dialect == Dialect::Unreadable {
        return of_text("a text that pgweir can't read may do DDL".to_owned());
    }
    let all: Vec<_> = pieces(text).collect();
    let mut names = all.iter().filter_map(Piece::name);
    if let Some(code) = names.find_map(|name| code_of(name, certificates)) {
        return code;
    }
    for statement in statements(&all) {
        let block = block_of_do(statement).filter(|_| statement[0].is("do"));
        if let Some(block) = block {
            let block: Vec<_> = pieces(&block).collect();
            let mut names = block.iter().filter_map(Piece::name);
            if let Some(code) = names.find_map(|name| code_of(name, certificates)) {
                return code;
            }
        }
        let mut words = statement.iter().map_while(|piece| match piece {
            Piece::Word(word) => Some(*word),
            _ => None,
        });
        let Some(first) = words.next().filter(|first| is_any(first, &SHOWN)) else {
            continue;
        };
        let kind = words.find(|word| !is_any(word, &BEFORE_KIND));
        let kind = kind.filter(|kind| is_any(kind, &KINDS)).unwrap_or_default();
        let shown = [first, kind].join(&b' ').to_ascii_uppercase();
        return of_text(format!(
            "a client has sent {}",
            String::from_utf8_lossy(shown.trim_ascii_end())
        ));
    }
    of_text("a client has sent a statement that may do DDL".to_owned())
}

/// Returns the cause if code with this name may do DDL.
fn code_of(name: &[u8], certificates: &Certificates) -> Option<DdlCause> {
    let traces = certificates.word(Name::of(name));
    if !may_do_ddl(traces.read | traces.write) {
        return None;
    }
    let mut objects = certificates.opaque_objects().iter();
    let object = objects.find(|object| object.name.as_bytes().eq_ignore_ascii_case(name));
    let words = match object.and_then(|object| object.reason.as_deref()) {
        Some(reason) => format!("code that may do DDL has run: {reason}"),
        None => format!(
            "code that may do DDL has run: {}",
            String::from_utf8_lossy(name)
        ),
    };
    Some(DdlCause {
        words: words.into(),
        is_code: true,
    })
}
