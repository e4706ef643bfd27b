//! Loads files into configurations, and checks the messages about wrong files.

use std::{
    io,
    path::{Path, PathBuf},
};

use pgweir_config::{
    AuthType, Config, FairWindow, FileMode, LoadBalance, Micros, PoolMode, Problems, SslMode,
};

/// Loads the first of these files, which may include the others.
fn load_files(files: &[(&str, &str)]) -> Result<Config, Problems> {
    let mut read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    Config::load(Path::new(files[0].0), &mut read)
}

fn load(text: &str) -> Result<Config, Problems> {
    load_files(&[("a.ini", text)])
}

/// Loads lines of section `[pgbouncer]`.
fn settings(lines: &str) -> Result<Config, Problems> {
    load(&format!("[pgbouncer]\n{lines}"))
}

#[test]
fn values_that_pgbouncer_accepts_are_accepted() {
    let lines =
        "verbose = -1\nlisten_backlog = -1\nclient_tls_dheparams = /dh.pem\nmax_packet_size = ";
    for (size, longest) in [
        ("4294967295", 2_147_483_647),
        ("12", 1_024),
        ("65536", 65_536),
    ] {
        let config = settings(&format!("{lines}{size}\n")).expect("they are taken");
        assert_eq!(config.settings.longest_message(), longest);
        assert_eq!(
            (config.settings.verbose, config.settings.listen_backlog),
            (-1, -1)
        );
        let noted = config
            .notes
            .iter()
            .any(|note| note.key == "max_packet_size");
        assert_eq!(noted, size != "65536");
        assert!(
            config
                .notes
                .iter()
                .any(|note| note.key == "client_tls_dheparams")
        );
    }
    for (line, is_noted) in [
        ("listen_port = 0", true),
        ("syslog_facility = mail", true),
        ("syslog_facility = LOCAL0", false),
    ] {
        let config = settings(line).expect(line);
        assert_eq!(config.notes.len(), usize::from(is_noted), "{line}");
        let facility = config.settings.facility().to_string();
        let expected = if line.ends_with("LOCAL0") {
            "local0"
        } else {
            "daemon"
        };
        assert_eq!(facility, expected);
    }
    for wrong in [
        "verbose = --1",
        "verbose = 2147483648",
        "listen_backlog = -",
    ] {
        settings(wrong).expect_err(wrong);
    }
}

#[test]
fn the_place_of_each_key_is_known() {
    let more = "[pgbouncer]\nlogfile = /x\npidfile = /y\n";
    let main = "[databases]\na = host=x\n%include more.ini\n[pgbouncer]\nlogfile = /z\n";
    let config = load_files(&[("a.ini", main), ("more.ini", more)]).expect("a right file loads");
    let place = |config: &Config, key| config.places.get(key).map(ToString::to_string);
    assert_eq!(place(&config, "logfile").as_deref(), Some("a.ini:5"));
    assert_eq!(place(&config, "pidfile").as_deref(), Some("more.ini:3"));
    assert_eq!(place(&config, "auth_file"), None);
    // A value that was set on the console is in no file.
    let (changed, _) = config.with_setting("logfile", "/w").expect("a right value");
    assert_eq!(place(&changed, "logfile"), None);
}

