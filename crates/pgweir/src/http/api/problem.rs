//! The answer to a request that is refused or fails: `application/problem+json`, as in RFC 9457.

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    },
};
use serde_json::{Value, json};

use crate::http::pages::Answer;

/// The reason why a request is not served.
#[derive(Debug, PartialEq)]
pub(super) struct Problem {
    status: StatusCode,
    /// The fault, and its remedy.
    detail: String,
    /// Each wrong member of the body, or key of a configuration, with a description of valid values.
    errors: Vec<(String, String)>,
    /// The answer of each node of the fleet, if the nodes were asked.
    nodes: Option<Box<Value>>,
    header: Option<(HeaderName, String)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            errors: Vec::new(),
            nodes: None,
            header: None,
        }
    }

    pub(super) fn bad_query(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Creates the answer to a request with wrong members in its body.
    pub(super) fn invalid(errors: Vec<(String, String)>) -> Self {
        let mut problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "nothing has changed: correct the members that `errors` names",
        );
        problem.errors = errors;
        problem
    }

    pub(super) fn refused(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn method(allowed: &str) -> Self {
        let detail = format!("this address takes {allowed} only");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, detail).with(ALLOW, allowed)
    }

    /// Creates the answer to a request without credentials, or with wrong ones.
    pub(super) fn unauthorized(detail: &str) -> Self {
        let schemes = "Basic realm=\"pgweir\", charset=\"UTF-8\", Bearer";
        Self::new(StatusCode::UNAUTHORIZED, detail).with(WWW_AUTHENTICATE, schemes)
    }

    pub(super) fn throttled(seconds: u64) -> Self {
        let detail = format!(
            "too many wrong tokens or passwords have come from this address: try again in {seconds} s \
             (http_max_login_failures)"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail).with(RETRY_AFTER, seconds.to_string())
    }

    /// Adds what each node of the fleet has answered.
    pub(super) fn with_nodes(mut self, nodes: Value) -> Self {
        self.nodes = Some(Box::new(nodes));
        self
    }

    fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.header = Some((name, value.into()));
        self
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn into_answer(self) -> Answer {
        let mut body = json!({
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if !self.errors.is_empty() {
            let error = |(key, detail): (String, String)| json!({"key": key, "detail": detail});
            body["errors"] = self.errors.into_iter().map(error).collect();
        }
        if let Some(nodes) = self.nodes {
            body["nodes"] = *nodes;
        }
        let mut answer = json_answer(self.status, &body, "application/problem+json");
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// Returns an answer that no cache keeps.
pub(super) fn json_answer(status: StatusCode, body: &Value, kind: &'static str) -> Answer {
    text_answer(status, body.to_string(), kind)
}

/// Returns an answer that no cache keeps, whose body is a text already.
pub(super) fn text_answer(status: StatusCode, body: String, kind: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    answer
}
