//! `max_server_conn` as a percentage, and its errors.

use pgweir_config::{Config, Problems};

fn settings(lines: &str) -> Result<Config, Problems> {
    let text = format!("[pgbouncer]\n{lines}");
    Config::load("pgweir.ini".as_ref(), &mut |_| Ok(text.clone()))
}

#[test]
fn only_the_limit_on_all_servers_may_be_a_percentage() {
    let config = settings("max_server_conn = 80%\nfleet_nodes = 3\n").expect("a right file");
    let value = |key: &str| {
        let rows = config.rows().into_iter();
        rows.filter(|row| row.key == key)
            .find_map(|row| row.value)
            .unwrap_or_default()
    };
    assert_eq!(
        (value("max_server_conn"), value("fleet_share")),
        ("80%".into(), "80% / 3".into())
    );
    for (text, expect) in [
        (
            "max_server_conn = 80 %",
            "wrong value \"80 %\" for \"max_server_conn\": expected a whole number, 0 or more, or 1% to 100% (without a space)",
        ),
        (
            "max_server_conn = 101%",
            "wrong value \"101%\" for \"max_server_conn\": expected a whole number, 0 or more, or 1% to 100%",
        ),
        (
            "max_db_connections = 80%",
            "wrong value \"80%\" for \"max_db_connections\": expected a whole number, 0 or more (this setting can't be a percentage)",
        ),
        (
            "max_server_conn = 80%\nfleet_etcd = http://e",
            "wrong value \"80%\" for \"max_server_conn\": expected a number above 0, since fleet_etcd is set: the nodes share one number",
        ),
    ] {
        let problems = settings(text).expect_err(text).to_string();
        assert!(problems.contains(expect), "{problems}");
    }
}
