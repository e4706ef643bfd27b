//! Frames, by ratatui's test backend.

use std::time::Duration;

use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};

use super::{
    app::{App, KeyAction},
    plain,
    sample::Sample,
    screen::draw,
    table::{Table, printable},
    views::View,
};

const SECOND: u64 = 1_000_000;
/// 2026-11-25 12:00:00 UTC
const NOON: u64 = 1_795_608_000 * SECOND;

/// A table: the columns separated by blanks, then rows with their values separated by `|`; `-` is NULL.
fn table(columns: &str, rows: &[&str]) -> Table {
    let value = |text: &str| (text != "-").then(|| printable(text));
    Table {
        columns: columns.split(' ').map(str::to_owned).collect(),
        rows: rows
            .iter()
            .map(|row| row.split('|').map(value).collect())
            .collect(),
    }
}

const POOLS: &str = "database user cl_active cl_waiting sv_active sv_idle sv_used maxwait maxwait_us pool_mode wait_reason last_error";

fn sample(at: u64, transactions: u64, pools: &[&str]) -> Sample {
    let mut sample = Sample {
        at: NOON + at * SECOND,
        version: "pgweir 1".to_owned(),
        ..Sample::default()
    };
    let mut set = |name, table| drop(sample.tables.insert(name, table));
    set("STATE", table("key value", &["active|yes", "paused|no"]));
    set("POOLS", table(POOLS, pools));
    // All transactions took between 512 and 1024 microseconds.
    let counts = |number: u64| {
        let counts = (0..21).map(|bucket| if bucket < 4 { 0 } else { number });
        counts
            .map(|count| count.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let times = format!(
        "app|ann|{transactions}|{}|{}",
        counts(transactions),
        counts(0)
    );
    set(
        "TIMES",
        table(
            "database user total_xact_count xact_counts wait_counts",
            &[&times],
        ),
    );
    set(
        "PINS",
        table("database user client_id reason statement", &[]),
    );
    sample
}

const EVENTS: &str = "id time last_time count severity kind database user event sources";
const QUIET: &str = "app|ann|3|0|1|2|0|0|0|transaction|-|-";
const BUSY: &str = "app|ann|3|2|3|0|0|4|500000|transaction|pool_size|-";
const DOWN: &str = "orders|bob|0|1|0|0|0|9|0|transaction|server_login_retry|connection refused";

fn app(samples: Vec<Sample>) -> App {
    let mut app = App::new("127.0.0.1:6432".to_owned(), Duration::from_secs(2));
    for sample in samples {
        app.add(sample);
    }
    app
}

fn quiet() -> App {
    app(vec![sample(0, 100, &[QUIET]), sample(2, 300, &[QUIET])])
}

fn busy() -> App {
    let mut last = sample(2, 300, &[QUIET, BUSY, DOWN]);
    last.tables.insert("POOLS", table(POOLS, &[BUSY, DOWN]));
    let columns = "database user client_id wait_us limit holders holder_client_id holder_application_name holder_us holder_state statement advice";
    let waiter = "app|ann|7|4500000|pool_size|3|5|billing|60000000|idle in transaction|-|end the idle transaction of client 5 \
                  (KILL_CLIENT 5), and set idle_transaction_timeout";
    last.tables.insert("WAITERS", table(columns, &[waiter]));
    let events = [
        "1|2026-11-25 11:00:00 UTC|2026-11-25 11:00:00 UTC|1|error|server_lost|app|ann|old news|-",
        "2|2026-11-25 11:59:00 UTC|2026-11-25 12:00:01 UTC|40|warning|login_failed|app|ann|denied, SQLSTATE 28P01|\
         10.0.0.7 (application \"import\"): 40",
    ];
    last.tables.insert("EVENTS", table(EVENTS, &events));
    app(vec![sample(0, 100, &[QUIET]), last])
}

fn frame(app: &App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(app, frame)).expect("drawn");
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let symbols: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    let lines = symbols.chunks(width);
    lines
        .map(|line| line.concat().trim_end().to_owned())
        .collect()
}

fn press(app: &mut App, keys: &str) -> KeyAction {
    let mut order = KeyAction::Nothing;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            other => KeyCode::Char(other),
        };
        order = app.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    order
}