#[test]
fn every_form_of_a_file() {
    let main = include_str!("data/full.ini");
    let config = load_files(&[
        ("full.ini", main),
        ("more.ini", "verbose = 2\n[databases]\nlate = host=x\n"),
    ]);
    let config = config.expect("a right file loads");
    let settings = &config.settings;
    assert_eq!(settings.listen_addr, ["127.0.0.1", "::1", "localhost"]);
    assert_eq!(settings.listen_port, 6432);
    assert_eq!(settings.unix_socket_dir, None);
    assert_eq!(settings.unix_socket_mode, FileMode(0o770));
    assert_eq!(settings.pool_mode, PoolMode::Transaction);
    assert_eq!(settings.max_client_conn, 5000);
    assert_eq!(settings.auth_type, AuthType::Md5);
    assert_eq!(
        settings.auth_file.as_deref(),
        Some("/etc/pgbouncer/userlist.txt")
    );
    assert_eq!(settings.admin_users, ["my_db_user"]);
    assert_eq!(settings.stats_users, ["stats", "root"]);
    assert_eq!(settings.server_reset_query, "DISCARD ALL ; not a comment");
    assert_eq!(settings.server_idle_timeout, Micros(1_500_000));
    assert_eq!(settings.verbose, 2);
    assert_eq!(settings.conffile.as_deref(), Some("full.ini"));

    let forced = &config.databases["forced"];
    assert_eq!((forced.name.as_str(), forced.port.first()), ("forced", 300));
    assert_eq!(forced.user_for("alice"), "baz");
    assert_eq!(
        forced.password.as_ref().map(|password| password.expose()),
        Some("foo")
    );
    assert_eq!(forced.connect_query.as_deref(), Some("SELECT 'a b'"));
    assert_eq!(forced.datestyle.as_deref(), Some("ISO"));
    assert_eq!(forced.load_balance_hosts, LoadBalance::RoundRobin);
    assert_eq!(config.databases["orders"].dbname_for("orders"), "orders_v2");
    assert_eq!(config.databases["sized"].reserve_pool_size, Some(10));
    assert!(config.databases["socket"].host.is_empty());
    assert_eq!(config.databases["my \"odd\" db"].host, ["/run/postgresql"]);
    assert_eq!(config.databases["late"].host, ["x"]);
    assert_eq!(config.databases.len(), 6);
    assert_eq!(
        config
            .fallback
            .as_ref()
            .map(|database| database.port.first()),
        Some(5432)
    );
    assert_eq!(
        (config.peers[&2].port, config.peers[&2].pool_size),
        (5555, Some(7))
    );
}

#[test]
fn the_users_value_goes_before_the_databases() {
    let config = load(
        "[databases]\na = pool_size=5 pool_mode=statement query_wait_timeout=7 server_lifetime=0\nb =\n\
         [users]\nu = pool_size=2 pool_mode=session query_wait_timeout=3\nv = pool_size=-1 max_user_connections=0\n\
         [pgbouncer]\ndefault_pool_size=9\npool_mode=transaction\nmax_user_connections=4\n",
    );
    let config = config.expect("a right file loads");
    let (a, b) = (&config.databases["a"], &config.databases["b"]);
    assert_eq!(
        [
            config.pool_size(a, "u"),
            config.pool_size(a, "v"),
            config.pool_size(b, "v")
        ],
        [2, 5, 9]
    );
    assert_eq!(config.pool_mode(a, "u"), PoolMode::Session);
    assert_eq!(config.pool_mode(a, "v"), PoolMode::Statement);
    assert_eq!(config.pool_mode(b, "v"), PoolMode::Transaction);
    assert_eq!(config.query_wait_timeout(a, "u"), Micros::from_secs(3));
    assert_eq!(config.query_wait_timeout(a, "v"), Micros::from_secs(7));
    assert_eq!(config.query_wait_timeout(b, "v"), Micros::from_secs(120));
    assert_eq!(config.server_lifetime(a), Micros::from_secs(3600));
    assert_eq!(config.max_user_connections("v"), 4);
}

#[test]
fn databases_are_found_by_name_or_by_star() {
    let config = load("[databases]\na = host=x\n* = host=y\n").expect("a right file loads");
    assert_eq!(
        config.database("a").map(|database| database.host.clone()),
        Some(vec!["x".to_owned()])
    );
    assert_eq!(
        config
            .database("b")
            .map(|database| database.dbname_for("b")),
        Some("b")
    );
    assert_eq!(config.database("pgbouncer"), None);
    assert_eq!(config.database("pgweir"), None);
    assert_eq!(
        load("[databases]\na =\n")
            .expect("a right file loads")
            .database("b"),
        None
    );
}

#[test]
fn the_last_entry_replaces_the_whole_of_an_earlier_one() {
    let config = load(
        "[databases]\na = host=x pool_size=3 auth_user=z\n[pgbouncer]\n[databases]\na = port=6\n",
    );
    let config = config.expect("a right file loads");
    assert_eq!(
        (
            config.databases["a"].pool_size,
            config.databases["a"].port.first()
        ),
        (None, 6)
    );
    assert!(config.notes.is_empty());
}

