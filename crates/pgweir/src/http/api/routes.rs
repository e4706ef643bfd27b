//! The addresses of the API. The OpenAPI description is generated from the same table.

use hyper::Method;
use pgweir_config::Scope;
use pgweir_formats::command_body::{COMMANDS, Command};

use super::entries::EntryAction;
use crate::http::access::Role;

/// The path with which all addresses of the API begin.
pub(in crate::http) const ROOT: &str = "/api/v1";

/// The operation behind an address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operation {
    /// The OpenAPI description.
    Description,
    /// The identity of the sender.
    Session,
    /// The names of all tables.
    Tables,
    /// One table.
    Table,
    /// Samples of the last minutes.
    History,
    /// A command of the console.
    Command(&'static Command),
    /// The entries of a section of the configuration.
    Entries(Scope),
    /// One entry of a section.
    Entry(Scope, EntryAction),
}

/// An address and a method.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// The path after [`ROOT`]; `{name}` and `{host}` stand for one part each.
    pub(super) path: &'static str,
    /// The right that a sender needs; `None` admits everybody.
    pub(super) role: Option<Role>,
    pub(super) operation: Operation,
    pub(super) summary: &'static str,
    /// The parameters in the query: their names and descriptions. The name `*` stands for the names of columns.
    pub(super) query: &'static [(&'static str, &'static str)],
}

const READS: [Route; 5] = [
    Route {
        method: "GET",
        path: "/openapi.json",
        role: None,
        operation: Operation::Description,
        summary: "This description",
        query: &[],
    },
    Route {
        method: "GET",
        path: "/session",
        role: Some(Role::Stats),
        operation: Operation::Session,
        summary: "Who sends this request, and with which role",
        query: &[],
    },
    Route {
        method: "GET",
        path: "/show",
        role: Some(Role::Stats),
        operation: Operation::Tables,
        summary: "The tables of the console",
        query: &[],
    },
    Route {
        method: "GET",
        path: "/show/{name}",
        role: Some(Role::Stats),
        operation: Operation::Table,
        summary: "A table of the console: the rows of SHOW",
        query: &[
            (
                "limit",
                "The most rows, 1 to 100000; 1000 if it is left out",
            ),
            (
                "sort",
                "A column to sort by; with - before it, the largest first",
            ),
            (
                "distinct",
                "Columns, separated by commas: of the rows with the same values there, only the first one",
            ),
            ("*", "A column and a value: only rows that have it"),
        ],
    },
    Route {
        method: "GET",
        path: "/history",
        role: Some(Role::Stats),
        operation: Operation::History,
        summary: "Samples of each pool's clients, servers, throughput and times over the last 15 minutes",
        query: &[(
            "since",
            "Only samples after this time, in milliseconds since 1970",
        )],
    },
];

