use super::*;

fn text(sql: &str) -> String {
    Fingerprint::of(sql.as_bytes()).text.into()
}

#[test]
fn texts() {
    let check = |sql: &str, expect: &str| assert_eq!(text(sql), expect, "{sql}");
    check("SELECT 1", "SELECT ?");
    check(
        "  SELECT\n  a1,\t$1 -- why\n FROM t",
        "SELECT a1, $1 FROM t",
    );
    check("SELECT 'it''s', y=1.5e3", "SELECT ?, y=?");
    check(
        "select E'a\\'b', $$x'y$$, $q$ $$ $q$, x'1f'",
        "select ?, ?, ?, ?",
    );
    check("/* a /* b */ c */ SELECT \"A b\"", "SELECT \"A b\"");
    check(
        "CREATE TEMP TABLE t(n int); SELECT $1x",
        "CREATE TEMP TABLE t(n int); SELECT $1x",
    );
    check("SELECT 'open", "SELECT ? ...");
    check("SELECT $$open", "SELECT ? ...");
    check("SELECT U&'\\0061'", "SELECT ? ...");
    check("SELECT /* open", "SELECT ? ...");
    check("SELECT 1_000, 0x1F, 0b01", "SELECT ?, ?, ?");
    check("SELECT 'a'\n'b', 'c'", "SELECT ?, ?");
    check("", "");
}

#[test]
fn strings_whose_end_is_not_certain() {
    check_dialects("SELECT 'a\\', 'secret'", "SELECT ? ...", "SELECT ?, ?");
    // In some encodings, this backslash is a part of the character before it.
    assert_eq!(text("SELECT E'\u{8868}\\', 'secret'"), "SELECT ? ...");
    check_dialects("SELECT 'c:\\dir', a", "SELECT ?, a", "SELECT ?, a");
    check_dialects(
        "SELECT a IN ('\\\\', 'x'), b",
        "SELECT a IN (? ...",
        "SELECT a IN (?, ...), b",
    );
}

fn check_dialects(sql: &str, unreadable: &str, utf8: &str) {
    assert_eq!(text(sql), unreadable, "{sql}");
    let read = Fingerprint::read(sql.as_bytes(), Dialect::Utf8);
    assert_eq!(&*read.text, utf8, "{sql}");
    assert_eq!(
        Fingerprint::hash_of(sql.as_bytes(), Dialect::Utf8),
        read.hash
    );
}

#[test]
fn signs() {
    let check = |sql: &str, expect: &str| assert_eq!(text(sql), expect, "{sql}");
    check(
        "SELECT -1, +2, a - 3, a -4, (5)-6",
        "SELECT ?, ?, a - ?, a -?, (?)-?",
    );
    check("WHERE a = -1 AND b=-2", "WHERE a = ? AND b=?");
    check("SELECT $1 - 1, j->-1, - a", "SELECT $1 - ?, j->?, - a");
}

#[test]
fn lists_of_constants() {
    let check = |sql: &str, expect: &str| assert_eq!(text(sql), expect, "{sql}");
    check("SELECT a IN (1, 2, 3)", "SELECT a IN (?, ...)");
    check("SELECT a in ( 'x' , null,-3 )", "SELECT a in (?, ... )");
    check("SELECT a IN ($1, $2)", "SELECT a IN (?, ...)");
    check("SELECT a IN (1)", "SELECT a IN (?)");
    check("SELECT a IN (1, b)", "SELECT a IN (?, b)");
    check("SELECT a IN (SELECT 1, 2)", "SELECT a IN (SELECT ?, ?)");
    check(
        "SELECT ARRAY[1, 2], f(1, 2)",
        "SELECT ARRAY[?, ...], f(?, ?)",
    );
    check("SELECT a IN ('1'::uuid, '2'::uuid)", "SELECT a IN (?, ...)");
    check(
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, DEFAULT) RETURNING a",
        "INSERT INTO t VALUES (?, ?), ... RETURNING a",
    );
    check(
        "INSERT INTO t VALUES (1, now()), (2, now())",
        "INSERT INTO t VALUES (?, now()), (?, now())",
    );
    check(
        "INSERT INTO t VALUES ((1), 2), (3, 4)",
        "INSERT INTO t VALUES ((?), ?), ...",
    );
    let long = |rows: usize| format!("INSERT INTO t VALUES {}", vec!["(1, 'x')"; rows].join(", "));
    assert_eq!(text(&long(100)), "INSERT INTO t VALUES (?, ?), ...");
    let hash = |sql: &str| Fingerprint::of(sql.as_bytes()).hash;
    // The second text ends within a row, where it is no longer read.
    assert_eq!(hash(&long(7)), hash(&long(10_000)));
}

