//! The spans of a traced transaction.
//!
//! ```text
//! transaction            from the client's request to the last answer
//!   wait for a server    if there was a wait
//!   set session state    if the server did not have the client's
//!   postgresql           from the first request that went to the server to the last answer
//! ```

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::KeyValue,
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode},
};
use pgweir_core::{Endpoint, Time, TransactionTrace, pool::PoolKey};
use prost::Message;

use super::{number, resource, scope, text};

/// The flag of W3C Trace Context.
const SAMPLED: u32 = 1;

/// Returns the message with these traces.
pub(crate) fn traces_request(service_name: &str, traces: &[TransactionTrace]) -> Vec<u8> {
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource(service_name)),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: traces.iter().flat_map(spans).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec()
}

fn spans(trace: &TransactionTrace) -> Vec<Span> {
    let trace_id = trace
        .parent
        .map_or_else(rand::random, |parent| parent.trace_id);
    let root_id: [u8; 8] = rand::random();
    let child = |name: &str, kind, from: Time, to: Time, attributes| Span {
        parent_span_id: root_id.to_vec(),
        ..span(trace_id, rand::random(), name, kind, (from, to), attributes)
    };
    let whole = (trace.asked_at, trace.ended_at);
    let root = span(
        trace_id,
        root_id,
        "transaction",
        SpanKind::Server,
        whole,
        attributes(trace),
    );
    let parent = trace.parent.map(|parent| parent.span_id.to_vec());
    let mut spans = vec![Span {
        parent_span_id: parent.unwrap_or_default(),
        status: status(trace),
        ..root
    }];
    let lent_at = trace.lent_at.unwrap_or(trace.ended_at);
    if lent_at > trace.asked_at {
        let kind = SpanKind::Internal;
        spans.push(child(
            "wait for a server",
            kind,
            trace.asked_at,
            lent_at,
            Vec::new(),
        ));
    }
    if trace.lent_at.is_none() {
        return spans;
    }
    if trace.relayed_at > lent_at {
        let kind = SpanKind::Internal;
        spans.push(child(
            "set session state",
            kind,
            lent_at,
            trace.relayed_at,
            Vec::new(),
        ));
    }
    let mut used = database(&trace.pool);
    used.extend(server(trace.endpoint.as_ref()));
    used.push(number("pgweir.requests", u64::from(trace.requests)));
    used.push(number("pgweir.server_time_us", trace.server_us));
    let kind = SpanKind::Client;
    spans.push(child(
        "postgresql",
        kind,
        trace.relayed_at,
        trace.ended_at,
        used,
    ));
    spans
}

fn attributes(trace: &TransactionTrace) -> Vec<KeyValue> {
    let pool = &trace.pool;
    let mut attributes = database(&trace.client);
    attributes.push(text(
        "pgweir.pool",
        &format!("{}/{}", pool.database, pool.user),
    ));
    attributes.push(number("pgweir.requests", u64::from(trace.requests)));
    let waited = trace
        .lent_at
        .unwrap_or(trace.ended_at)
        .since(trace.asked_at);
    attributes.push(number("pgweir.wait_us", waited));
    attributes.push(number("pgweir.server_time_us", trace.server_us));
    if let Some(micros) = trace.inspection_us {
        attributes.push(number("pgweir.inspection_us", micros));
    }
    if let Some(sqlstate) = sqlstate(trace) {
        attributes.push(text("db.response.status_code", sqlstate));
    }
    attributes
}

/// Returns the attributes for database and user, by the names of the present and of earlier semantic conventions.
fn database(key: &PoolKey) -> Vec<KeyValue> {
    vec![
        text("db.system.name", "postgresql"),
        text("db.system", "postgresql"),
        text("db.namespace", &key.database),
        text("db.user", &key.user),
    ]
}

fn server(endpoint: Option<&Endpoint>) -> Vec<KeyValue> {
    match endpoint {
        None => Vec::new(),
        Some(Endpoint::Unix(path)) => vec![text("server.address", path)],
        Some(Endpoint::Tcp { host, port }) => vec![
            text("server.address", host),
            number("server.port", u64::from(*port)),
        ],
    }
}

fn sqlstate(trace: &TransactionTrace) -> Option<&str> {
    let code = trace.sqlstate.as_ref()?;
    std::str::from_utf8(code).ok()
}

fn status(trace: &TransactionTrace) -> Option<Status> {
    let message = match sqlstate(trace) {
        Some(code) => format!("SQLSTATE {code}"),
        None if !trace.is_complete => "the connection ended in the transaction".to_owned(),
        None => return None,
    };
    Some(Status {
        message,
        code: StatusCode::Error.into(),
    })
}

fn span(
    trace_id: [u8; 16],
    span_id: [u8; 8],
    name: &str,
    kind: SpanKind,
    (from, to): (Time, Time),
    attributes: Vec<KeyValue>,
) -> Span {
    Span {
        trace_id: trace_id.to_vec(),
        span_id: span_id.to_vec(),
        name: name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(from),
        end_time_unix_nano: nanos(to.max(from)),
        attributes,
        flags: SAMPLED,
        ..Span::default()
    }
}

/// Returns the nanoseconds since 1970.
pub(super) fn nanos(time: Time) -> u64 {
    time.0.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use pgweir_core::TraceParent;

    use super::*;

    fn trace() -> TransactionTrace {
        let key = |database: &str| PoolKey {
            database: database.into(),
            user: "ann".into(),
        };
        TransactionTrace {
            client: key("app"),
            pool: key("app"),
            endpoint: Some(Endpoint::of("db.example", 5432)),
            parent: None,
            asked_at: Time(10),
            lent_at: Some(Time(30)),
            relayed_at: Time(40),
            ended_at: Time(90),
            requests: 3,
            server_us: 45,
            inspection_us: None,
            sqlstate: None,
            is_complete: true,
        }
    }

    fn names(spans: &[Span]) -> Vec<(&str, u64, u64)> {
        let times = |span: &Span| (span.start_time_unix_nano, span.end_time_unix_nano);
        let row = |span| (times(span).0, times(span).1);
        spans
            .iter()
            .map(|span| (&*span.name, row(span).0, row(span).1))
            .collect()
    }

    #[test]
    fn the_parts_of_a_transaction_are_children() {
        let found = spans(&trace());
        assert_eq!(
            names(&found),
            [
                ("transaction", 10_000, 90_000),
                ("wait for a server", 10_000, 30_000),
                ("set session state", 30_000, 40_000),
                ("postgresql", 40_000, 90_000),
            ]
        );
        assert!(found[0].parent_span_id.is_empty() && found[0].status.is_none());
        for span in &found {
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            assert_eq!(span.trace_id, found[0].trace_id);
        }
        assert!(
            found[1..]
                .iter()
                .all(|span| span.parent_span_id == found[0].span_id)
        );
    }

    #[test]
    fn a_parent_is_kept_and_errors_show() {
        let parent = TraceParent {
            trace_id: [7; 16],
            span_id: [9; 8],
            is_sampled: true,
        };
        let found = spans(&TransactionTrace {
            parent: Some(parent),
            lent_at: None,
            sqlstate: Some(*b"08006"),
            is_complete: false,
            ..trace()
        });
        assert_eq!(
            names(&found),
            [
                ("transaction", 10_000, 90_000),
                ("wait for a server", 10_000, 90_000)
            ]
        );
        assert_eq!(found[0].trace_id, [7; 16]);
        assert_eq!(found[0].parent_span_id, [9; 8]);
        let status = found[0].status.as_ref().unwrap();
        assert_eq!(status.message, "SQLSTATE 08006");
    }
}