#[test]
fn a_quiet_pool() {
    let lines = text(&frame(&quiet(), 150, 12));
    assert_eq!(
        lines[..7],
        [
            "pgweir top  127.0.0.1:6432  pgweir 1  every 2 s  active",
            " 1 Pools  2 Waiters  3 Pins  4 Hosts  5 Events  6 Statements  7 Fleet",
            "3 clients, 0 waiting; 1 server in use, 2 idle; 0 pinned; 100 tx/s  █",
            "Pools (1)",
            "database / user  waiting  longest  clients  in use  idle  pinned  tx/s  tx/s lately  wait p50 p95 p99  \
             transaction p50 p95 p99  waits for  mode",
            "app / ann              0        -        3       1     2       0   100   █                          -   \
             768 us  998 us  1.0 ms  -          transaction",
            "",
        ]
    );
    assert!(lines[11].starts_with("1-7 view"), "{}", lines[11]);
}

#[test]
fn holders_that_are_alike_are_counted() {
    let mut app = busy();
    let columns = "database user wait_us limit holders holder_client_id holder_user holder_application_name holder_us holder_state \
                   statement advice holders_alike";
    let mut sentence_for = |application: &str| {
        let waiter = format!(
            "app|ann|4500000|pool_size|10|5|ann|{application}|60000000|idle in transaction|UPDATE stock|-|9"
        );
        let mut last = sample(4, 300, &[QUIET, BUSY]);
        last.tables.insert("POOLS", table(POOLS, &[BUSY]));
        last.tables.insert("WAITERS", table(columns, &[&waiter]));
        app.add(last);
        text(&frame(&app, 200, 30)).join(" ")
    };
    let named = sentence_for("basket");
    let held = "(idle in transaction), one for 1 min 0 s, by UPDATE stock";
    let expected = format!("9 of 10 servers are held by application \"basket\" {held}");
    assert!(named.contains(&expected), "{named}");
    let unnamed = sentence_for("-");
    assert!(
        unnamed.contains(&format!("9 of 10 servers are held by user ann {held}")),
        "{unnamed}"
    );
}

#[test]
fn problems_come_first() {
    let lines = text(&frame(&busy(), 100, 30)).join("\n");
    let squeezed = lines.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "! orders / bob: no login to the server: connection refused; 1 client waits, the longest for 9.0 s. What helps: repair the server",
        "! app / ann: 2 clients wait, the longest for 4.5 s (pool_size); of 3 holders client 5 (application \"billing\", idle in transaction) has had \
         its server for longest: 1 min 0 s. What helps: end the idle transaction of client 5",
        "! 40 failed logins of clients to app, as user ann, since 11:59:00 UTC, the latest at 12:00:01: wrong password or unknown \
         user. They come from 10.0.0.7 (application \"import\"): 40. What helps: correct the user and the password",
    ] {
        assert!(squeezed.contains(expected), "{expected}\n{lines}");
    }
    assert!(!lines.contains("old news"), "{lines}");
    let wide = text(&frame(&quiet(), 150, 12)).join("\n");
    assert!(!wide.contains('!'), "{wide}");
}

