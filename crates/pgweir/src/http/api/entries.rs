//! Databases, users and hosts, added, changed and removed while the process runs.

use hyper::StatusCode;
use pgweir_config::{Config, Problem as ConfigProblem, Scope, Secret, entry_pairs, entry_text};
use pgweir_core::Level;
use pgweir_formats::{
    entry_body::{Pairs, with_body},
    query::pairs,
};
use serde_json::{Map, Value, json};
use tokio::{sync::oneshot, time};

use super::problem::{Problem, json_answer};
use crate::{
    control::{ChangeError, EntryChange, Request},
    http::{
        identity::Identity,
        pages::{Answer, Sender},
        state::State,
    },
};

/// The operation of a request on an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum EntryAction {
    /// Show the entry.
    Get,
    /// Replace the entry by the one in the body.
    Put,
    /// Change the keys that are in the body; a key whose value is null is removed.
    Patch,
    Delete,
    /// Add a host to the list of a database.
    AddHost,
    RemoveHost,
}

/// The entry that a request names, and the sender of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) identity: &'a Identity,
    pub(super) sender: &'a Sender,
    pub(super) scope: Scope,
    /// The name of the entry and, if the request is about one, the host.
    pub(super) names: &'a [String],
}

/// Lists the entries of a section.
pub(super) fn list(state: &State, scope: Scope) -> Value {
    let snapshot = state.directory.snapshot();
    let config = &snapshot.config;
    let of_scope = config.entries.keys().filter(|(of, _)| *of == scope);
    let entries: Vec<Value> = of_scope
        .filter_map(|(_, name)| shown(config, scope, name))
        .collect();
    json!({scope.section(): entries})
}

/// Returns an entry as JSON, without its passwords.
fn shown(config: &Config, scope: Scope, name: &str) -> Option<Value> {
    let pairs = pairs_of(config, scope, name)?;
    let settings = pairs.into_iter().map(|(key, value)| {
        let value = if scope.is_secret(&key) {
            "****".to_owned()
        } else {
            value
        };
        (key, Value::String(value))
    });
    let settings: Map<String, Value> = settings.collect();
    Some(json!({"name": name, "settings": settings}))
}

fn pairs_of(config: &Config, scope: Scope, name: &str) -> Option<Pairs> {
    let text = config.entries.get(&(scope, name.to_owned()))?;
    entry_pairs(text.expose()).ok()
}

/// Carries a request out.
pub(super) async fn serve(
    state: &State,
    subject: Subject<'_>,
    action: EntryAction,
    query: &str,
    body: &Map<String, Value>,
) -> Result<Answer, Problem> {
    let Subject { scope, names, .. } = subject;
    let name = names.first().map_or("", String::as_str);
    let snapshot = state.directory.snapshot();
    let before = pairs_of(&snapshot.config, scope, name);
    let missing = || {
        let detail = format!("there is no entry {name:?} in [{}]", scope.section());
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let has_entry = before.is_some();
    if action == EntryAction::Get {
        let entry = shown(&snapshot.config, scope, name).ok_or_else(missing)?;
        return Ok(json_answer(StatusCode::OK, &entry, "application/json"));
    }
    let is_saved = is_saved(query)?;
    let host = names.get(1).map_or("", String::as_str);
    let after = match action {
        EntryAction::Put => Some(changed(Vec::new(), body)?),
        EntryAction::Patch => Some(changed(before.ok_or_else(missing)?, body)?),
        EntryAction::AddHost => Some(with_host(before.ok_or_else(missing)?, host)?),
        EntryAction::RemoveHost => Some(without_host(before.ok_or_else(missing)?, host)?),
        EntryAction::Get | EntryAction::Delete if !has_entry => return Err(missing()),
        EntryAction::Get | EntryAction::Delete => None,
    };
    let keys: Vec<&str> = after.iter().flatten().map(|(key, _)| &**key).collect();
    let what = match &after {
        None => format!("{} {name:?} removed", one_of(scope)),
        Some(_) => format!("{} {name:?} set ({})", one_of(scope), keys.join(", ")),
    };
    let derived_from = match action {
        EntryAction::Get | EntryAction::Put | EntryAction::Delete => None,
        EntryAction::Patch | EntryAction::AddHost | EntryAction::RemoveHost => {
            let key = (scope, name.to_owned());
            snapshot.config.entries.get(&key).cloned()
        }
    };
    let asked = (after.as_ref(), derived_from);
    let outcome = change(state, subject, asked, is_saved).await;
    let saved = if is_saved { ", saved" } else { "" };
    let (level, said) = match &outcome {
        Ok(()) => (Level::Log, format!("done{saved}")),
        Err(problem) => (Level::Warning, format!("refused: {}", problem.detail())),
    };
    let database = if scope == Scope::Database { name } else { "" };
    let command = (&*what, database);
    state.audit(level, subject.identity, subject.sender, command, &said);
    outcome?;
    let snapshot = state.directory.snapshot();
    let mut answer = shown(&snapshot.config, scope, name).unwrap_or_else(|| json!({"name": name}));
    answer["saved"] = is_saved.into();
    Ok(json_answer(StatusCode::OK, &answer, "application/json"))
}

fn one_of(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "user",
        _ => "database",
    }
}

