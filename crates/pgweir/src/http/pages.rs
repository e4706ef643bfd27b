//! The answer to each request.

use std::{borrow::Cow, error::Error, fmt, rc::Rc};

use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{
        ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
        WWW_AUTHENTICATE,
    },
};
use percent_encoding::percent_decode_str;
use pgweir_core::{console::Cell, metrics::Metrics};
use pgweir_formats::accept::prefers_openmetrics;

use super::{
    access::{Credentials, Denied, may_order, may_read_metrics},
    api,
    exposition::Format,
    live_page,
    series::{self, Source},
    state::{State, count},
};
use crate::console_link::Origin;

pub(super) type Answer = Response<Full<Bytes>>;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    /// Whether the other end of a Unix socket is root, or the user that pgweir runs as.
    pub(super) is_own_user: bool,
    /// The sender's name in the log.
    pub(super) name: Rc<str>,
    pub(super) origin: Origin,
}

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Page {
    Metrics,
    Health,
    Ready,
    Drain,
    Api,
    Unknown,
}

/// The parameter of `/drain` that lets clients leave.
pub(crate) const CLIENTS_LEAVE: &str = "clients=leave";

/// The beginning of the parameter of `/drain` with the seconds within which the clients should have left.
pub(crate) const WITHIN: &str = "within=";

/// Returns the answer to a request that lets clients leave.
pub(crate) fn clients_left(clients: usize) -> String {
    match clients {
        1 => "1 client is left".to_owned(),
        clients => format!("{clients} clients are left"),
    }
}

const CONTENTS: &str = "pgweir answers here:\n\
    GET /: in a browser, what happens now and in the last 15 minutes\n\
    GET /metrics: series for Prometheus\n\
    GET /healthz: does the process live?\n\
    GET /readyz: does it accept clients? With ?database=NAME: does that database?\n\
    POST /drain: /readyz answers 503 from now on. With ?clients=leave: clients leave between their transactions\n\
    GET /api/v1/openapi.json: the API, for what the console shows and does\n";

impl Page {
    fn of(path: &str) -> Self {
        match path {
            "/metrics" => Self::Metrics,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/drain" => Self::Drain,
            _ if is_of_api(path) => Self::Api,
            _ => Self::Unknown,
        }
    }

    /// Returns the page's name in the metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::Drain => "/drain",
            Self::Api => api::ROOT,
            Self::Unknown => "other",
        }
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Drain => "POST",
            _ => "GET, HEAD",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Drain => method == Method::POST,
            _ => method == Method::GET || method == Method::HEAD,
        }
    }
}

fn is_of_api(path: &str) -> bool {
    let rest = path.strip_prefix(api::ROOT);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The reason why a request does not get the answer that it asked for.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NoPage,
    Method(Page),
    Query(String),
    Denied(Denied),
    /// Too many wrong tokens have come from the address: the next attempt is possible after this number of seconds.
    Throttled(u64),
    CrossSite,
    NotReady(Cow<'static, str>),
    NoDatabase,
    Silent,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoPage | Self::NoDatabase => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Denied(Denied::Unknown) => StatusCode::UNAUTHORIZED,
            Self::Denied(Denied::Forbidden) | Self::CrossSite => StatusCode::FORBIDDEN,
            Self::Throttled(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotReady(_) | Self::Silent => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPage => write!(f, "there is no such page; {CONTENTS}"),
            Self::Method(page) => write!(f, "{} takes {} only", page.name(), page.methods()),
            Self::Query(why) => write!(f, "bad query: {why}"),
            Self::Denied(Denied::Unknown) => {
                f.write_str("this needs `Authorization: Bearer TOKEN`, with a token of http_tokens")
            }
            Self::Denied(Denied::Forbidden) => f.write_str("this needs the token of an admin"),
            Self::Throttled(seconds) => write!(
                f,
                "too many wrong tokens have come from this address: try again in {seconds} s (http_max_login_failures)"
            ),
            Self::CrossSite => f.write_str("requests of other sites' pages are refused"),
            Self::NotReady(why) => write!(f, "not ready: {why}"),
            Self::NoDatabase => f.write_str("there is no such database"),
            Self::Silent => f.write_str("pgweir's workers did not answer in time"),
        }
    }
}

