//! Any text through the scanner, in each dialect, with few and with many certificates.
//!
//! The target checks that a text has the same effects alone and after a statement without effects; that phrases are
//! parts of their text; and that neither an earlier text (after a zero byte) nor a comment changes a result.

use pgweir_core::session::{
    Fingerprint,
    certificates::Certificates,
    scan::{VerdictCache, scan},
    sql::{Class, Dialect, Effects, Phrase, custom_names, phrases, touched_parameters},
};

/// See the module.
pub fn run(text: &[u8]) {
    let rows = [
        [&b"r"[..], b"users", b"", b""],
        [b"r", b"serials", b"", b"SEQUENCE"],
        [b"r", b"hidden_view", b"OPAQUE", b""],
        [b"f", b"hidden", b"SETTING", b""],
        [b"e", b"utf8", b"", b""],
    ];
    let certificates = Certificates::from_rows(1, rows);
    let found = scan(text, Dialect::Utf8, &certificates);
    let before = [&b"select 1;"[..], text].concat();
    assert_eq!(scan(&before, Dialect::Utf8, &certificates), found);
    let mut cache = VerdictCache::default();
    for said in text.split(|&byte| byte == 0).chain([text]) {
        let expect = scan(said, Dialect::Utf8, &certificates);
        assert_eq!(cache.scan(said, Dialect::Utf8, &certificates), expect);
        for dialect in [Dialect::Utf8, Dialect::Ascii, Dialect::Unreadable] {
            let fingerprint = Fingerprint::read(said, dialect);
            let verdict = cache.read(said, dialect, &certificates);
            let found = cache.fingerprint(verdict.place, || Fingerprint::hash_of(said, dialect));
            assert_eq!(found, fingerprint.hash);
            let commented = [b"/* 'a */", said].concat();
            assert_eq!(Fingerprint::hash_of(&commented, dialect), fingerprint.hash);
        }
    }
    let none = scan(text, Dialect::Ascii, &Certificates::none());
    assert!(none.class() == Class::Opaque || found.contains(none));
    let unread = scan(text, Dialect::Unreadable, &certificates);
    assert!(unread.contains(Effects::OPAQUE));
    let _ = touched_parameters(text, Dialect::Utf8);
    for phrase in phrases(text) {
        if let Phrase::Prepare {
            statement,
            prepared,
            ..
        } = phrase
        {
            assert!(statement.start <= prepared.start && prepared.end == statement.end);
            assert!(text.get(statement).is_some());
        }
    }
    let _ = custom_names(text);
}