#[test]
fn problems_have_file_line_and_advice() {
    let check = |text: &str, expect: &str| {
        let problems = load(text).map(drop).expect_err(text);
        assert_eq!(problems.to_string(), expect, "{text:?}");
    };
    let global = |line: &str, expect: &str| {
        check(
            &format!("[pgbouncer]\n{line}\n"),
            &format!("a.ini:2: {expect}"),
        )
    };
    let database = |line: &str, expect: &str| {
        check(
            &format!("[databases]\n{line}\n"),
            &format!("a.ini:2: {expect}"),
        )
    };

    global(
        "pol_mode = x",
        "unknown key \"pol_mode\" in [pgbouncer]: did you mean \"pool_mode\"?",
    );
    global(
        "Pool-Mode = x",
        "unknown key \"Pool-Mode\" in [pgbouncer]: did you mean \"pool_mode\"?",
    );
    global(
        "frobnicate = x",
        "unknown key \"frobnicate\" in [pgbouncer]",
    );
    global(
        "dbname = x",
        "\"dbname\" does not belong in [pgbouncer], but in [databases]",
    );
    global(
        "pool_size = 3",
        "\"pool_size\" does not belong in [pgbouncer], but in [databases] or [users] or [peers]",
    );
    global(
        "app = host=x port=1",
        "\"app\" does not belong in [pgbouncer], but in [databases]",
    );
    global(
        "pool_mode = tx",
        "wrong value \"tx\" for \"pool_mode\": expected one of session, transaction, statement",
    );
    database(
        "a = port=0",
        "wrong value \"0\" for \"port\": expected a port number, 1 to 65535",
    );
    global(
        "listen_port = 65536",
        "wrong value \"65536\" for \"listen_port\": expected a port number, at most 65535",
    );
    global(
        "max_client_conn = -1",
        "wrong value \"-1\" for \"max_client_conn\": expected a whole number, 0 or more",
    );
    global(
        "max_client_conn =",
        "wrong value \"\" for \"max_client_conn\": expected a whole number, 0 or more",
    );
    global(
        "log_stats = maybe",
        "wrong value \"maybe\" for \"log_stats\": expected 0 or 1",
    );
    global(
        "workers = 65",
        "wrong value \"65\" for \"workers\": expected a whole number, 0 to 64",
    );
    global(
        "query_wait_timeout = soon",
        "wrong value \"soon\" for \"query_wait_timeout\": expected seconds such as 15 or 0.5, or a number with us, ms, \
         s, min, h or d",
    );
    global(
        "auth_type = kerberos",
        "wrong value \"kerberos\" for \"auth_type\": expected one of any, trust, plain, md5, cert, hba, ldap, pam, scram-sha-256",
    );
    global(
        "server_tls_sslmode = verify",
        "wrong value \"verify\" for \"server_tls_sslmode\": expected one of disable, allow, prefer, require, verify-ca, verify-full",
    );
    database(
        "pool_mode = session",
        "\"pool_mode\" does not belong in [databases], but in [pgbouncer]",
    );
    database(
        "a = hots=x",
        "unknown key \"hots\" in [databases]: did you mean \"host\"?",
    );
    database(
        "a = max_client_conn=1",
        "\"max_client_conn\" does not belong in [databases], but in [pgbouncer]",
    );
    database(
        "a = host",
        "wrong entry \"a\": expected key=value, separated by spaces",
    );
    database(
        "pgbouncer = host=x",
        "database name \"pgbouncer\" is reserved for the console: choose another, with \
             dbname=pgbouncer",
    );
    check(
        "[users]\nu = port=3",
        "a.ini:2: \"port\" does not belong in [users], but in [databases] or [peers]",
    );
    check(
        "[peers]\n0 = host=x",
        "a.ini:2: wrong entry \"0\": a peer is named by its peer_id, 1 to 16383",
    );
    check(
        "[peers]\n1 = port=3",
        "a.ini:2: wrong entry \"1\": host= must be set",
    );
    check(
        "[database]\na = b",
        "a.ini:1: unknown section [database]: did you mean [databases]?",
    );
    check(
        "[x]\na = b",
        "a.ini:1: unknown section [x]: there are [pgbouncer], [databases], [users] and [peers]",
    );
    check(
        "a = b",
        "a.ini:1: \"a\" stands before any section: expected a line like [pgbouncer] above it",
    );
    check(
        "[pgbouncer]\nverbose",
        "a.ini:2: syntax error: expected \"=\" after the key",
    );
}

