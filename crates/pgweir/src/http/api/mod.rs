//! `/api/v1`: the console's tables and commands, as JSON.
//!
//! - `routes`: the addresses. `openapi`: their description. `problem`: the answers to invalid requests.
//! - `show`: the console's tables. `commands`: its commands. `entries`: databases, users and hosts. `rights`:
//!   checks whether the sender may send the request.

mod commands;
mod entries;
mod openapi;
mod problem;
mod rights;
mod routes;
mod show;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body, Buf},
    header::CONTENT_TYPE,
};
use percent_encoding::percent_decode_str;
use pgweir_formats::{body::members, query::pairs};
use serde_json::{Map, Value, json};

use self::{
    problem::{Problem, json_answer},
    rights::{check_site, grant},
    routes::{Found, Operation, Route},
};
use super::{
    access::Role,
    identity::Identity,
    pages::{Answer, Sender},
    state::State,
};

pub(super) use self::routes::ROOT;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Answers a request below [`ROOT`].
pub(super) async fn answer<B>(state: &State, sender: &Sender, request: Request<B>) -> Answer
where
    B: Body,
    B::Error: Into<Failure>,
{
    let outcome = respond(state, sender, request).await;
    outcome.unwrap_or_else(Problem::into_answer)
}

async fn respond<B>(state: &State, sender: &Sender, request: Request<B>) -> Result<Answer, Problem>
where
    B: Body,
    B::Error: Into<Failure>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path().strip_prefix(ROOT).unwrap_or_default();
    let (route, names) = match routes::find(&head.method, path) {
        Found::Route(route, names) => (route, names),
        Found::Methods(allowed) => return Err(Problem::method(&allowed)),
        Found::Nothing => {
            let detail = format!("there is no such address: see {ROOT}/openapi.json");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
    };
    let names = names.iter().map(|name| decoded(name));
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    if !matches!(head.method, Method::GET | Method::HEAD) {
        check_site(&head.headers)?;
    }
    let identity = match route.role {
        None => None,
        Some(role) => Some(grant(state, sender, &head.headers, &route, role).await?),
    };
    let body = match route.method {
        "GET" => Map::new(),
        _ => read(&head.headers, body, state.options().body_max).await?,
    };
    let query = head.uri.query().unwrap_or_default();
    if route.query.is_empty() && !query.is_empty() {
        return Err(Problem::bad_query("this address has no parameters"));
    }
    let Some(identity) = identity else {
        let description = openapi::description();
        return Ok(json_answer(
            StatusCode::OK,
            &description,
            "application/json",
        ));
    };
    serve(state, sender, &identity, &route, (&names, query, &body)).await
}

async fn serve(
    state: &State,
    sender: &Sender,
    identity: &Identity,
    route: &Route,
    (names, query, body): (&[String], &str, &Map<String, Value>),
) -> Result<Answer, Problem> {
    let ok = |body: &Value| json_answer(StatusCode::OK, body, "application/json");
    match route.operation {
        Operation::Description => Ok(ok(&openapi::description())),
        Operation::Session => Ok(ok(&session(identity))),
        Operation::Tables => Ok(show::list(identity)),
        Operation::Table => {
            let name = names.first().map_or("", String::as_str);
            show::table(state, identity, name, query).await
        }
        Operation::Entries(scope) => Ok(ok(&entries::list(state, scope))),
        Operation::Entry(scope, action) => {
            let subject = entries::Subject {
                identity,
                sender,
                scope,
                names,
            };
            entries::serve(state, subject, action, query, body).await
        }
        Operation::History => Ok(ok(&history(state, query)?)),
        Operation::Command(command) => commands::run(state, identity, sender, command, body).await,
    }
}

fn session(identity: &Identity) -> Value {
    let role = match identity.role {
        Role::Stats => "stats",
        Role::Admin => "admin",
    };
    json!({
        "name": &*identity.name,
        "role": role,
        "version": pgweir_core::console::VERSION,
    })
}

fn history(state: &State, query: &str) -> Result<Value, Problem> {
    let mut since = 0;
    for (name, value) in pairs(query).map_err(Problem::bad_query)? {
        match (name.as_str(), value.parse()) {
            ("since", Ok(time)) => since = time,
            _ => return Err(Problem::bad_query("expected since=MILLISECONDS")),
        }
    }
    Ok(state.history.borrow().json(since))
}

fn decoded(name: &str) -> Result<String, Problem> {
    let name = percent_decode_str(name).decode_utf8();
    let name = name.map_err(|_| Problem::bad_query("the address is not UTF-8"))?;
    Ok(name.into_owned())
}

/// Reads a body: a JSON object, or nothing.
async fn read<B>(
    headers: &HeaderMap,
    body: B,
    bytes_max: usize,
) -> Result<Map<String, Value>, Problem>
where
    B: Body,
    B::Error: Into<Failure>,
{
    let kind = headers
        .get(CONTENT_TYPE)
        .map(|kind| kind.to_str().unwrap_or_default());
    let is_json = kind.is_none_or(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    let wrong_type = || {
        let detail = "send the body as Content-Type: application/json";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    };
    if !is_json {
        return Err(wrong_type());
    }
    let read = Limited::new(body, bytes_max).collect().await;
    let bytes = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => {
            let detail = format!("the body is longer than {bytes_max} bytes (http_max_body)");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        false => Problem::bad_query("the body has not arrived"),
    })?;
    let mut bytes = bytes.aggregate();
    let bytes = bytes.copy_to_bytes(bytes.remaining());
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    if kind.is_none() {
        return Err(wrong_type());
    }
    members(&bytes).map_err(Problem::bad_query)
}
