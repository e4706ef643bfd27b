//! Checks passwords at LDAP servers.

use std::time::Duration;

use ldap3::{
    LdapConn, LdapConnSettings, LdapError, LdapResult, Scope, SearchEntry, dn_escape, ldap_escape,
};
use pgweir_auth::{LdapMode, LdapOptions, LdapScope};
use pgweir_formats::ldap_conf::LdapConf;

use super::ldap_conf::{self, Trust};

/// The time to reach a server and to begin TLS with it, shorter than clients usually wait.
const CONNECT: Duration = Duration::from_secs(2);
/// The time that a server has to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Checks the user's password.
///
/// # Errors
/// The log's text, if the password is wrong or could not be checked.
pub(super) fn check(options: &LdapOptions, user: &str, password: &str) -> Result<(), String> {
    let conf = ldap_conf::load()?;
    let (mut connection, url) = connect(options, &conf)?;
    let dn = match &options.mode {
        LdapMode::Simple { prefix, suffix } if prefix.ends_with('=') => {
            format!("{prefix}{}{suffix}", dn_escape(user))
        }
        LdapMode::Simple { prefix, suffix } => format!("{prefix}{user}{suffix}"),
        LdapMode::Search {
            base,
            scope,
            filter,
            bind_dn,
            bind_password,
        } => {
            let bound = bind(&mut connection, bind_dn, bind_password);
            bound.map_err(|why| {
                format!("could not perform initial LDAP bind for ldapbinddn \"{bind_dn}\" on server \"{url}\": {why}")
            })?;
            let filter = with_user(filter, user);
            find(&mut connection, base, *scope, &filter).map_err(|why| {
                format!("could not search LDAP for filter \"{filter}\" on server \"{url}\": {why}")
            })?
        }
    };
    let bound = bind(&mut connection, &dn, password)
        .map_err(|why| format!("LDAP login failed for user \"{dn}\" on server \"{url}\": {why}"));
    // The server may be gone already.
    let _ = connection.unbind();
    bound
}

/// Connects to the first server that can be reached. Also returns its URL.
fn connect<'o>(options: &'o LdapOptions, conf: &LdapConf) -> Result<(LdapConn, &'o str), String> {
    let mut why = String::from("no LDAP server is named");
    for url in &options.urls {
        if options.starttls && url.starts_with("ldaps:") {
            return Err(format!(
                "ldaptls=1 would begin TLS within the TLS of \"{url}\": remove ldaptls=1, or use ldap:// instead of ldaps://"
            ));
        }
        let mut settings = LdapConnSettings::new()
            .set_conn_timeout(CONNECT)
            .set_starttls(options.starttls);
        if options.starttls || url.starts_with("ldaps:") {
            settings = match ldap_conf::trust(conf)? {
                Trust::Anybody => settings.set_no_tls_verify(true),
                Trust::Verified(config) => settings.set_config(config),
            };
        }
        match LdapConn::with_settings(settings, url) {
            Ok(mut connection) => {
                connection.with_timeout(ANSWER);
                return Ok((connection, url));
            }
            Err(error) => why = format!("could not reach the LDAP server \"{url}\": {error}"),
        }
    }
    Err(why)
}

fn bind(connection: &mut LdapConn, dn: &str, password: &str) -> Result<(), String> {
    connection.with_timeout(ANSWER);
    let answer = connection.simple_bind(dn, password);
    answer
        .and_then(LdapResult::success)
        .map_err(words)
        .map(drop)
}

/// Returns the name of the only entry that the filter finds.
fn find(
    connection: &mut LdapConn,
    base: &str,
    scope: LdapScope,
    filter: &str,
) -> Result<String, String> {
    let scope = match scope {
        LdapScope::Base => Scope::Base,
        LdapScope::One => Scope::OneLevel,
        LdapScope::Sub => Scope::Subtree,
    };
    connection.with_timeout(ANSWER);
    // "1.1" asks for entries without attributes (RFC 4511).
    let answer = connection.search(base, scope, filter, ["1.1"]);
    let (entries, _) = answer
        .and_then(ldap3::SearchResult::success)
        .map_err(words)?;
    let mut found = entries
        .into_iter()
        .filter(|entry| !entry.is_ref() && !entry.is_intermediate());
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(SearchEntry::construct(entry).dn),
        (None, _) => Err("there is no such entry".to_owned()),
        _ => Err("there is more than one such entry".to_owned()),
    }
}

/// Returns the filter for a user. Special characters in the name are escaped.
fn with_user(filter: &str, user: &str) -> String {
    let filter = filter.replace("$username", &ldap_escape(user));
    // As in libldap, the outer parentheses may be left out.
    if filter.starts_with('(') {
        filter
    } else {
        format!("({filter})")
    }
}

fn words(error: LdapError) -> String {
    match error {
        LdapError::LdapResult { result } if result.text.is_empty() => {
            format!("LDAP result {}", result.rc)
        }
        LdapError::LdapResult { result } => format!("{} (LDAP result {})", result.text, result.rc),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_a_name() {
        assert_eq!(with_user("uid=$username", "ann"), "(uid=ann)");
        assert_eq!(
            with_user("(|(a=$username)(b=$username))", "a)(b"),
            "(|(a=a\\29\\28b)(b=a\\29\\28b))"
        );
        assert_eq!(with_user("(uid=$username)", "*"), "(uid=\\2a)");
    }
}
