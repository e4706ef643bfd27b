//! The OpenAPI 3.1 description of the API, generated from the table of routes.

use pgweir_config::Scope;
use pgweir_formats::command_body::{Command, MODES, NODES};
use serde_json::{Map, Value, json};

use super::{
    entries::EntryAction,
    routes::{Operation, ROOT, Route, routes},
};
use crate::http::access::Role;

/// Describes all routes.
pub(super) fn description() -> Value {
    let mut paths = Map::new();
    for route in routes() {
        let path = format!("{ROOT}{}", route.path);
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[route.method.to_ascii_lowercase()] = operation(&route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "pgweir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the console shows and does.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "A token of the file http_tokens",
                },
                "password": {
                    "type": "http", "scheme": "basic",
                    "description": "A user of admin_users or stats_users, with the password of the console",
                },
            },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["title", "status", "detail"],
                    "properties": {
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string", "description": "The fault, and its remedy"},
                        "errors": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["key", "detail"],
                                "properties": {"key": {"type": "string"}, "detail": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "operationId": id(route),
        "responses": responses(route),
    });
    operation["security"] = match route.role {
        None => json!([]),
        Some(_) => json!([{"token": []}, {"password": []}]),
    };
    if let Some(role) = route.role {
        let who = match role {
            Role::Stats => "admin_users, stats_users, and tokens of either role",
            Role::Admin => "admin_users, and tokens of an admin",
        };
        operation["description"] = format!("For {who}.").into();
    }
    let mut parameters: Vec<Value> = Vec::new();
    for name in ["name", "host"] {
        if route.path.contains(&format!("{{{name}}}")) {
            parameters.push(json!({
                "name": name, "in": "path", "required": true, "schema": {"type": "string"},
            }));
        }
    }
    parameters.extend(route.query.iter().map(|(name, about)| match *name {
        "*" => json!({
            "name": "filters", "in": "query", "description": about, "style": "form", "explode": true,
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        }),
        name => json!({
            "name": name, "in": "query", "description": about, "schema": {"type": "string"},
        }),
    }));
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    match route.operation {
        Operation::Command(command) => operation["requestBody"] = body(command),
        Operation::Entry(scope, EntryAction::Put | EntryAction::Patch) => {
            operation["requestBody"] = entry(scope);
        }
        _ => {}
    }
    operation
}

/// Returns a name for generated clients: `get_show_name`, `post_commands_pause`.
fn id(route: &Route) -> String {
    let words = route.path.replace(['{', '}'], "").replace(['/', '.'], "_");
    format!("{}{words}", route.method.to_ascii_lowercase())
}

fn body(command: &Command) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, is_needed, about) in command.members() {
        let mut schema = json!({"type": ["string", "number", "boolean"], "description": about});
        let values: Option<&[&str]> = match name {
            "mode" => Some(&MODES),
            _ if name == NODES.0.0 => Some(&[NODES.1]),
            _ => None,
        };
        if let Some(values) = values {
            schema = json!({"type": "string", "enum": values, "description": about});
        }
        properties.insert(name.to_owned(), schema);
        if is_needed {
            required.push(name);
        }
    }
    json!({
        "required": !required.is_empty(),
        "content": {"application/json": {"schema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        }}},
    })
}

/// Describes the keys of an entry, from the table of settings.
fn entry(scope: Scope) -> Value {
    let settings = scope.settings().iter().map(|info| {
        let kinds = json!(["string", "number", "boolean", "array", "null"]);
        let about = info.doc.trim();
        (
            info.name.to_owned(),
            json!({"type": kinds, "description": about}),
        )
    });
    let properties: Map<String, Value> = settings.collect();
    json!({
        "required": true,
        "content": {"application/json": {"schema": {
            "type": "object", "properties": properties, "additionalProperties": false,
        }}},
    })
}

fn responses(route: &Route) -> Value {
    let problem = |about: &str| {
        json!({
            "description": about,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        })
    };
    let mut responses = json!({
        "200": {"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}},
        "400": problem("The query or the body can't be read"),
    });
    let mut add = |status: &str, about: &str| responses[status] = problem(about);
    if route.role.is_some() {
        add("401", "No token or password, or a wrong one");
        add(
            "403",
            "Another role is needed, or the request comes from another site's page",
        );
        add(
            "429",
            "Too many wrong tokens or passwords from this address",
        );
        add("503", "pgweir's workers did not answer in time");
    }
    if route.path.contains("{name}") {
        add("404", "There is nothing of this name");
    }
    if route.method != "GET" {
        add("413", "The body is too long");
        add("415", "The body is not application/json");
        add(
            "422",
            "The command is refused, or members of the body are wrong; nothing has changed",
        );
    }
    match route.operation {
        Operation::Command(command) => {
            if command.members().contains(&NODES.0) {
                responses["502"] =
                    problem("Some nodes of the fleet have not carried the command out");
            }
            responses["202"] = json!({
                "description": "Begun: pgweir goes on with it",
                "content": {"application/json": {"schema": {"type": "object"}}},
            });
        }
        Operation::Entry(_, action) if action != EntryAction::Get => {
            responses["500"] = problem("api_config_file can't be written; nothing has changed");
        }
        _ => {}
    }
    responses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_once() {
        let description = description();
        let paths = description["paths"].as_object().expect("paths");
        let methods = |item: &Value| item.as_object().map_or(0, Map::len);
        assert_eq!(paths.values().map(methods).sum::<usize>(), routes().count());
        let pause = &paths["/api/v1/commands/pause"]["post"];
        assert_eq!(pause["operationId"], "post_commands_pause");
        let schema = &pause["requestBody"]["content"]["application/json"]["schema"];
        assert!(schema["properties"]["database"].is_object());
        assert_eq!(pause["requestBody"]["required"], false);
    }
}
