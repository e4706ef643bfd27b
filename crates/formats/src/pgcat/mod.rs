//! Converts PgCat's configuration to an ini file and a userlist, key by key. A comment in the result names each key
//! without an equivalent.

mod lines;
mod pool;
mod users;

use toml::{Table, Value};
use zeroize::Zeroizing;

use self::{lines::Lines, users::Users};

/// The reason why a file is not a configuration of PgCat. Never contains text of the file, which may be secret.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The text is no TOML.
    #[error("{line}: {words}")]
    Syntax {
        /// The number of the line, from 1 on.
        line: usize,
        /// A description of the error, without text of the file.
        words: String,
    },
    /// The text is TOML, but not a configuration of PgCat.
    #[error(" not a configuration of PgCat: it has no [pools]")]
    NoPools,
}

/// The contents of the two files.
pub struct Imported {
    /// The ini file.
    pub ini: Zeroizing<String>,
    /// The userlist.
    pub userlist: Zeroizing<String>,
}

/// The result of converting a key.
enum Fate {
    /// The setting of this name, with the same value.
    Same(&'static str),
    /// The setting of this name, in seconds instead of milliseconds.
    Seconds(&'static str),
    /// Code below converts this key.
    ByName,
    /// The key has no equivalent, for this reason.
    Nothing(&'static str),
}

use Fate::{ByName, Nothing, Same, Seconds};

const GENERAL: &[(&str, Fate)] = &[
    ("host", ByName),
    ("port", ByName),
    ("connect_timeout", Seconds("query_wait_timeout")),
    ("idle_timeout", Seconds("server_idle_timeout")),
    ("server_lifetime", Seconds("server_lifetime")),
    (
        "idle_client_in_transaction_timeout",
        Seconds("idle_transaction_timeout"),
    ),
    ("healthcheck_delay", Seconds("server_check_delay")),
    ("server_round_robin", Same("server_round_robin")),
    ("log_client_connections", Same("log_connections")),
    ("log_client_disconnections", Same("log_disconnections")),
    ("tcp_keepalives_idle", Same("tcp_keepidle")),
    ("tcp_keepalives_count", Same("tcp_keepcnt")),
    ("tcp_keepalives_interval", Same("tcp_keepintvl")),
    ("tcp_user_timeout", Same("tcp_user_timeout")),
    ("dns_max_ttl", Same("dns_max_ttl")),
    (
        "prepared_statements_cache_size",
        Same("max_prepared_statements"),
    ),
    ("tls_certificate", ByName),
    ("tls_private_key", Same("client_tls_key_file")),
    ("server_tls", ByName),
    ("verify_server_certificate", ByName),
    ("admin_username", ByName),
    ("admin_password", ByName),
    ("auth_query", ByName),
    ("auth_query_user", ByName),
    ("auth_query_password", ByName),
    (
        "enable_prometheus_exporter",
        Nothing("set http_listen: pgweir serves /metrics there"),
    ),
    (
        "prometheus_exporter_port",
        Nothing("set http_listen: pgweir serves /metrics there"),
    ),
    (
        "healthcheck_timeout",
        Nothing("the client's query_wait_timeout also limits the check of a server"),
    ),
    (
        "shutdown_timeout",
        Nothing(
            "SIGTERM waits for all clients without a limit; a second SIGTERM ends the process at once",
        ),
    ),
    (
        "ban_time",
        Nothing("pgweir tries all hosts of a list in turn; see server_login_retry"),
    ),
    (
        "autoreload",
        Nothing("RELOAD in the console, or SIGHUP, reads this file again"),
    ),
    (
        "worker_threads",
        Nothing("all cores are used; workers = N sets another number of threads"),
    ),
    (
        "dns_cache_enabled",
        Nothing("addresses are always kept for dns_max_ttl"),
    ),
    ("verify_config", Nothing("run pgweir check")),
    ("validate_config", Nothing("run pgweir check")),
];

/// Converts `text`, PgCat's file, to an ini file and a userlist. The ini file gets this value of `auth_file`.
///
/// # Errors
/// When the text is not TOML, or not a configuration of PgCat.
pub fn convert(text: &str, auth_file: &str) -> Result<Imported, ConvertError> {
    let file: Table = text.parse().map_err(|error| syntax(text, &error))?;
    let Some(Value::Table(pools)) = file.get("pools") else {
        return Err(ConvertError::NoPools);
    };
    let nothing = Table::new();
    let general = file
        .get("general")
        .and_then(Value::as_table)
        .unwrap_or(&nothing);
    let mut settings = Lines::default();
    let mut users = Users::default();
    settings.comment(
        "Made from PgCat's configuration. Its keys without an equivalent are named in comments.",
    );
    general_settings(general, auth_file, &mut settings, &mut users);
    for key in file
        .keys()
        .filter(|key| !["general", "pools", "path"].contains(&key.as_str()))
    {
        settings.comment(&format!("{key}: has no equivalent"));
    }
    let mut databases = Lines::default();
    for (name, pool) in pools {
        match pool.as_table() {
            Some(pool) => pool::convert(name, pool, &mut databases, &mut users),
            None => databases.comment(&format!("pools.{name}: not understood")),
        }
    }
    let mut ini = Zeroizing::new(databases.section("databases"));
    let own = users.section();
    if !own.is_empty() {
        ini.push_str(&format!("\n{}", own.section("users")));
    }
    ini.push_str(&format!("\n{}", settings.section("pgbouncer")));
    Ok(Imported {
        ini,
        userlist: users.userlist(),
    })
}

/// Converts an error of the TOML parser, whose own message shows the line, which may have a password.
fn syntax(text: &str, error: &toml::de::Error) -> ConvertError {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    ConvertError::Syntax {
        line: text.as_bytes()[..at]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
            + 1,
        words: "not valid TOML".to_owned(),
    }
}

fn general_settings(general: &Table, auth_file: &str, out: &mut Lines, users: &mut Users) {
    let text = |key: &str| general.get(key).and_then(scalar);
    let is_on = |key: &str| text(key).is_some_and(|text| text == "1");
    out.setting("listen_addr", text("host").as_deref().unwrap_or("0.0.0.0"));
    out.setting("listen_port", text("port").as_deref().unwrap_or("5432"));
    out.setting("pool_mode", "transaction");
    out.comment("PgCat does not limit the number of clients.");
    out.setting("max_client_conn", "10000");
    out.comment("PgCat uses md5. scram-sha-256 is safer, and all current drivers support it.");
    out.setting("auth_type", "md5");
    out.setting("auth_file", auth_file);
    if let Some(admin) = text("admin_username") {
        out.setting("admin_users", &admin);
        if let Some(password) = general.get("admin_password").and_then(Value::as_str) {
            users.secret(&admin, password, "pgbouncer");
        }
    }
    auth_query("general", general, users, &mut |key, value| {
        if !out.setting(key, &value) {
            out.comment(&format!(
                "general.{key}: an ini file can't represent the value"
            ));
        }
    });
    if let Some(certificate) = text("tls_certificate") {
        out.setting("client_tls_sslmode", "prefer");
        out.setting("client_tls_cert_file", &certificate);
    }
    match (is_on("server_tls"), is_on("verify_server_certificate")) {
        (false, _) => drop(out.setting("server_tls_sslmode", "disable")),
        (true, false) => drop(out.setting("server_tls_sslmode", "require")),
        (true, true) => {
            out.setting("server_tls_sslmode", "verify-full");
            out.comment(
                "This file is Debian's. Name the file with the certificates of your servers' authority.",
            );
            out.setting("server_tls_ca_file", "/etc/ssl/certs/ca-certificates.crt");
        }
    }
    for (key, value) in general {
        let known = GENERAL.iter().find(|(name, _)| name == key);
        match known.map(|(_, fate)| fate) {
            Some(ByName) => {}
            // A feature that is switched off needs no equivalent.
            Some(Nothing(_)) if value.as_bool() == Some(false) => {}
            Some(Nothing(why)) => out.comment(&format!("general.{key}: has no equivalent: {why}")),
            Some(Same(name)) => take(out, key, name, scalar(value)),
            Some(Seconds(name)) => take(out, key, name, seconds(value)),
            None => out.comment(&format!("general.{key}: has no equivalent")),
        }
    }
}

fn take(out: &mut Lines, key: &str, name: &str, value: Option<String>) {
    if !value.is_some_and(|value| out.setting(name, &value)) {
        out.comment(&format!("general.{key}: not understood"));
    }
}

/// Converts the keys of `auth_query`, in `[general]` or in a pool.
fn auth_query(
    scope: &str,
    table: &Table,
    users: &mut Users,
    set: &mut dyn FnMut(&'static str, String),
) {
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if let Some(user) = text("auth_query_user") {
        set("auth_user", user.to_owned());
        if let Some(password) = text("auth_query_password") {
            users.secret(user, password, scope);
        }
    }
    if let Some(query) = text("auth_query") {
        // PgCat replaces `$1` in the text; pgweir sends the name as a parameter.
        set("auth_query", query.replace("'$1'", "$1"));
    }
}

/// Returns a value as text for the ini file, unless it is a table or an array.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(u8::from(*flag).to_string()),
        _ => None,
    }
}

/// Converts milliseconds to seconds.
fn seconds(value: &Value) -> Option<String> {
    let millis = u64::try_from(value.as_integer()?).ok()?;
    Some(match (millis / 1000, millis % 1000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{rest:03}")
            .trim_end_matches('0')
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pgweir_auth::userlist::Userlist;
    use pgweir_config::Config;

    use super::*;

    /// Returns the two files as pgweir parses them, and all comments.
    fn imported(text: &str) -> (Config, Userlist, String) {
        let imported = convert(text, "userlist.txt").expect("it is PgCat's");
        let ini = imported.ini.to_string();
        let config = Config::load(Path::new("a.ini"), &mut |_| Ok(ini.clone()));
        let config = config.unwrap_or_else(|problems| panic!("{problems}\n{ini}"));
        let users = Userlist::parse(&imported.userlist).expect("a userlist");
        let lines = ini.lines().chain(imported.userlist.lines());
        let comments: Vec<_> = lines.filter(|line| line.starts_with(';')).collect();
        (config, users, comments.join("\n"))
    }

    const SMALL: &str = r#"
[general]
port = 6432
connect_timeout = 2500
ban_time = 60
admin_username = "boss"
admin_password = "the boss's"
some_new_key = "hush"

[pools.shop]
[pools.shop.users.0]
username = "clerk"
password = "a \"quoted\" one"
pool_size = 7
statement_timeout = 1500
[pools.shop.shards.0]
servers = [["db", 5433, "primary"]]
database = "shop_production"
"#;

    #[test]
    fn a_small_file_comes_over() {
        let (config, users, comments) = imported(SMALL);
        let shop = &config.databases["shop"];
        assert_eq!(
            (shop.host.as_slice(), shop.port.first()),
            (["db".to_owned()].as_slice(), 5433)
        );
        assert_eq!(
            (shop.dbname.as_deref(), shop.pool_size),
            (Some("shop_production"), Some(7))
        );
        assert_eq!(config.settings.listen_port, 6432);
        assert_eq!(config.settings.query_wait_timeout.0, 2_500_000);
        assert_eq!(config.query_timeout("clerk").0, 1_500_000);
        assert_eq!(users.len(), 2);
        assert!(
            comments.contains("general.ban_time: has no equivalent: "),
            "{comments}"
        );
        assert!(
            comments.contains("general.some_new_key: has no equivalent"),
            "{comments}"
        );
        assert!(
            !comments.contains("hush") && !comments.contains("quoted"),
            "{comments}"
        );
    }

    #[test]
    fn values_cannot_add_lines() {
        let text = SMALL
            .replace("\"db\"", r#""db\nauth_type = any""#)
            .replace("port = 6432", r#"host = "*\nauth_type = any""#);
        let imported = convert(&text, "userlist.txt").expect("it is PgCat's");
        assert!(
            !imported.ini.lines().any(|line| line == "auth_type = any"),
            "{}",
            *imported.ini
        );
    }

    #[test]
    fn an_error_in_toml_does_not_show_the_text() {
        let text = "[general]\nadmin_password = \"secret\n";
        let error = convert(text, "x").err().expect("no TOML").to_string();
        assert!(
            error.starts_with("2: ") && !error.contains("secret"),
            "{error}"
        );
        assert!(convert("[general]\n", "x").is_err());
    }
}