fn is_saved(query: &str) -> Result<bool, Problem> {
    let mut is_saved = false;
    for (name, value) in pairs(query).map_err(Problem::bad_query)? {
        is_saved = match (name.as_str(), value.as_str()) {
            ("save", "true" | "1") => true,
            ("save", "false" | "0") => false,
            _ => return Err(Problem::bad_query("expected save=true or save=false")),
        };
    }
    Ok(is_saved)
}

/// Asks the control thread for a change, and waits until all workers have it.
async fn change(
    state: &State,
    subject: Subject<'_>,
    (after, derived_from): (Option<&Pairs>, Option<Secret>),
    is_saved: bool,
) -> Result<(), Problem> {
    let text = after.map(|pairs| entry_text(pairs)).transpose();
    let text = text.map_err(|key| {
        let detail = "expected a key of letters, digits and _, and a value without line breaks";
        Problem::invalid(vec![(key, detail.to_owned())])
    })?;
    let (reply, answer) = oneshot::channel();
    let asked = Request::ChangeEntry(EntryChange {
        scope: subject.scope,
        name: subject.names.first().cloned().unwrap_or_default(),
        text,
        derived_from,
        is_saved,
        reply,
    });
    let silent = || Problem::unavailable("pgweir's control thread did not answer in time");
    state.control.send(asked).map_err(|_| silent())?;
    let answer = time::timeout(state.patience(), answer).await;
    let answer = answer.ok().and_then(Result::ok).ok_or_else(silent)?;
    answer.map_err(problem)?;
    // Each worker reads its mail in order: after a measurement, it has the new configuration.
    state.scrape().await;
    Ok(())
}

fn problem(error: ChangeError) -> Problem {
    let status = match &error {
        ChangeError::Wrong(problems) => {
            return Problem::invalid(problems.0.iter().map(of_config).collect());
        }
        ChangeError::DoesNotFit(_)
        | ChangeError::NoFile
        | ChangeError::SecretInEtcd(_)
        | ChangeError::Keys(_)
        | ChangeError::Emptied
        | ChangeError::NotUsed(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ChangeError::Unwritable(..) => StatusCode::INTERNAL_SERVER_ERROR,
        ChangeError::Conflict => StatusCode::CONFLICT,
        ChangeError::Leaving | ChangeError::Etcd(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let detail = match &error {
        ChangeError::NotUsed(_) => error.to_string(),
        _ => format!("nothing has changed: {error}"),
    };
    Problem::new(status, detail)
}

fn of_config(problem: &ConfigProblem) -> (String, String) {
    let key = problem.kind.key().unwrap_or_default();
    (key.to_owned(), problem.kind.to_string())
}

fn changed(pairs: Pairs, body: &Map<String, Value>) -> Result<Pairs, Problem> {
    with_body(pairs, body).map_err(Problem::invalid)
}

fn hosts_of(pairs: &Pairs) -> Vec<String> {
    let hosts = pairs.iter().find(|(key, _)| key == "host");
    let hosts = hosts.map(|(_, hosts)| hosts.split(',').map(|host| host.trim().to_owned()));
    hosts.into_iter().flatten().collect()
}

fn set_hosts(mut pairs: Pairs, hosts: &[String]) -> Pairs {
    let text = hosts.join(",");
    match pairs.iter_mut().find(|(key, _)| key == "host") {
        Some((_, value)) => *value = text,
        None => pairs.push(("host".to_owned(), text)),
    }
    pairs
}

fn with_host(pairs: Pairs, host: &str) -> Result<Pairs, Problem> {
    let mut hosts = hosts_of(&pairs);
    if host.contains(',') {
        return Err(Problem::bad_query(
            "expected the name or address of one host",
        ));
    }
    if !hosts.iter().any(|known| known == host) {
        hosts.push(host.to_owned());
    }
    Ok(set_hosts(pairs, &hosts))
}

fn without_host(pairs: Pairs, host: &str) -> Result<Pairs, Problem> {
    let mut hosts = hosts_of(&pairs);
    let before = hosts.len();
    hosts.retain(|known| known != host);
    match hosts.len() {
        left if left == before => {
            let detail = format!("the database has no host {host:?}");
            Err(Problem::new(StatusCode::NOT_FOUND, detail))
        }
        0 => Err(Problem::refused(
            "this is the last host of the database: add another one before, or remove the database",
        )),
        _ => Ok(set_hosts(pairs, &hosts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Pairs {
        list.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn hosts_are_a_list() {
        let one = pairs(&[("host", "a")]);
        let two = with_host(one.clone(), "b");
        assert_eq!(two, Ok(pairs(&[("host", "a,b")])));
        assert_eq!(with_host(one.clone(), "a"), Ok(one.clone()));
        assert_eq!(
            without_host(pairs(&[("host", "a, b")]), "a"),
            Ok(pairs(&[("host", "b")]))
        );
        assert!(without_host(one.clone(), "a").is_err() && without_host(one, "c").is_err());
        assert!(with_host(Vec::new(), "a,b").is_err());
    }
}