#[test]
fn a_dead_host_is_one_sentence() {
    let other = "app|ann|0|3|0|0|0|4|500000|transaction|connecting|connection refused";
    let apart = "more|eve|0|0|0|0|0|0|0|transaction|-|no such role";
    let mut last = sample(2, 300, &[DOWN, other, apart]);
    let lost = "1|2026-11-25 11:59:58 UTC|2026-11-25 11:59:58 UTC|5|error|server_lost|app|ann|server conn crashed?|-";
    last.tables.insert("EVENTS", table(EVENTS, &[lost]));
    let hosts = [
        "10.0.0.9:5432|app, orders|down",
        "10.0.0.8:5432|app, more|up",
    ];
    last.tables
        .insert("HOSTS", table("host databases state", &hosts));
    let page = plain::page(&app(vec![last]), Some(View::Pools), None);
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with('!')).collect();
    let helps = "What helps: repair the server or the network; pgweir connects again by itself";
    assert_eq!(
        found,
        [
            format!(
                "! orders / bob, app / ann: no login to the server at 10.0.0.9:5432: connection refused; 4 clients wait, the longest for 9.0 s; \
                 servers were lost, the last one at 11:59:58 UTC. {helps}"
            ),
            format!("! more / eve: no login to the server: no such role. {helps}"),
        ],
        "{page}"
    );
}

#[test]
fn pinned_clients_are_one_sentence() {
    let said = |waiting: bool| {
        let pool = "app|ann|3|0|2|0|0|0|0|transaction|-|-";
        let busy = "app|ann|3|1|2|0|0|4|500000|transaction|pool_size|-";
        let mut last = sample(2, 300, &[if waiting { busy } else { pool }]);
        let pin = |client: u64| format!("app|ann|{client}|temporary objects|CREATE TEMP TABLE t");
        let pins = [pin(5), pin(6)];
        let pins = [pins[0].as_str(), pins[1].as_str()];
        let columns = "database user client_id reason statement";
        last.tables.insert("PINS", table(columns, &pins));
        let waiter = "app|ann|7|4500000|pool_size|2|5|4000000|idle and pinned|CREATE TEMP TABLE t|end the session of client 5";
        let columns = "database user client_id wait_us limit holders holder_client_id holder_us holder_state statement advice";
        let waiters: &[&str] = if waiting { &[waiter] } else { &[] };
        last.tables.insert("WAITERS", table(columns, waiters));
        let page = plain::page(&app(vec![last]), Some(View::Pools), None);
        let lines = page.lines().filter(|line| line.starts_with('!'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = said(false);
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(
        alone[0].contains("pinned clients keep 2 of 2 servers"),
        "{alone:?}"
    );
    let waiting = said(true);
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert!(
        waiting[0].contains("idle and pinned") && waiting[0].contains("CREATE TEMP TABLE t"),
        "{waiting:?}"
    );
}

#[test]
fn hosts_have_their_roles() {
    let mut last = sample(2, 300, &[QUIET]);
    let columns = "host state role timeline lag_us connections last_answer last_error last_error_at databases";
    let rows = [
        "10.0.0.1:5432|up|primary|3|-|12|2026-11-25 12:00:01 UTC|-|-|app, orders",
        "10.0.0.2:5432|down|standby|3|2500000|0|2026-11-25 11:58:00 UTC|no answer|2026-11-25 11:59:30 UTC|app",
    ];
    last.tables.insert("HOSTS", table(columns, &rows));
    let page = plain::page(&app(vec![last]), Some(View::Hosts), None);
    let lines: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("10."))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "10.0.0.1:5432 up primary - 12 app, orders 12:00:01 - -",
            "10.0.0.2:5432 down standby 2.5 s 0 app 11:58:00 11:59:30 no answer",
        ],
        "{page}"
    );
}

#[test]
fn nodes_of_a_fleet() {
    let mut app = quiet();
    app.show(View::Fleet);
    let columns = "node state addresses share extra wanted version last_contact";
    let rows = [
        "00ab|this|10.0.0.1|25|20|31|0.1.0|2026-11-25 12:00:01 UTC",
        "00ac|lost|10.0.0.2|17|12|9|0.1.0|2026-11-25 11:58:00 UTC",
    ];
    app.sample.tables.insert("FLEET", table(columns, &rows));
    let lines = text(&frame(&app, 120, 12));
    assert_eq!(
        lines[3..7],
        [
            "Nodes that share max_server_conn",
            "node  state  addresses  share  above the floor  wanted  version  last contact (UTC)",
            "00ab  this   10.0.0.1      25               20      31  0.1.0    12:00:01",
            "00ac  lost   10.0.0.2      17               12       9  0.1.0    11:58:00",
        ]
    );
    app.sample.tables.insert("FLEET", table(columns, &[]));
    let page = plain::page(&app, Some(View::Fleet), None);
    assert!(
        page.contains("shares max_server_conn with no other"),
        "{page}"
    );
    assert!(!plain::page(&app, None, None).contains("max_server_conn"));
}

