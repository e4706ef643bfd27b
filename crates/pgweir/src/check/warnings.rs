//! Warnings of `pgweir check`: settings that are valid, but probably a mistake.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use pgweir_auth::userlist::Secret;
use pgweir_config::{AuthType, Config, Database};
use pgweir_core::Snapshot;

use super::report::all;
use crate::process::FileLimit;

/// Returns all warnings about a configuration.
pub(super) fn all_of(ini: &Path, snapshot: &Snapshot, files: FileLimit) -> Vec<String> {
    let config = &snapshot.config;
    let mut warnings = Vec::new();
    warnings.extend(readable(ini, snapshot));
    warnings.extend(login_without_password(config));
    warnings.extend(admins(snapshot));
    warnings.extend(forced_users(snapshot));
    warnings.extend(auth_users(snapshot));
    warnings.extend(files.warning(snapshot));
    warnings.extend(needlessly_ignored(config));
    warnings
}

/// Warns about `ignore_startup_parameters` if no database needs it, since pgweir carries the parameters of all clients.
fn needlessly_ignored(config: &Config) -> Option<String> {
    let names = &config.settings.ignore_startup_parameters;
    let is_carried = |database: &Database| {
        let users = config.users.keys().map(String::as_str);
        let forced = database.user.as_deref().unwrap_or_default();
        users
            .chain([forced])
            .all(|user| config.carries_sessions(database, user))
    };
    let has_databases = all(config).next().is_some();
    let is_needless =
        !names.is_empty() && has_databases && all(config).all(|(_, one)| is_carried(one));
    is_needless.then(|| {
        format!(
            "ignore_startup_parameters = {}: those that PostgreSQL knows are no longer needed there, since pgweir \
             carries them (session_state = transparent); as long as they stand there, they have no effect",
            names.join(",")
        )
    })
}

/// Warns about files with secrets that every user of the machine can read.
fn readable(ini: &Path, snapshot: &Snapshot) -> Vec<String> {
    let config = &snapshot.config;
    let has_secret = all(config).any(|(_, database)| database.password.is_some());
    let userlist = config.settings.auth_file.as_deref().map(Path::new);
    let userlist = userlist.filter(|_| !snapshot.users.is_empty());
    let with_secrets = has_secret.then_some(ini).into_iter().chain(userlist);
    let is_open =
        |path: &&Path| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o007 != 0);
    with_secrets
        .filter(is_open)
        .map(|path| {
            format!(
                "{0} holds secrets, and every user of this machine can read it: chmod o= {0}",
                path.display()
            )
        })
        .collect()
}

/// Warns if clients from other machines can log in without a password.
fn login_without_password(config: &Config) -> Option<String> {
    let settings = &config.settings;
    let is_here = |address: &String| {
        address == "localhost"
            || address
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    };
    let is_open = matches!(settings.auth_type, AuthType::Any | AuthType::Trust);
    (is_open && !settings.listen_addr.iter().all(is_here)).then(|| {
        format!(
            "auth_type = {}: whoever can reach {} logs in without a password",
            settings.auth_type,
            settings.listen_addr.join(", ")
        )
    })
}

fn admins(snapshot: &Snapshot) -> Vec<String> {
    let settings = &snapshot.config.settings;
    if settings.admin_users.is_empty() {
        return vec![
            "admin_users is empty: the console's commands are only for the user that pgweir runs as, by the Unix socket"
                .to_owned(),
        ];
    }
    let is_unknown =
        |user: &&String| settings.auth_user.is_none() && snapshot.users.get(user).is_none();
    let asks = asks_for_passwords(&snapshot.config);
    let unknown = settings
        .admin_users
        .iter()
        .filter(is_unknown)
        .filter(|_| asks);
    unknown
        .map(|user| {
            format!("admin_users: {user} is not in auth_file, and so can't log in by password")
        })
        .collect()
}

fn asks_for_passwords(config: &Config) -> bool {
    matches!(
        config.settings.auth_type,
        AuthType::Plain | AuthType::Md5 | AuthType::ScramSha256
    )
}

/// Warns about databases with a forced user whose password pgweir does not know.
fn forced_users(snapshot: &Snapshot) -> Vec<String> {
    let config = &snapshot.config;
    let mut warnings = Vec::new();
    for (name, database) in all(config) {
        let Some(user) = database
            .user
            .as_deref()
            .filter(|_| database.password.is_none())
        else {
            continue;
        };
        match snapshot.users.get(user).map(|secret| &**secret) {
            None => warnings.push(format!(
                "{name}: there is no password for {user}, neither here nor in auth_file: its servers must accept \
                 {user} without a password"
            )),
            Some(Secret::Scram(_)) => warnings.push(format!(
                "{name}: auth_file has a SCRAM secret for {user}, with which pgweir can't log in to servers: give the \
                 password itself, here or in auth_file"
            )),
            Some(_) => {}
        }
    }
    warnings
}

/// Warns about users for `auth_query` whose database is missing, or whose password pgweir does not know.
fn auth_users(snapshot: &Snapshot) -> Vec<String> {
    let config = &snapshot.config;
    let settings = &config.settings;
    let mut warnings = Vec::new();
    for (name, database) in all(config) {
        let user = database.auth_user.as_ref().or(settings.auth_user.as_ref());
        let Some(user) = user else { continue };
        let named = database.auth_dbname.as_ref();
        let named = named.or(settings.auth_dbname.as_ref());
        let asked = match named {
            Some(named) => config.database(named),
            None => Some(database),
        };
        let Some(asked) = asked else {
            let at = named.map_or(name, String::as_str);
            warnings.push(format!(
                "auth_dbname: {at} is not in [databases]: {user} can't run auth_query there"
            ));
            continue;
        };
        let is_of_entry = asked.user.as_ref().is_none_or(|own| own == user);
        if asked.password.is_some() && is_of_entry {
            continue;
        }
        match snapshot.users.get(user).map(|secret| &**secret) {
            None => warnings.push(format!(
                "auth_user: there is no password for {user} in auth_file: servers must accept {user} \
                 without a password"
            )),
            Some(Secret::Scram(_)) => warnings.push(format!(
                "auth_user: auth_file has a SCRAM secret for {user}, with which pgweir can't log in to servers: give the \
                 password itself"
            )),
            Some(_) => {}
        }
    }
    // Many databases give rise to the same warning.
    let mut seen = std::collections::BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    warnings
}
