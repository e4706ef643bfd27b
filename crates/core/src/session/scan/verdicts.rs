//! Texts and what they must be suspected of.

use super::{Dialect, Suspicion, scan};
use crate::session::certificates::Certificates;

/// A database with some certified names, and some that are not clean.
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

#[track_caller]
fn check(text: &str, expect: &str) {
    let found = scan(text.as_bytes(), Dialect::Utf8, &database());
    assert_eq!(found.to_string(), expect, "{text}");
}

/// One text a line; `|` stands before what it must be suspected of.
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
fn what_applications_say() {
    check_all(include_str!("verdicts/clean.txt"));
}

#[test]
fn what_leaves_a_trace() {
    check_all(include_str!("verdicts/suspect.txt"));
}

#[test]
fn what_hides() {
    check_all(include_str!("verdicts/hostile.txt"));
}

#[test]
fn what_can_t_be_read() {
    let scan_as = |dialect| scan(b"select 1", dialect, &Certificates::none());
    assert_eq!(scan_as(Dialect::of(b"on", b"UTF8")), Suspicion::NONE);
    assert_eq!(scan_as(Dialect::of(b"on", b"LATIN1")), Suspicion::NONE);
    assert_eq!(scan_as(Dialect::of(b"off", b"UTF8")), Suspicion::OPAQUE);
    assert_eq!(scan_as(Dialect::of(b"on", b"SJIS")), Suspicion::OPAQUE);
    let named = |dialect| scan("select * from gr\u{fc}n".as_bytes(), dialect, &database());
    assert_eq!(named(Dialect::Utf8), Suspicion::NONE);
    assert_eq!(named(Dialect::Ascii), Suspicion::OPAQUE);
}

#[test]
fn without_a_catalog() {
    let check = |text: &str, expect| {
        let found = scan(text.as_bytes(), Dialect::Utf8, &Certificates::none());
        assert_eq!(found, expect, "{text}");
    };
    check("select now(), lower('A')", Suspicion::NONE);
    check("select * from pg_catalog.pg_class", Suspicion::NONE);
    check("select * from users", Suspicion::OPAQUE);
    check("select clean_function()", Suspicion::OPAQUE);
}

#[test]
fn a_database_where_anything_may_happen() {
    let rows = [[&b"e"[..], b"", b"OPAQUE", b""]];
    let certificates = Certificates::from_rows(1, rows);
    assert_eq!(
        scan(b"select 1", Dialect::Utf8, &certificates),
        Suspicion::OPAQUE
    );
    let unknown = [[&b"?"[..], b"", b"", b""]];
    let certificates = Certificates::from_rows(1, unknown);
    assert_eq!(
        scan(b"select 1", Dialect::Utf8, &certificates),
        Suspicion::OPAQUE
    );
}

/// Pieces that random texts are made of, some of them twice for their frequency.
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

/// Where the quick reading says anything, the careful one says the same.
#[test]
fn quick_or_careful() {
    let certificates = database();
    let pieces: Vec<_> = PIECES
        .lines()
        .map(|line| line.replace("\\n", "\n"))
        .collect();
    let known: String = [
        include_str!("verdicts/clean.txt"),
        include_str!("verdicts/suspect.txt"),
        include_str!("verdicts/hostile.txt"),
    ]
    .concat();
    let known: Vec<_> = known
        .lines()
        .filter_map(|line| line.split_once(" | "))
        .collect();
    let mut random = Random(0x5eed);
    let mut quick_ones = 0;
    for round in 0..60_000 {
        let mut text = String::new();
        if round % 2 == 0 {
            text.push_str(["select ", "insert into ", "update ", "with ", ""][random.below(5)]);
        } else {
            text.push_str(&known[random.below(known.len())].1.replace("\\n", "\n"));
            let cut = random.below(text.len() + 1);
            text.truncate(
                (0..=cut)
                    .rev()
                    .find(|&at| text.is_char_boundary(at))
                    .unwrap(),
            );
        }
        for _ in 0..random.below(30) {
            text.push_str(&pieces[random.below(pieces.len())]);
            text.push_str([" ", " ", "", "/**/", "\n"][random.below(5)]);
        }
        quick_ones += usize::from(is_read_quickly(&text, &certificates));
    }
    assert!(quick_ones > 500, "{quick_ones} texts were read quickly");
}

/// Does the quick reading understand this text? Then it says what the careful one says.
fn is_read_quickly(text: &str, certificates: &Certificates) -> bool {
    let quick = super::quick::read(text.as_bytes(), true, certificates);
    let careful = super::careful::read(text.as_bytes(), true, certificates);
    assert!(
        quick.is_none_or(|quick| quick == careful),
        "{text}\n{quick:?} {careful}"
    );
    quick.is_some()
}

/// Relations, and common table expressions.
const CTE_SOURCES: &[&str] = &[
    "a",
    "a",
    "a",
    "users",
    "users",
    "users",
    "users",
    "b",
    "\"C\"",
    "public.a",
    "(select * from a) s",
    "nowhere",
];

