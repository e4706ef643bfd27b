//! Tests of the scanner: texts and the effects that it must report for them.

use super::scan;
use crate::session::{
    certificates::Certificates,
    sql::{Dialect, Effects},
};

/// Returns the certificates of a database with some certified names, and some uncertified ones.
pub(super) fn database() -> Certificates {
    let clean = [
        "users",
        "books",
        "authors",
        "orders",
        "order_items",
        "products",
        "accounts",
        "pgbench_accounts",
        "pgbench_history",
        "gr\u{fc}n",
        "audit",
    ];
    let rows = [
        ["f", "clean_function", "", ""],
        ["f", "hidden", "SETTING", "SETTING"],
        ["f", "opaque_function", "OPAQUE", "OPAQUE"],
        ["r", "serials", "", "SEQUENCE"],
        ["r", "triggered", "", "OPAQUE"],
        ["r", "hidden_view", "OPAQUE", "OPAQUE"],
        ["r", "seeded_view", "SEED", "SEED"],
        ["f", "Blank name", "OPAQUE", ""],
        ["w", "dirty_type", "OPAQUE", ""],
        ["e", "utf8", "", ""],
    ];
    let clean = clean.map(|name| ["r", name, "", ""]);
    let rows: Vec<_> = rows
        .iter()
        .chain(&clean)
        .map(|row| row.map(str::as_bytes))
        .collect();
    Certificates::from_rows(1, rows)
}

