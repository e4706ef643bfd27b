//! What the scanner costs, in instructions a text: `cargo run --release -p pgweir-core --example
//! scan_cost` (it runs itself under valgrind's callgrind for each text).

#![allow(clippy::print_stdout)] // its purpose

use std::{env, hint::black_box, process::Command};

use pgweir_core::session::{
    certificates::Certificates,
    scan::{Dialect, Suspicion, VerdictCache, scan},
};

/// So often is a text scanned in one run.
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
    texts.push((
        "a string of 10 kB",
        format!(
            "INSERT INTO items (title) VALUES ('{}')",
            "some text, ".repeat(930)
        ),
    ));
    texts
}

fn certificates() -> Certificates {
    let tables = [
        "pgbench_accounts",
        "pgbench_history",
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
    Certificates::from_rows(1, rows)
}

#[inline(never)]
fn scanned(text: &[u8], certificates: &Certificates) -> Suspicion {
    scan(text, Dialect::Utf8, certificates)
}

/// A text that was said before.
#[inline(never)]
fn scanned_again(text: &[u8], cache: &mut VerdictCache, certificates: &Certificates) -> Suspicion {
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
        return;
    }
    println!(
        "{:<20} {:>6} {:>13} {:>9} {:>7}  verdict",
        "text", "bytes", "instructions", "per byte", "again"
    );
    for (number, (name, text)) in texts.iter().enumerate() {
        let cost = instructions(number, "*scanned");
        let again = instructions(number, "*scanned_again*");
        let per_byte = cost as f64 / text.len() as f64;
        let verdict = scanned(text.as_bytes(), &certificates);
        println!(
            "{name:<20} {:>6} {cost:>13} {per_byte:>9.2} {again:>7}  {verdict}",
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