#[test]
fn values_that_are_no_literals() {
    let check = |sql: &str, expect: &str| assert_eq!(text(sql), expect, "{sql}");
    check(
        "SET app.tenant = secret, 'x'; SELECT 1",
        "SET app.tenant = ?; SELECT ?",
    );
    check(
        "set local search_path TO a, \"b\"",
        "set local search_path TO ?",
    );
    check("SET ROLE ann", "SET ROLE ann");
    check(
        "ALTER ROLE ann SET app.token TO secret",
        "ALTER ROLE ann SET app.token TO ?",
    );
    check(
        "ALTER TABLE t ALTER c SET DEFAULT a",
        "ALTER TABLE t ALTER c SET DEFAULT a",
    );
    check("UPDATE t SET a = b", "UPDATE t SET a = b");
    check(
        "SAVEPOINT s1; ROLLBACK TO SAVEPOINT s1",
        "SAVEPOINT ?; ROLLBACK TO SAVEPOINT ?",
    );
    check("RELEASE s1", "RELEASE ?");
    check("ROLLBACK", "ROLLBACK");
    check(
        "DEALLOCATE PREPARE p1; DEALLOCATE ALL",
        "DEALLOCATE PREPARE ?; DEALLOCATE ALL",
    );
    check(
        "DECLARE \"c 1\" CURSOR FOR SELECT a",
        "DECLARE ? CURSOR FOR SELECT a",
    );
    check("FETCH FORWARD 100 FROM \"c 1\"", "FETCH FORWARD ? FROM ?");
    check("CLOSE c1", "CLOSE ?");
}

#[test]
fn texts_with_the_same_fingerprint() {
    let hash = |sql: &str| Fingerprint::of(sql.as_bytes()).hash;
    assert_eq!(hash("SELECT 1,  'a'"), hash("select 22,/* b */ 'b c'"));
    assert_eq!(hash("SELECT a=1"), hash("SELECT A = -1"));
    assert_eq!(hash("SELECT a IN (1,2)"), hash("SELECT a IN (1,2,3)"));
    assert_ne!(hash("SELECT a"), hash("SELECT b"));
    assert_ne!(hash("SELECT a"), hash("SELECT \"A\""));
    let long = |name: &str| hash(&format!("SELECT {} {name}", "x".repeat(TEXT_MAX)));
    assert_ne!(long("a"), long("b"), "beyond what is kept");
    let cut = text(&format!("SELECT {}\u{e4}", "x".repeat(TEXT_MAX - 8)));
    assert_eq!(cut.len(), TEXT_MAX - 1, "the text ends before a character");
}

/// Random texts of all kinds of literals, whose contents never appear.
#[test]
fn no_value_is_shown() {
    let mut seed = 7_u64;
    let mut below = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % most
    };
    let pieces = [
        "'SECRET'",
        "$$SECRET$$",
        "E'\\'SECRET'",
        "e'SECRET'",
        "'it''s SECRET'",
        "'\\'",
        "--'\n",
        "-- SECRET\n",
        "/*'*/",
        "/* SECRET /* SECRET */ */",
        "\"'\"",
        "a",
        "$q$SECRET$q$",
        "$q$ $$ SECRET $q$",
        "$1",
        "''",
        "n'SECRET'",
        "U&'SECRET'",
        "B'4711'",
        "X'4711'",
        "4711",
        "-4711",
        "4711.4711",
        "47_11",
        "4711e4711",
        "1e-4711",
        "0x4711",
        ".4711",
        "IN (",
        "ARRAY[",
        "VALUES (",
        "), (",
        ",",
        ")",
        "]",
        ";",
        "SET a = ",
        "::text",
        "'SECRET'\n'SECRET'",
    ];
    let open = [
        "",
        "'SECRET",
        "$$SECRET",
        "/* SECRET",
        "E'SECRET\\",
        "$q$SECRET$$",
        "IN ('SECRET",
    ];
    for round in 0..60_000 {
        // The pieces are separated, so that PostgreSQL sees the same strings.
        let count = below(10);
        let mut sql: Vec<_> = (0..count).map(|_| pieces[below(pieces.len())]).collect();
        sql.push(open[below(open.len())]);
        let sql = sql.join([" ", "\n"][round % 2]);
        for dialect in [Dialect::Unreadable, Dialect::Utf8] {
            let shown = Fingerprint::read(sql.as_bytes(), dialect);
            let has = |value: &str| shown.text.contains(value);
            let leaks = has("SECRET") || has("4711") || has("47_11");
            assert!(!leaks, "{sql} is shown as {}", shown.text);
            let hash = Fingerprint::hash_of(sql.as_bytes(), dialect);
            assert_eq!(hash, shown.hash);
        }
    }
}

#[test]
fn texts_that_are_not_shown_to_their_end() {
    let long = "b".repeat(600);
    for (sql, shows_all) in [
        ("SELECT a", true),
        ("SELECT 'a\\'; COMMIT; --'", false),
        ("SELECT 'open", false),
        ("INSERT INTO t VALUES (1), (2), (3)", true),
        (&format!("SELECT a{long}"), false),
        (
            &format!("SELECT 1{}; COMMIT", " ".repeat(Fingerprint::READ_MAX)),
            false,
        ),
    ] {
        assert_eq!(Fingerprint::shows_all(&text(sql)), shows_all, "{sql}");
    }
}