/// Answers a request.
pub(super) async fn answer<B>(state: &Rc<State>, sender: &Sender, request: Request<B>) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let page = Page::of(request.uri().path());
    if page == Page::Api {
        let answer = api::answer(state, sender, request).await;
        state.answered(page, answer.status());
        return answer;
    }
    let outcome = match admit(page, state, sender, &request) {
        Ok(()) => serve(page, state, sender, &request).await,
        Err(refusal) => Err(refusal),
    };
    let answer = match outcome {
        Ok(answer) => answer,
        Err(refusal) => refused(&refusal),
    };
    state.answered(page, answer.status());
    answer
}

/// Checks whether the request may be served.
fn admit<B>(
    page: Page,
    state: &State,
    sender: &Sender,
    request: &Request<B>,
) -> Result<(), Refusal> {
    if page == Page::Unknown && request.uri().path() != "/" {
        return Err(Refusal::NoPage);
    }
    if !page.takes(request.method()) {
        return Err(Refusal::Method(page));
    }
    let headers = request.headers();
    let who = Credentials {
        token: token(headers),
        is_own_user: sender.is_own_user,
    };
    let tokens = state.tokens();
    let address = sender.address();
    let is_guarded = matches!(page, Page::Metrics | Page::Drain);
    if is_guarded
        && who.token.is_some()
        && let Some(seconds) = state.failures.pause(address, state.now())
    {
        count(&state.counters.throttled);
        return Err(Refusal::Throttled(seconds));
    }
    let right = match page {
        Page::Metrics => may_read_metrics(tokens.as_deref(), who),
        // A browser sends this header with each request that a page of another site makes it send.
        Page::Drain if headers.contains_key("origin") => return Err(Refusal::CrossSite),
        Page::Drain => may_order(tokens.as_deref(), who),
        Page::Health | Page::Ready | Page::Api | Page::Unknown => Ok(()),
    };
    right.map_err(|denied| {
        if who.token.is_some() && denied == Denied::Unknown {
            state.failures.add(address, state.now());
        }
        state.say_denied(sender, page);
        Refusal::Denied(denied)
    })
}

async fn serve<B>(
    page: Page,
    state: &Rc<State>,
    sender: &Sender,
    request: &Request<B>,
) -> Result<Answer, Refusal> {
    let query = request.uri().query().unwrap_or_default();
    if !matches!(page, Page::Ready | Page::Drain) && !query.is_empty() {
        return Err(Refusal::Query(format!("{} has no parameters", page.name())));
    }
    match page {
        Page::Metrics => Ok(metrics(state, request.headers()).await),
        Page::Health => Ok(plain(StatusCode::OK, "ok")),
        Page::Ready => {
            let database = database(query)?;
            state.readiness().map_err(Refusal::NotReady)?;
            if let Some(database) = database {
                database_readiness(state, &database).await?;
            }
            Ok(plain(StatusCode::OK, "ready"))
        }
        Page::Drain => drain(state, sender, query),
        Page::Unknown if live_page::is_wanted(request.headers()) => Ok(state.page.answer()),
        Page::Api | Page::Unknown => Ok(plain(StatusCode::OK, CONTENTS.trim_end())),
    }
}

async fn metrics(state: &Rc<State>, headers: &HeaderMap) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = match prefers_openmetrics(accept) {
        true => Format::OpenMetrics,
        false => Format::Classic,
    };
    let body = match state.scrape().await {
        None => Bytes::from(series::text_without_counts(format)),
        Some(scrape) => {
            let http = state.counts();
            let snapshot = state.directory.snapshot();
            let source = Source {
                metrics: &scrape.metrics,
                names: &state.names,
                snapshot: &snapshot,
                directory: &state.directory,
                http: &http,
            };
            scrape.text(format, || series::text(source, format))
        }
    };
    let mut answer = Response::new(Full::new(body));
    let kind = HeaderValue::from_static(format.content_type());
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Makes the process not ready, and lets clients leave if the query says so.
fn drain(state: &State, sender: &Sender, query: &str) -> Result<Answer, Refusal> {
    if query.is_empty() {
        state.drain(sender);
        let text = "draining: /readyz says no from now on";
        return Ok(plain(StatusCode::OK, text));
    }
    let within = seconds_to_leave(query).ok_or_else(|| {
        let why = format!("/drain has the parameters {CLIENTS_LEAVE} and {WITHIN}SECONDS");
        Refusal::Query(why)
    })?;
    let left = state.send_clients_away(sender, within);
    Ok(plain(StatusCode::OK, &clients_left(left)))
}