/// A route to entries: method, path, operation, and description.
type EntryRoute = (&'static str, &'static str, Operation, &'static str);

const ENTRIES: [EntryRoute; 12] = [
    (
        "GET",
        "/config/databases",
        Operation::Entries(Scope::Database),
        "The entries of [databases]",
    ),
    (
        "GET",
        "/config/databases/{name}",
        Operation::Entry(Scope::Database, EntryAction::Get),
        "A database",
    ),
    (
        "PUT",
        "/config/databases/{name}",
        Operation::Entry(Scope::Database, EntryAction::Put),
        "Add a database, or replace its keys",
    ),
    (
        "PATCH",
        "/config/databases/{name}",
        Operation::Entry(Scope::Database, EntryAction::Patch),
        "Change keys of a database",
    ),
    (
        "DELETE",
        "/config/databases/{name}",
        Operation::Entry(Scope::Database, EntryAction::Delete),
        "Remove a database",
    ),
    (
        "PUT",
        "/config/databases/{name}/hosts/{host}",
        Operation::Entry(Scope::Database, EntryAction::AddHost),
        "Add a host to the list of a database",
    ),
    (
        "DELETE",
        "/config/databases/{name}/hosts/{host}",
        Operation::Entry(Scope::Database, EntryAction::RemoveHost),
        "Remove a host from the list of a database",
    ),
    (
        "GET",
        "/config/users",
        Operation::Entries(Scope::User),
        "The entries of [users]",
    ),
    (
        "GET",
        "/config/users/{name}",
        Operation::Entry(Scope::User, EntryAction::Get),
        "A user",
    ),
    (
        "PUT",
        "/config/users/{name}",
        Operation::Entry(Scope::User, EntryAction::Put),
        "Add a user, or replace the keys",
    ),
    (
        "PATCH",
        "/config/users/{name}",
        Operation::Entry(Scope::User, EntryAction::Patch),
        "Change keys of a user",
    ),
    (
        "DELETE",
        "/config/users/{name}",
        Operation::Entry(Scope::User, EntryAction::Delete),
        "Remove a user's entry",
    ),
];

const SAVE: &[(&str, &str)] = &[(
    "save",
    "true: write this and all earlier changes to api_config_file, so that they outlast RELOAD and a restart",
)];

/// Returns all routes.
pub(super) fn routes() -> impl Iterator<Item = Route> {
    let commands = COMMANDS.iter().map(|command| Route {
        method: "POST",
        path: command.path,
        role: Some(Role::Admin),
        operation: Operation::Command(command),
        summary: command.about,
        query: &[],
    });
    let entries = ENTRIES
        .into_iter()
        .map(|(method, path, operation, summary)| Route {
            method,
            path,
            role: Some(Role::Admin),
            operation,
            summary,
            query: if method == "GET" { &[] } else { SAVE },
        });
    READS.into_iter().chain(commands).chain(entries)
}

/// The result of looking up an address and a method.
#[derive(Debug)]
pub(super) enum Found {
    /// The route, and the texts in the places of `{name}` and `{host}`, as they were written.
    Route(Route, Vec<String>),
    /// The address accepts these methods only.
    Methods(String),
    Nothing,
}

/// Finds the route of a request. `path` begins after [`ROOT`].
pub(super) fn find(method: &Method, path: &str) -> Found {
    let method = match method.as_str() {
        "HEAD" => "GET",
        other => other,
    };
    let mut allowed = Vec::new();
    for route in routes() {
        let Some(names) = matched(route.path, path) else {
            continue;
        };
        if route.method == method {
            return Found::Route(route, names);
        }
        allowed.push(route.method);
    }
    if allowed.is_empty() {
        return Found::Nothing;
    }
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    Found::Methods(allowed.join(", "))
}

/// Matches a path with a pattern. Returns the texts in the places of names, or `None` if the path does not match.
fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let (mut wanted, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return Some(names),
            (Some(one), Some(part)) if one.starts_with('{') && !part.is_empty() => {
                names.push(part.to_owned());
            }
            (Some(one), Some(other)) if one == other => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_route_is_found_by_its_own_address() {
        for route in routes() {
            let path = route.path.replace("{name}", "pools").replace("{host}", "h");
            match find(
                &Method::from_bytes(route.method.as_bytes()).expect("a method"),
                &path,
            ) {
                Found::Route(found, _) => assert_eq!(found.operation, route.operation),
                other => panic!("{}: {other:?}", route.path),
            }
        }
        let places: BTreeSet<_> = routes().map(|route| (route.method, route.path)).collect();
        assert_eq!(places.len(), routes().count());
    }

    #[test]
    fn other_addresses_and_methods() {
        for path in ["", "/", "/show/", "/show/a/b", "/nothing", "show"] {
            assert!(matches!(find(&Method::GET, path), Found::Nothing), "{path}");
        }
        match find(&Method::DELETE, "/show/pools") {
            Found::Methods(methods) => assert_eq!(methods, "GET, HEAD"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(find(&Method::HEAD, "/show"), Found::Route(..)));
    }
}
