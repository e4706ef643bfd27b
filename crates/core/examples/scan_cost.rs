//! The cost of the scanner, in instructions per text: `cargo run --release -p pgweir-core --example scan_cost` (it
//! runs itself under valgrind's callgrind for each text).

#![allow(clippy::print_stdout)] // its purpose

use std::{env, hint::black_box, process::Command};

use pgweir_core::session::{
    certificates::Certificates,
    scan::{VerdictCache, scan},
    sql::{Dialect, Effects},
};

/// How many times one run scans a text.
const TIMES: u64 = 1000;

fn texts() -> Vec<(&'static str, String)> {
    let rows: Vec<_> = (0..100)
        .map(|row| format!("({row}, 'title number {row}', 12.50, '2024-01-01 10:00:00+00')"))
        .collect();
    let fixed = [
        ("BEGIN", "BEGIN"),
        (
            "pgbench select",
            "SELECT abalance FROM pgbench_accounts WHERE aid = 1234567;",
        ),
        (
            "pgbench update",
            "UPDATE pgbench_accounts SET abalance = abalance + -4321 WHERE aid = 1234567;",
        ),
        (
            "pgbench insert",
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (12, 1, 1234567, -4321, CURRENT_TIMESTAMP);",
        ),
        (
            "Rails select",
            r#"SELECT "users".* FROM "users" WHERE "users"."email" = $1 AND "users"."deleted_at" IS NULL ORDER BY "users"."id" ASC LIMIT $2"#,
        ),
        (
            "Django insert",
            r#"INSERT INTO "library_book" ("title", "isbn", "author_id", "price", "published_on", "created_at", "updated_at") VALUES ('The Left Hand of Darkness', '9780441478125', 42, 12.50, '1969-03-01', '2024-01-01 10:00:00+00:00'::timestamptz, now()) RETURNING "library_book"."id""#,
        ),
        (
            "SQLAlchemy select",
            "SELECT users.id AS users_id, users.name AS users_name, users.fullname AS users_fullname, users.nickname AS users_nickname, orders_1.id AS orders_1_id \nFROM users LEFT OUTER JOIN orders AS orders_1 ON users.id = orders_1.user_id \nWHERE users.id = %(pk_1)s",
        ),
        (
            "update by columns",
            "UPDATE orders SET status = $1, total = $2, shipped_at = now(), updated_at = CURRENT_TIMESTAMP, note = coalesce($3, note) WHERE id = $4 AND status <> 'closed' AND lock_version = $5",
        ),
        (
            "with a comment",
            "SELECT count(*) FROM orders WHERE user_id = 42 AND status IN ('open', 'paid') /*action='index',controller='orders',framework='rails',traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01'*/",
        ),
        (
            "upsert",
            "INSERT INTO items (sku, name, qty) VALUES ($1, $2, $3) ON CONFLICT (sku) DO UPDATE SET name = EXCLUDED.name, qty = items.qty + EXCLUDED.qty RETURNING id, (xmax = 0) AS inserted",
        ),
        (
            "report of 4 joins",
            "SELECT c.id, c.name, r.name AS region, count(DISTINCT o.id) AS orders, sum(i.qty * i.price) AS revenue, avg(i.price) AS avg_price FROM customers c JOIN regions r ON r.id = c.region_id JOIN orders o ON o.customer_id = c.id AND o.created_at >= '2024-01-01' AND o.created_at < '2025-01-01' LEFT JOIN order_items i ON i.order_id = o.id LEFT JOIN products p ON p.id = i.product_id WHERE c.active AND p.category IN ('books', 'music', 'games') AND lower(c.email) LIKE '%@example.com' GROUP BY c.id, c.name, r.name HAVING sum(i.qty * i.price) > 1000 ORDER BY revenue DESC, c.name LIMIT 50 OFFSET 100",
        ),
        (
            "with a CTE",
            "WITH recent AS (SELECT user_id, max(created_at) AS last FROM orders WHERE created_at > now() - interval '30 days' GROUP BY user_id) SELECT u.id, u.name, r.last FROM users u JOIN recent r ON r.user_id = u.id ORDER BY r.last DESC LIMIT 20",
        ),
    ];
    let mut texts: Vec<_> = fixed.map(|(name, text)| (name, text.to_owned())).into();
    let insert = "INSERT INTO items (id, title, price, created_at) VALUES ";
    texts.push(("100-row insert", format!("{insert}{}", rows.join(", "))));
    texts.push(("a report", report()));
    texts.push(("a report with WITH", report_with()));
    texts.push((
        "a report, unusual",
        report().replacen("WHERE", "CROSS JOIN LATERAL (SELECT 1 AS one) l WHERE", 1),
    ));
    texts.push((
        "a string of 10 kB",
        format!(
            "INSERT INTO items (title) VALUES ('{}')",
            "some text, ".repeat(930)
        ),
    ));
    texts
}

const COLUMNS: &str = "a.aid AS account, a.abalance AS balance_of_account, b.bid AS branch, \
     b.bbalance AS balance_of_branch, t.tid AS teller, t.tbalance AS balance_of_teller, \
     CASE WHEN a.abalance < 0 THEN 'overdrawn' WHEN a.abalance = 0 THEN 'empty' \
     ELSE 'in credit' END AS state_of_account, \
     coalesce(nullif(a.filler, ''), 'nothing') AS filler_of_account, \
     a.abalance * 100 / greatest(b.bbalance, 1) AS part_of_branch";