/// The same of statements that begin with common table expressions.
#[test]
fn quick_or_careful_with_ctes() {
    // Of each, one.
    const PARTS: [&[&str]; 6] = [
        &["with ", "WITH recursive\n", "select 1; with ", "with/**/"],
        &[
            "a",
            "a",
            "b",
            "\"C\"",
            "a (x, \"y\")",
            "b(into)",
            "recursive",
        ],
        &[
            " as (",
            " as (",
            " AS(",
            "\nas ( ",
            " as materialized (",
            " as/**/not materialized--\n(",
            "(",
        ],
        &[
            "select 1 from ",
            "SELECT * FROM users, ",
            "delete from ",
            "delete from users using ",
            "values(1), (2) union select 1 from ",
            "update users set x = 1, y = 2 from ",
            "insert into serials (a, b) select * from ",
        ],
        &[
            ")",
            ")",
            ")",
            ") where x in (select 1 from a)",
            "",
            ") --\n",
        ],
        &[
            " select * from ",
            "select 1 from users join ",
            " insert into ",
            " delete from ",
            "",
            ";",
        ],
    ];
    let certificates = database();
    let mut random = Random(0x5eed);
    let mut quick_ones = 0;
    for _ in 0..40_000 {
        let mut one_of = |words: &[&'static str]| words[random.below(words.len())];
        let mut text = one_of(PARTS[0]).to_owned();
        loop {
            for part in &PARTS[1..4] {
                text += one_of(part);
            }
            text += one_of(CTE_SOURCES);
            text += one_of(PARTS[4]);
            match one_of(&[", ", ",", "", ""]) {
                "" => break,
                comma => text += comma,
            }
        }
        text += one_of(PARTS[5]);
        text += one_of(CTE_SOURCES);
        text += one_of(&[
            "",
            " , b",
            " where x in (select 1 from a)",
            "; select 1 from a",
        ]);
        quick_ones += usize::from(is_read_quickly(&text, &certificates));
    }
    assert!(quick_ones > 100, "{quick_ones}");
}

/// The same of lists of relations, of what stands in their places and between, and of what ends them.
#[test]
fn quick_or_careful_in_lists() {
    const BEGINNINGS: &[&str] = &[
        "select 1 from ",
        "(select x, y from ",
        "select lower(x), E'\\'' from ",
        "select extract(year from x), 1 from ",
        "delete from users using ",
        "update users set x = 1, y = 2 from ",
        "insert into users (a, b) select a, b from ",
        "select x is not distinct from y, z from ",
        "select distinct from ",
    ];
    const SOURCES: &[&str] = &[
        "users",
        "users",
        "books b",
        "public.books as b",
        "only users",
        "lateral (select 1, 2 from books) l",
        "lateral lower('x') as l (a, hidden_view)",
        "(select x, y from users) as s(a, b)",
        "(values (1, 2), (3, 4)) v (x, y)",
        "unnest(x, y) with ordinality o(a, b)",
        "unnest(x) unknown_function(a)",
        "(users join books on true)",
        "hidden_view",
        "seeded_view",
        "\"users\" \"u\"",
        "only only users",
        "for",
    ];
    const BETWEEN: &[&str] = &[
        ", ",
        ", ",
        ",",
        "/* , */, -- hidden_view,\n",
        " join ",
        " cross join--\n",
        " join books using (id), ",
        " where e'x' <> E'\\\\', y in (1, 2), ",
        " group by ",
        " for update of ",
        " for no key update of ",
        " for share of ",
        " on conflict (a) do update set a = 1, ",
        " union select 1 from ",
        ") union (select 1 from ",
        " intersect select 1, ",
        " fetch first 1 rows only, ",
        " returning x, ",
        " update, ",
        " do, ",
        " is distinct from ",
        "; select 1 from ",
    ];
    let certificates = database();
    let mut random = Random(0x115);
    let mut quick_ones = 0;
    for _ in 0..60_000 {
        let mut one_of = |words: &[&'static str]| words[random.below(words.len())];
        let mut text = one_of(BEGINNINGS).to_owned() + one_of(SOURCES);
        while !one_of(&["", "x", "x"]).is_empty() {
            text += one_of(BETWEEN);
            text += one_of(SOURCES);
        }
        text += one_of(&["", "", ")", " limit 1", " -- end", ";;", " /* open"]);
        quick_ones += usize::from(is_read_quickly(&text, &certificates));
    }
    assert!(quick_ones > 10_000, "{quick_ones}");
}

/// What applications say most is read quickly.
#[test]
fn quick_is_not_rare() {
    let certificates = database();
    let clean: Vec<_> = include_str!("verdicts/clean.txt").lines().collect();
    let quick = clean.iter().filter(|line| {
        let text = line.strip_prefix("NONE | ").unwrap();
        super::quick::read(text.as_bytes(), true, &certificates).is_some()
    });
    let (quick, all) = (quick.count(), clean.len());
    assert!(quick * 2 > all, "{quick} of {all}");
}

#[test]
fn words_of_a_database() {
    let rows = [[&b"w"[..], b"dirty_domain", b"SETTING", b""]];
    let certificates = Certificates::from_rows(1, rows);
    let check = |text: &str, expect| {
        let found = scan(text.as_bytes(), Dialect::Utf8, &certificates);
        assert_eq!(found, expect, "{text}");
    };
    check("select 1 = 2", Suspicion::NONE);
    check("select 'dirty_domain'", Suspicion::NONE);
    check("select 'x'::public.Dirty_Domain", Suspicion::SETTING);
    check("select cast('x' as \"dirty_domain\")", Suspicion::SETTING);
}

#[test]
fn depth_has_a_bound() {
    let nested = |depth: usize| format!("select {}1{}", "(".repeat(depth), ")".repeat(depth));
    check("", "NONE");
    check(&nested(50), "NONE");
    check(&nested(100), "OPAQUE");
}

/// Literals of all spellings, and what looks like some, or ends one.
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

/// Where a text fits the template of another, its tokens are of the same kinds, and it is suspected of
/// the same; and whatever was said before, a verdict is what it is without a memory.
#[test]
fn other_literals() {
    use super::{
        careful,
        lexer::{Kind, Lexer},
        template::Template,
    };
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
            if !super::look(one.as_bytes(), Dialect::Utf8, &certificates).by_literals {
                let found =
                    [&one, &other].map(|text| careful::read(text.as_bytes(), true, &certificates));
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