#[test]
fn narrow_and_low_terminals() {
    for (width, height) in [(40, 10), (20, 5), (3, 2), (1, 1), (300, 100)] {
        for app in [quiet(), busy()] {
            let lines = text(&frame(&app, width, height));
            assert_eq!(lines.len(), usize::from(height));
        }
    }
    let lines = text(&frame(&quiet(), 40, 12)).join("\n");
    assert!(
        lines.contains("database / user  waiting  longest"),
        "{lines}"
    );
    assert!(!lines.contains("waits for"), "{lines}");
}

#[test]
fn colours_can_be_switched_off() {
    let mut app = busy();
    let coloured = frame(&app, 100, 30);
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
    app.screen.has_colour = false;
    let plain = frame(&app, 100, 30);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset));
    assert!(
        plain
            .content
            .iter()
            .any(|cell| cell.modifier.contains(Modifier::BOLD))
    );
}

#[test]
fn names_cannot_control_the_terminal() {
    let name = "a\u{1b}]0;x\u{7}|ann|1|0|1|0|0|0|0|transaction|-|bad\u{1b}[2J\u{202e}thing";
    let app = app(vec![sample(0, 1, &[name])]);
    for view in [View::Pools, View::Events] {
        let shown = text(&frame(&app, 120, 20)).join("\n") + &plain::page(&app, Some(view), None);
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown}");
    }
}

#[test]
fn keys_lead_to_views_and_back() {
    let mut app = busy();
    assert_eq!(press(&mut app, "2"), KeyAction::Nothing);
    assert_eq!(app.view, View::Waiters);
    let lines = text(&frame(&app, 120, 30)).join("\n");
    assert!(lines.contains("Clients that wait"), "{lines}");
    assert!(lines.contains("holder client id: 5"), "{lines}");
    // The pool of the selected line needs tables that were not read yet.
    assert_eq!(press(&mut app, "\n"), KeyAction::Refresh);
    assert_eq!((app.view, app.needs_connections()), (View::Pool, true));
    assert_eq!(press(&mut app, "\u{1b}"), KeyAction::Nothing);
    assert_eq!(app.view, View::Pools);
    assert_eq!(press(&mut app, "q"), KeyAction::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.press(control_c), KeyAction::Quit);
    press(&mut app, "?");
    assert!(
        text(&frame(&app, 120, 30))
            .join("\n")
            .contains("hold the display still")
    );
    press(&mut app, "q");
    assert!(!app.is_help_shown, "any key ends the help");
}

#[test]
fn a_client_is_killed_after_a_yes() {
    let mut app = busy();
    press(&mut app, "K");
    assert!(text(&frame(&app, 120, 30))[29].contains("names no client"));
    press(&mut app, "2K");
    assert!(text(&frame(&app, 120, 30))[29].starts_with("KILL_CLIENT 5: disconnect"));
    assert_eq!(press(&mut app, "n"), KeyAction::Nothing);
    assert_eq!(
        press(&mut app, "y"),
        KeyAction::Nothing,
        "the question is gone"
    );
    assert_eq!(press(&mut app, "Ky"), KeyAction::Kill(5));
}