#[test]
fn all_problems_are_reported_together() {
    let files = [
        (
            "a.ini",
            "[pgbouncer]\nx = 1\n%include b.ini\n%include none.ini\nverbose = x\n",
        ),
        ("b.ini", "listen_prt = 1\n%include a.ini\n"),
    ];
    let problems = load_files(&files).map(drop).expect_err("a wrong file");
    let expect = "a.ini:2: unknown key \"x\" in [pgbouncer]\n\
                  b.ini:1: unknown key \"listen_prt\" in [pgbouncer]: did you mean \"listen_port\"?\n\
                  b.ini:2: %include goes too deep: does a file include itself?\n\
                  a.ini:4: cannot read none.ini: entity not found\n\
                  a.ini:5: wrong value \"x\" for \"verbose\": expected a whole number";
    assert_eq!(problems.to_string(), expect);
}

#[test]
fn a_password_is_in_no_error_and_no_debug_output() {
    let wrong = [
        "host=x password=hush hush",
        "password=hush hu=sh2",
        "password='hush",
        "password=hush port=x",
    ];
    for entry in wrong {
        let problems = load(&format!("[databases]\na = {entry}"))
            .map(drop)
            .expect_err(entry);
        for text in [problems.to_string(), format!("{problems:?}")] {
            assert!(!text.contains("hush") && !text.contains("sh2"), "{text}");
        }
    }
    let config = load(
        "[databases]\na = password=hush\n[pgbouncer]\nauth_ldap_options = ldapbindpasswd=hush",
    );
    let config = config.expect("a right file loads");
    assert!(!format!("{config:?}").contains("hush"));
    assert!(
        config
            .rows()
            .iter()
            .all(|row| row.value.as_deref() != Some("ldapbindpasswd=hush"))
    );
}

#[test]
fn settings_without_an_effect_are_noted() {
    let check = |lines: &str, expect: &[&str]| {
        let config = settings(lines).expect(lines);
        assert_eq!(
            config
                .notes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            expect,
            "{lines:?}"
        );
    };
    check("", &[]);
    check(
        "sbuf_loopcnt = 5\npkt_buf = 4096\nclient_tls_sslmode = disable\n",
        &[],
    );
    check("pool_mode = session\nlisten_port = 1\n", &[]);
    check(
        "sbuf_loopcnt = 1\npkt_buf = 1\n",
        &[
            "a.ini:2: \"sbuf_loopcnt\": accepted, but has no effect",
            "a.ini:3: \"pkt_buf\": accepted, but has no effect",
        ],
    );
    check("sbuf_loopcnt = 1\nsbuf_loopcnt = 5\n", &[]);
    check("[databases]\na = auth_user=x\nb = auth_user=y\n", &[]);
}

#[test]
fn values_are_shown_as_pgbouncer_shows_them() {
    let check =
        |line: &str, key: &str, value: Option<&str>, default: Option<&str>, changeable: bool| {
            let rows = settings(line).expect(line).rows();
            let row = rows.iter().find(|row| row.key == key).expect("a known key");
            assert_eq!(
                (row.value.as_deref(), row.default, row.changeable),
                (value, default, changeable),
                "{line}"
            );
        };
    check("", "pool_mode", Some("session"), Some("session"), true);
    check("", "listen_addr", Some(""), Some(""), false);
    check("", "auth_file", None, None, true);
    check("", "unix_socket_mode", Some("511"), Some("0777"), false);
    check("log_stats = off", "log_stats", Some("0"), Some("1"), true);
    check(
        "admin_users = a, b",
        "admin_users",
        Some("a,b"),
        Some(""),
        true,
    );
    check(
        "server_idle_timeout = 1500ms",
        "server_idle_timeout",
        Some("1.5"),
        Some("600"),
        true,
    );
    check(
        "fair_window = 2500us",
        "fair_window",
        Some("2.5"),
        Some("auto"),
        true,
    );
    check(
        "",
        "server_tls_sslmode",
        Some("prefer"),
        Some("prefer"),
        true,
    );
    let keys: Vec<_> = Config::default().rows().iter().map(|row| row.key).collect();
    assert!(keys.is_sorted());
}

#[test]
fn nodes_of_a_fleet_share_the_limit() {
    let config = settings("max_server_conn = 61\nfleet_nodes = 3\n").expect("a right file");
    let share = config
        .rows()
        .into_iter()
        .find(|row| row.key == "fleet_share");
    assert_eq!(share.and_then(|row| row.value).as_deref(), Some("20"));
    let problems = settings("max_server_conn = 2\nfleet_nodes = 3\n").expect_err("no server each");
    let text = problems.to_string();
    assert!(
        text.starts_with("a.ini:2") && text.contains("fleet_nodes (3)"),
        "{text}"
    );
    assert!(settings("fleet_nodes = 3\n").is_ok(), "no limit to share");
    assert!(settings("fleet_nodes = 0\n").is_err());
}

