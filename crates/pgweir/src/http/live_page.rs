//! The live page: one HTML file, which loads nothing from other sites and reads the API.

use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::Full;
use hyper::{
    HeaderMap, Response,
    body::Bytes,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    },
};
use sha2::{Digest, Sha256};

use super::pages::Answer;

const TEXT: &str = include_str!("page/live.html");

/// The page, and the policy that tells browsers which actions of the page they have to allow.
#[derive(Debug)]
pub(super) struct LivePage {
    policy: Option<HeaderValue>,
}

impl Default for LivePage {
    fn default() -> Self {
        let (script, style) = (hash("script"), hash("style"));
        let policy = format!(
            "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Self {
            policy: HeaderValue::from_str(&policy).ok(),
        }
    }
}

impl LivePage {
    pub(super) fn answer(&self) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from_static(TEXT.as_bytes())));
        let headers = answer.headers_mut();
        let fixed = HeaderValue::from_static;
        headers.insert(CONTENT_TYPE, fixed("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, fixed("no-store"));
        headers.insert(REFERRER_POLICY, fixed("no-referrer"));
        headers.insert("x-content-type-options", fixed("nosniff"));
        headers.insert("x-frame-options", fixed("DENY"));
        // Without the policy, a browser would run a script that an attacker has inserted into the page.
        headers.insert(
            CONTENT_SECURITY_POLICY,
            self.policy.clone().unwrap_or(fixed("default-src 'none'")),
        );
        answer
    }
}

/// Returns whether the request comes from a browser. Other clients get a list of addresses.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns the hash of the page's only element of this name, in the form of a policy.
fn hash(element: &str) -> String {
    let open = format!("<{element}>");
    let content = TEXT.split_once(&open).and_then(|(_, rest)| {
        let (content, _) = rest.split_once(&format!("</{element}>"))?;
        Some(content)
    });
    let hash = Sha256::digest(content.unwrap_or_default().as_bytes());
    format!("sha256-{}", BASE64_STANDARD.encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_and_makes_no_markup_of_values() {
        for element in ["<script>", "<style>"] {
            assert_eq!(TEXT.matches(element).count(), 1, "{element}");
        }
        for banned in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=\"",
            "onclick=\"",
            "src=",
            "http://",
            "https://",
            "@import",
            "url(",
        ] {
            let text = TEXT.replace("\"http://www.w3.org/2000/svg\"", "");
            assert!(!text.contains(banned), "{banned}");
        }
    }

    #[test]
    fn the_policy_names_script_and_style() {
        let policy = LivePage::default().policy.expect("a policy");
        let policy = policy.to_str().expect("a text");
        let empty = BASE64_STANDARD.encode(Sha256::digest(b""));
        assert!(
            !policy.contains(&empty) && !policy.contains("unsafe"),
            "{policy}"
        );
    }

    #[test]
    fn browsers_ask_for_html() {
        let asked = |value| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(value));
            is_wanted(&headers)
        };
        assert!(asked("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(!asked("*/*") && !is_wanted(&HeaderMap::new()));
    }
}
