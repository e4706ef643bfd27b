//! Checks the rights of a request's sender, and refuses requests that a page of another site makes a browser send.

use hyper::{
    HeaderMap, StatusCode,
    header::{HOST, HeaderValue, ORIGIN},
};

use super::{problem::Problem, routes::Route};
use crate::http::{
    access::Role,
    identity::{Identity, Unidentified, identify},
    pages::Sender,
    state::State,
};

/// Identifies the sender of a request, and checks its right to the request.
pub(super) async fn grant(
    state: &State,
    sender: &Sender,
    headers: &HeaderMap,
    route: &Route,
    needed: Role,
) -> Result<Identity, Problem> {
    let problem = match identify(state, sender, headers).await {
        Ok(identity) if identity.role >= needed => return Ok(identity),
        Ok(_) => {
            let detail = "only admin_users, and tokens of an admin, may do this";
            Problem::new(StatusCode::FORBIDDEN, detail)
        }
        Err(Unidentified::None) => {
            // The live page sends such requests before its user has logged in, so the log has no line about them.
            return Err(Problem::unauthorized(
                "send `Authorization: Bearer TOKEN` with a token of http_tokens, or the name and password of a user \
                 of admin_users or stats_users by HTTP Basic",
            ));
        }
        Err(Unidentified::Wrong) => Problem::unauthorized(
            "the token is unknown, or the console refuses this user and password: it admits admin_users and stats_users",
        ),
        Err(Unidentified::Throttled(seconds)) => Problem::throttled(seconds),
        Err(Unidentified::Unavailable(why)) => Problem::unavailable(why),
    };
    state.say_refused(sender, route.path, problem.detail());
    Err(problem)
}

/// Refuses a request that a page of another site makes a browser send.
pub(super) fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let site = headers.get("sec-fetch-site").map(text);
    let is_ours = |origin: &str| {
        let host = headers.get(HOST).map(text);
        let bare = origin.split_once("://").map(|(_, host)| host.to_owned());
        bare.is_some() && bare == host
    };
    let origin = headers.get(ORIGIN).map(text);
    let is_foreign = site.is_some_and(|site| site != "same-origin" && site != "none")
        || origin.is_some_and(|origin| !is_ours(&origin));
    match is_foreign {
        true => {
            let detail = "requests that the page of another site makes are refused";
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_other_sites_are_refused() {
        for (headers, is_allowed) in [
            (vec![], true),
            (
                vec![("host", "db:9127"), ("origin", "http://db:9127")],
                true,
            ),
            (
                vec![("host", "db:9127"), ("origin", "https://db:9127")],
                true,
            ),
            (vec![("host", "db:9127"), ("origin", "http://db")], false),
            (
                vec![("host", "db:9127"), ("origin", "http://evil:9127")],
                false,
            ),
            (vec![("origin", "null")], false),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "none")], true),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("sec-fetch-site", "cross-site")], false),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(check_site(&map).is_ok(), is_allowed, "{headers:?}");
        }
    }
}