const TABLES: &str = "pgbench_accounts a JOIN pgbench_branches b ON b.bid = a.bid \
     JOIN pgbench_tellers t ON t.bid = b.bid AND t.tid BETWEEN 1 AND 3 \
     LEFT JOIN pgbench_history h ON h.aid = a.aid AND h.tid = t.tid";
const FILTER: &str = "a.aid = 54321 AND (b.bbalance IS NOT NULL OR t.tbalance > -100000) \
     AND a.bid IN (SELECT bid FROM pgbench_branches WHERE bbalance > -1000000)";

fn report() -> String {
    format!(
        "SELECT {COLUMNS}, h.delta AS name FROM {TABLES} WHERE {FILTER} \
         ORDER BY t.tid, h.mtime DESC NULLS LAST LIMIT 10"
    )
}

fn report_with() -> String {
    format!(
        "WITH chosen AS (SELECT {COLUMNS} FROM {TABLES} WHERE {FILTER}), \
         summed AS (SELECT c.branch, sum(c.balance_of_account) AS total FROM chosen c GROUP BY c.branch) \
         SELECT c.account, c.state_of_account, s.total AS name FROM chosen c \
         JOIN summed s ON s.branch = c.branch ORDER BY c.account LIMIT 10"
    )
}

/// Returns as many different texts as a run needs, all of one length: each of them is `text` with another name.
fn with_new_names(text: &str) -> Vec<String> {
    let text = text.trim_end_matches(';');
    let named = |number| format!("{text} AS n{number:06}");
    (0..TIMES).map(named).collect()
}

fn certificates() -> Certificates {
    let tables = [
        "pgbench_accounts",
        "pgbench_history",
        "pgbench_branches",
        "pgbench_tellers",
        "users",
        "library_book",
        "orders",
        "items",
        "customers",
        "regions",
        "order_items",
        "products",
    ];
    let rows = tables.map(|table| [&b"r"[..], table.as_bytes(), b"", b""]);
    let utf8 = [&b"e"[..], b"utf8", b"", b""];
    Certificates::from_rows(1, rows.into_iter().chain([utf8]))
}

#[inline(never)]
fn scanned(text: &[u8], certificates: &Certificates) -> Effects {
    scan(text, Dialect::Utf8, certificates)
}

/// Scans a text that is in the cache.
#[inline(never)]
fn scanned_again(text: &[u8], cache: &mut VerdictCache, certificates: &Certificates) -> Effects {
    cache.scan(text, Dialect::Utf8, certificates)
}

/// Scans a text that is not in the cache.
#[inline(never)]
fn met_first(text: &[u8], cache: &mut VerdictCache, certificates: &Certificates) -> Effects {
    // Keeps the compiler from merging this function with `scanned_again`.
    black_box(TIMES);
    cache.scan(text, Dialect::Utf8, certificates)
}

/// Scans a text that is not in the cache. The cache keeps it.
#[inline(never)]
fn met_and_kept(text: &[u8], cache: &mut VerdictCache, certificates: &Certificates) -> Effects {
    black_box(2 * TIMES);
    cache.scan(text, Dialect::Utf8, certificates)
}

fn main() {
    let texts = texts();
    let certificates = certificates();
    if let Some(number) = env::args().nth(1) {
        let text = texts[number.parse::<usize>().expect("a number")]
            .1
            .as_bytes();
        let mut cache = VerdictCache::default();
        for _ in 0..TIMES {
            let _ = black_box(scanned(black_box(text), &certificates));
            let _ = black_box(scanned_again(black_box(text), &mut cache, &certificates));
        }
        for text in with_new_names(&texts[number.parse::<usize>().expect("a number")].1) {
            let text = black_box(text.as_bytes());
            let _ = black_box(met_first(text, &mut cache, &certificates));
            let mut empty = VerdictCache::default();
            let _ = black_box(met_and_kept(text, &mut empty, &certificates));
        }
        return;
    }
    println!(
        "{:<20} {:>6} {:>13} {:>9} {:>7} {:>7} {:>7}  verdict",
        "text", "bytes", "instructions", "per byte", "again", "first", "kept"
    );
    for (number, (name, text)) in texts.iter().enumerate() {
        let cost = instructions(number, "*scanned");
        let again = instructions(number, "*scanned_again*");
        let first = instructions(number, "*met_first*");
        let kept = instructions(number, "*met_and_kept*");
        let per_byte = cost as f64 / text.len() as f64;
        let verdict = scanned(text.as_bytes(), &certificates);
        println!(
            "{name:<20} {:>6} {cost:>13} {per_byte:>9.2} {again:>7} {first:>7} {kept:>7}  {verdict}",
            text.len()
        );
    }
}

/// Runs this program under callgrind for one text.
fn instructions(number: usize, function: &str) -> u64 {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            &format!("--toggle-collect={function}"),
        ])
        .arg(program)
        .arg(number.to_string())
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    collected
        .expect("callgrind counts")
        .trim()
        .parse::<u64>()
        .expect("a number")
        / TIMES
}