/// Returns the seconds within which the clients should have left, 0 if the query of `/drain` has no such time; `None` if
/// the query is not valid.
fn seconds_to_leave(query: &str) -> Option<f64> {
    let rest = query.strip_prefix(CLIENTS_LEAVE)?;
    if rest.is_empty() {
        return Some(0.0);
    }
    let seconds = rest.strip_prefix('&')?.strip_prefix(WITHIN)?.parse().ok()?;
    (0.0..=86_400.0).contains(&seconds).then_some(seconds)
}

/// Checks whether this database has a server, or may get one.
async fn database_readiness(state: &Rc<State>, name: &str) -> Result<(), Refusal> {
    let scrape = state.scrape().await.ok_or(Refusal::Silent)?;
    let snapshot = state.directory.snapshot();
    if snapshot.config.database(name).is_none() {
        return Err(Refusal::NoDatabase);
    }
    let operator = state.directory.operator();
    if operator.is_disabled(name) {
        return Err(Refusal::NotReady("the database is disabled".into()));
    }
    if operator.is_halted(name) {
        return Err(Refusal::NotReady("the database is paused".into()));
    }
    match is_reachable(&scrape.metrics, name) {
        true => Ok(()),
        false => Err(Refusal::NotReady(
            "the last login to its server has failed, and it has no server connection".into(),
        )),
    }
}

/// Returns whether one of the database's pools has a server that has logged in, or no pool has failed to get one.
fn is_reachable(metrics: &Metrics, name: &str) -> bool {
    const READY: [&str; 5] = [
        "sv_active",
        "sv_idle",
        "sv_used",
        "sv_tested",
        "sv_being_canceled",
    ];
    let (columns, rows) = &metrics.pools;
    let at = |name: &str| columns.iter().position(|(column, _)| *column == name);
    let counts = READY.map(at);
    let error = at("last_error");
    let has_server = |row: &Vec<Cell>| {
        let mut counts = counts.iter().flatten();
        counts.any(|&at| matches!(row[at], Cell::Int(1..)))
    };
    let has_failed = |row: &Vec<Cell>| error.is_some_and(|at| row[at] != Cell::Null);
    let of_database = |row: &&Vec<Cell>| matches!(&row[0], Cell::Text(text) if text == name);
    let mut pools = rows.iter().filter(of_database).peekable();
    let none_has_failed = !pools.clone().any(has_failed);
    none_has_failed || pools.any(has_server)
}

/// Returns the parameter `database`, if there is one.
fn database(query: &str) -> Result<Option<String>, Refusal> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "database" {
            return Err(Refusal::Query(
                "/readyz has one parameter, database".to_owned(),
            ));
        }
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| Refusal::Query("a name is not UTF-8".to_owned()))?;
        if value.is_empty() || found.replace(value.into_owned()).is_some() {
            return Err(Refusal::Query("expected one name of a database".to_owned()));
        }
    }
    Ok(found)
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

fn refused(refusal: &Refusal) -> Answer {
    let mut answer = plain(refusal.status(), refusal.to_string().trim_end());
    let headers = answer.headers_mut();
    match refusal {
        Refusal::Method(page) => {
            headers.insert(ALLOW, HeaderValue::from_static(page.methods()));
        }
        Refusal::Denied(Denied::Unknown) => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refusal::Throttled(seconds) => {
            headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
        }
        _ => {}
    }
    answer
}

/// Returns an answer of one line.
pub(super) fn plain(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_one_database() {
        for (query, expected) in [
            ("", Ok(None)),
            ("database=app", Ok(Some("app"))),
            ("database=a%20b%26", Ok(Some("a b&"))),
            ("database=", Err(())),
            ("database", Err(())),
            ("database=a&database=b", Err(())),
            ("database=%ff", Err(())),
            ("other=1", Err(())),
        ] {
            let found = database(query).map_err(drop);
            assert_eq!(
                found,
                expected.map(|name| name.map(str::to_owned)),
                "{query}"
            );
        }
    }

    #[test]
    fn tokens_are_read_from_their_header() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(token(&headers), expected, "{value}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
