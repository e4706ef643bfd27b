//! Any text as an ini file, and as one that it includes (after a line of `---`).
//!
//! The target checks that problems name an existing line, that no password appears in any output, and that all methods of a
//! loaded configuration work.

use std::path::Path;

use pgweir_config::Config;

/// See the module.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (main, included) = text.split_once("\n---\n").unwrap_or((text, ""));
    let mut read = |path: &Path| {
        Ok(if path == Path::new("main.ini") {
            main
        } else {
            included
        }
        .to_owned())
    };
    match Config::load(Path::new("main.ini"), &mut read) {
        Ok(config) => ask(&config),
        Err(problems) => {
            assert!(!problems.0.is_empty());
            let lines = main.lines().count().max(included.lines().count());
            assert!(
                problems.0.iter().all(|problem| problem.place.line <= lines),
                "{problems}"
            );
        }
    }
}

fn ask(config: &Config) {
    let debug = format!("{config:?}");
    for database in config.databases.values().chain(&config.fallback) {
        let _ = (
            config.pool_size(database, "u"),
            config.pool_mode(database, "u"),
            config.server_lifetime(database),
        );
        let password = database
            .password
            .as_ref()
            .map_or("", |password| password.expose());
        // A shorter password may be a part of another word by chance.
        assert!(
            password.len() < 24
                || debug.matches(password).count() == 0
                || repeated(config, password)
        );
    }
    assert!(config.needs_restart(config).is_empty());
    assert!(!config.rows().is_empty());
}

/// Returns whether the text also occurs outside of the secrets.
fn repeated(config: &Config, text: &str) -> bool {
    let mut bare = config.clone();
    for database in bare.databases.values_mut().chain(&mut bare.fallback) {
        database.password = None;
    }
    format!("{bare:?}").contains(text)
}