/// Checks a table with one text a line; the expected effects stand before `|`.
#[track_caller]
fn check_all(table: &str) {
    let certificates = database();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let (expect, text) = line.split_once(" | ").unwrap();
        let text = text
            .replace("\\n", "\n")
            .replace("\\t", "\t")
            .replace("\\r", "\r");
        let found = scan(text.as_bytes(), Dialect::Utf8, &certificates).to_string();
        if found != expect.trim() {
            wrong.push(format!(
                "{text}\n    found {found}, expected {}",
                expect.trim()
            ));
        }
        count += 1;
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn texts_of_applications_have_no_effects() {
    check_all(include_str!("verdicts/clean.txt"));
}

#[test]
fn texts_that_change_the_session() {
    check_all(include_str!("verdicts/changing.txt"));
}

#[test]
fn texts_that_hide_their_effects() {
    check_all(include_str!("verdicts/hostile.txt"));
}

#[test]
fn settings_under_which_texts_are_opaque() {
    let scan_as = |dialect| scan(b"select 1", dialect, &Certificates::none());
    assert_eq!(scan_as(Dialect::of(b"on", b"UTF8")), Effects::NONE);
    assert_eq!(scan_as(Dialect::of(b"on", b"LATIN1")), Effects::NONE);
    assert_eq!(scan_as(Dialect::of(b"off", b"UTF8")), Effects::OPAQUE);
    assert_eq!(scan_as(Dialect::of(b"on", b"SJIS")), Effects::OPAQUE);
    assert_eq!(scan_as(Dialect::of(b"on", b"NEW")), Effects::OPAQUE);
    let ddl = scan(b"alter table a", Dialect::Unreadable, &Certificates::none());
    assert_eq!(ddl, Effects::OPAQUE | Effects::TEMP);
    let named = |dialect| scan("select * from gr\u{fc}n".as_bytes(), dialect, &database());
    assert_eq!(named(Dialect::Utf8), Effects::NONE);
    assert_eq!(named(Dialect::Ascii), Effects::OPAQUE);
}

#[test]
fn without_a_catalog() {
    let check = |text: &str, expect| {
        let found = scan(text.as_bytes(), Dialect::Utf8, &Certificates::none());
        assert_eq!(found, expect, "{text}");
    };
    check("select now(), lower('A')", Effects::NONE);
    check("select * from pg_catalog.pg_class", Effects::NONE);
    // A name that the catalog does not contain is a new name, or no name at all.
    check("select * from users", Effects::NONE);
    check("select clean_function()", Effects::NONE);
    let found = scan(b"select 1", Dialect::Utf8, &Certificates::unread());
    assert_eq!(found, Effects::OPAQUE | Effects::UNREAD);
}

#[test]
fn a_database_in_which_every_text_is_opaque() {
    let rows = [[&b"e"[..], b"", b"OPAQUE", b""]];
    let certificates = Certificates::from_rows(1, rows);
    assert_eq!(
        scan(b"select 1", Dialect::Utf8, &certificates),
        Effects::OPAQUE
    );
    let unknown = [[&b"?"[..], b"", b"", b""]];
    let certificates = Certificates::from_rows(1, unknown);
    assert_eq!(
        scan(b"select 1", Dialect::Utf8, &certificates),
        Effects::OPAQUE
    );
}

/// Pieces of which random texts are made, some of them twice so that they occur more often.
const PIECES: &str = include_str!("verdicts/pieces.txt");

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[test]
fn words_of_a_database() {
    let rows = [[&b"w"[..], b"dirty_domain", b"SETTING", b""]];
    let certificates = Certificates::from_rows(1, rows);
    let check = |text: &str, expect| {
        let found = scan(text.as_bytes(), Dialect::Utf8, &certificates);
        assert_eq!(found, expect, "{text}");
    };
    check("select 1 = 2", Effects::NONE);
    check("select 'dirty_domain'", Effects::NONE);
    check("select 'x'::public.Dirty_Domain", Effects::SETTING);
    check("select cast('x' as \"dirty_domain\")", Effects::SETTING);
}

/// Literals of all spellings, and texts that look like literals, or end one.
const LITERALS: [&str; 51] = [
    "0",
    "7",
    "42",
    "1234567",
    "007",
    "1.5",
    "12.50",
    "0.0",
    ".5",
    "5.",
    "1..2",
    "1_000",
    "1__0",
    "0x1F",
    "0b01",
    "1e5",
    "1.5e-3",
    "1e",
    "'a'",
    "''",
    "'it''s'",
    "''''",
    "'--'",
    "'/*'",
    "'*/'",
    "'$$'",
    "'\\'",
    "'a'\n'b'",
    "'\n'",
    "'gr\u{fc}n'",
    "'set_config('",
    "E'a\\'b'",
    "e'a''b'",
    "E'a'\n'b'",
    "U&'d\\0061'",
    "b'01'",
    "X'ff'",
    "N'a'",
    "$$a'b$$",
    "$t$ ' $$ $t$",
    "$1",
    "'",
    "/* 1 */",
    "/***/",
    "/*/ x */",
    "/**/",
    "/* /* */ */",
    "/*",
    "*/",
    "/* ' */",
    "-- '\n",
];

/// A text that fits the template of another has tokens of the same kinds, and the same effects. The verdicts of the
/// cache are the same as without a cache, whatever was scanned before.
#[test]
fn other_literals() {
    use super::template::Template;
    use crate::session::sql::{Kind, Lexer};

    let certificates = database();
    let pieces: Vec<_> = PIECES
        .lines()
        .map(|line| line.replace("\\n", "\n"))
        .collect();
    let tokens = |text: &str| {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut found = Vec::new();
        while !matches!(found.last(), Some((Kind::End | Kind::Broken, _))) {
            let token = lexer.next();
            let bytes: &[u8] = match token.kind {
                Kind::Text | Kind::Number => b"",
                _ => lexer.bytes(token),
            };
            found.push((token.kind, bytes.to_vec()));
        }
        found
    };
    let mut random = Random(0x1173);
    let mut cache = super::VerdictCache::default();
    let (mut fitting, mut open) = (0, 0);
    for _ in 0..15_000 {
        let mut one = [
            "select ",
            "insert into users values (",
            "update users set a = ",
            "with ",
            "",
        ][random.below(5)]
        .to_owned();
        let mut other = one.clone();
        for _ in 0..random.below(8) {
            if random.below(2) == 0 {
                let piece = &pieces[random.below(pieces.len())];
                one.push_str(piece);
                other.push_str(piece);
            } else {
                let number = random.below(LITERALS.len());
                let next = [
                    number,
                    (number ^ 1).min(LITERALS.len() - 1),
                    random.below(LITERALS.len()),
                ][random.below(3)];
                one.push_str(LITERALS[number]);
                other.push_str(LITERALS[next]);
            }
            let between = [" ", ", ", "", "/**/", "\n", ")", "::text", "-"][random.below(8)];
            one.push_str(between);
            other.push_str(between);
        }
        let template = Template::of(one.as_bytes());
        assert!(template.fits(one.as_bytes()), "{one}");
        if template.fits(other.as_bytes()) {
            fitting += usize::from(one != other);
            assert_eq!(tokens(&one), tokens(&other), "{one}\n{other}");
            if !super::look(one.as_bytes(), Dialect::Utf8, &certificates, &mut ()).by_literals {
                let found =
                    [&one, &other].map(|text| scan(text.as_bytes(), Dialect::Utf8, &certificates));
                assert_eq!(found[0], found[1], "{one}\n{other}");
                open += usize::from(one != other);
            }
        }
        for text in [&one, &other, &one] {
            let expect = scan(text.as_bytes(), Dialect::Utf8, &certificates);
            let found = cache.scan(text.as_bytes(), Dialect::Utf8, &certificates);
            assert_eq!(found, expect, "{text}");
        }
    }
    assert!(fitting > 1000 && open > 900, "{fitting} {open}");
}

/// The reader of names skips nothing that ends a statement, opens or closes a parenthesis, or is a name, whatever
/// stands around it.
#[test]
fn names_and_what_is_passed_over() {
    use crate::session::sql::{Kind, Lexer};
    let pieces: Vec<_> = PIECES
        .lines()
        .map(|line| line.replace("\\n", "\n"))
        .collect();
    let ends = [";", "(", ")"].map(str::to_owned).to_vec();
    let mut random = Random(0x7a3e);
    for _ in 0..60_000 {
        let mut text = String::new();
        for _ in 0..random.below(12) {
            let from = [&pieces, &ends][random.below(2)];
            text.push_str(&from[random.below(from.len())]);
            text.push_str(LITERALS[random.below(LITERALS.len())]);
            text.push_str(
                [" ", "", "/**/", " /* ; */", "--\n", "-- x\r", "\n", "-"][random.below(8)],
            );
        }
        let (mut all, mut names) = (Lexer::new(text.as_bytes()), Lexer::new(text.as_bytes()));
        loop {
            let (mut token, mut passed) = (all.next(), false);
            while !token.kind.is_name_or_bound() {
                (token, passed) = (all.next(), true);
            }
            assert_eq!(names.next_name(&mut ()), (token, passed), "{text}");
            if matches!(token.kind, Kind::Broken | Kind::End) {
                break;
            }
        }
    }
}
