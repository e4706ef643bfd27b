//! `read_after_write` and the settings that it needs.

use std::path::Path;

use pgweir_config::Config;

fn load(more: &str, global: &str) -> Result<Config, String> {
    let text =
        format!("[pgbouncer]\n{global}\n[databases]\nro = host=a,b read_after_write=lsn {more}\n");
    let mut read = |_: &Path| Ok(text.clone());
    Config::load(Path::new("a.ini"), &mut read).map_err(|problems| problems.to_string())
}

#[test]
fn reads_after_writes_need_the_primary() {
    assert!(load("target_session_attrs=prefer-standby", "").is_ok());
    for more in [
        "",
        "target_session_attrs=standby",
        "target_session_attrs=any",
    ] {
        let text = load(more, "").expect_err("no primary");
        assert!(
            text.contains("read_after_write") && text.contains("prefer-standby"),
            "{text}"
        );
    }
}

#[test]
fn reads_after_writes_need_checks() {
    let text = load(
        "target_session_attrs=prefer-standby",
        "host_check_interval = 0",
    );
    let text = text.expect_err("no checks");
    assert!(
        text.starts_with("a.ini:2") && text.contains("host_check_interval"),
        "{text}"
    );
}