#[test]
fn own_settings() {
    let config = settings(
        "workers = 2\nfair_window = 0\nread_buffer = 65483\nabandoned_query_timeout = 1min\n",
    );
    let settings = config.expect("a right file loads").settings;
    assert_eq!(settings.workers, 2);
    assert_eq!(settings.fair_window, FairWindow::Micros(Micros(0)));
    assert_eq!(settings.read_buffer, 65_483);
    assert_eq!(settings.abandoned_query_timeout, Micros::from_secs(60));
    assert_eq!(settings.server_tls_sslmode, SslMode::Prefer);
}

#[test]
fn a_reload_keeps_what_needs_a_restart() {
    let running = settings("listen_port = 1\npool_mode = session\n").expect("a right file loads");
    let mut new = settings("listen_port = 2\npool_mode = statement\nworkers = 3\n")
        .expect("a right file loads");
    assert_eq!(running.needs_restart(&new), ["listen_port", "workers"]);
    new.succeed(&running);
    assert!(running.needs_restart(&new).is_empty());
    assert_eq!(
        (new.settings.listen_port, new.settings.pool_mode),
        (1, PoolMode::Statement)
    );
}

#[test]
fn quick_start_reaches_one_server() {
    let config = Config::quick_start("10.0.0.5", 5433, "app");
    assert_eq!(config.settings.listen_addr, ["127.0.0.1"]);
    for (name, own) in [("app", "app"), ("other", "*")] {
        let database = config.database(name).expect("a database");
        assert_eq!(
            (
                database.name.as_str(),
                database.port.first(),
                database.dbname_for(name)
            ),
            (own, 5433, name)
        );
        assert_eq!(database.host, ["10.0.0.5"]);
        assert_eq!(config.pool_mode(database, "u"), PoolMode::Transaction);
    }
    assert_eq!(Config::quick_start("x", 1, "").databases.len(), 0);
}

#[test]
fn files_are_named_as_they_are_written() {
    let mut asked = Vec::new();
    let mut read = |path: &Path| {
        asked.push(path.to_owned());
        Ok(if asked.len() == 1 {
            "%include sub/b.ini".to_owned()
        } else {
            String::new()
        })
    };
    Config::load(Path::new("/etc/a.ini"), &mut read).expect("right files load");
    assert_eq!(
        asked,
        [PathBuf::from("/etc/a.ini"), PathBuf::from("sub/b.ini")]
    );
}

#[test]
fn notes_are_not_repeated_after_a_reload() {
    let news = |before: &str, after: &str| -> Vec<&str> {
        let (before, after) = (load(before).expect(before), load(after).expect(after));
        after.news(&before).map(|note| note.key).collect()
    };
    let global = "[pgbouncer]\nsbuf_loopcnt = 1\n";
    assert_eq!(news("", global), ["sbuf_loopcnt"]);
    assert_eq!(news(global, global), [""; 0]);
    assert_eq!(
        news(global, &format!(";moved\n{global}verbose = 1\n")),
        [""; 0]
    );
    assert_eq!(
        news(global, "[pgbouncer]\nsbuf_loopcnt = 2\n"),
        ["sbuf_loopcnt"]
    );
}

#[test]
fn each_host_may_have_a_port() {
    let text =
        "[databases]\na = host=x,y port=1,2 target_session_attrs=read-write\nb = host=x,y port=3\n";
    let config = load(text).expect("valid");
    let ports = |name: &str| [0, 1].map(|at| config.databases[name].port.of(at));
    assert_eq!((ports("a"), ports("b")), ([1, 2], [3, 3]));
    for (ports, expected) in [
        ("1,2,3", "one port, or one for each of the 2 hosts"),
        ("0,1", "a port number, 1 to 65535"),
        ("1,", "a port number, at most 65535"),
    ] {
        let refused = load(&format!("[databases]\na = host=x,y port={ports}\n"));
        let text = refused.expect_err("wrong ports").to_string();
        assert!(text.contains(expected) && text.contains(":2:"), "{text}");
    }
}