#[test]
fn lines_are_filtered_and_sorted() {
    let names = |app: &App| -> Vec<String> {
        let lines = app.sections().into_iter().flat_map(|section| section.lines);
        lines.map(|line| line.cells[0].text.clone()).collect()
    };
    let mut app = busy();
    assert_eq!(names(&app), ["app / ann", "orders / bob"]);
    press(&mut app, "/BOB");
    assert!(
        text(&frame(&app, 100, 20))
            .join("\n")
            .contains("filter: BOB_")
    );
    press(&mut app, "\n");
    assert_eq!(names(&app), ["orders / bob"]);
    press(&mut app, "\u{1b}");
    assert_eq!(names(&app).len(), 2);
    press(&mut app, ">");
    assert_eq!(
        names(&app),
        ["orders / bob", "app / ann"],
        "the highest comes first"
    );
    press(&mut app, "i");
    assert_eq!(names(&app), ["app / ann", "orders / bob"]);
    press(&mut app, "<");
    assert_eq!(app.sort, None);
}

#[test]
fn a_held_display_still_counts() {
    let mut app = quiet();
    press(&mut app, " ");
    app.add(sample(4, 1_300, &[BUSY]));
    let lines = text(&frame(&app, 150, 12)).join("\n");
    assert!(
        lines.contains("HELD STILL") && lines.contains("0 waiting"),
        "{lines}"
    );
    press(&mut app, " ");
    app.add(sample(6, 1_400, &[BUSY]));
    let lines = text(&frame(&app, 150, 20)).join("\n");
    assert!(
        lines.contains("2 waiting (4.5 s)") && lines.contains(" 50 tx/s"),
        "{lines}"
    );
}

#[test]
fn a_lost_connection_is_shown_until_it_is_back() {
    let mut app = quiet();
    app.lose("connection refused".to_owned(), NOON);
    app.lose("no route".to_owned(), NOON + 5 * SECOND);
    app.now = NOON + 12 * SECOND;
    let lines = text(&frame(&app, 150, 12));
    assert!(
        lines[0].ends_with("NO CONNECTION for 12 s, trying again: no route"),
        "{}",
        lines[0]
    );
    assert!(
        lines.join("\n").contains("app / ann"),
        "the last sample stays"
    );
    // The counters of another process begin again: there is no rate until the sample after the next.
    app.add(sample(20, 50, &[QUIET]));
    let lines = text(&frame(&app, 150, 12));
    assert!(
        lines[0].ends_with("active") && lines[2].contains(" 0.0 tx/s"),
        "{lines:?}"
    );
    app.add(sample(22, 60, &[QUIET]));
    assert!(text(&frame(&app, 150, 12))[2].contains(" 5.0 tx/s"));
}

#[test]
fn pgbouncer_has_means_per_database() {
    let stats = |at: u64, count: u64| {
        let mut sample = sample(at, 0, &["app|ann|3|0|1|2|0|0|0|transaction|-|-", DOWN]);
        sample.tables.remove("TIMES");
        sample.tables.remove("PINS");
        let row = format!("app|{count}|{}|{}", count * 2_000, count * 10);
        let columns = "database total_xact_count total_xact_time total_wait_time";
        sample.tables.insert("STATS", table(columns, &[&row]));
        sample
    };
    let app = app(vec![stats(0, 100), stats(2, 120)]);
    let page = plain::page(&app, Some(View::Pools), None);
    let line = page
        .lines()
        .find(|line| line.starts_with("app / ann"))
        .expect("the pool");
    assert!(
        line.contains("mean 10 us") && line.contains("mean 2.0 ms"),
        "{page}"
    );
    let page = plain::page(&app, Some(View::Waiters), None);
    assert!(page.contains("This console does not have them."), "{page}");
}

#[test]
fn a_page_has_no_blanks_at_the_end_of_lines() {
    let page = plain::page(&busy(), None, None);
    assert!(page.lines().all(|line| line == line.trim_end()), "{page}");
    assert!(
        page.contains("\nClients that wait\n") && page.contains("\nEvents, the latest first\n"),
        "{page}"
    );
    let narrow = plain::page(&busy(), Some(View::Pools), Some(50));
    let table = narrow.lines().skip_while(|line| !line.starts_with("Pools"));
    assert!(
        table.clone().all(|line| line.chars().count() <= 50),
        "{narrow}"
    );
}
