//! OpenTelemetry: the messages of OTLP, and the queue of traces. The HTTP thread sends them (`http/export`).
//!
//! - `queue`: traces on their way from the workers to the HTTP thread.
//! - `collector`: one request to a collector. `spans`, `points`: the messages for traces and for metrics.

mod collector;
mod points;
mod queue;
mod spans;

use std::time::Duration;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
};
use pgweir_config::{Collector, Settings};

pub(crate) use self::{
    collector::CollectorClient, points::metrics_request, queue::TraceQueue, spans::traces_request,
};

/// The target of traces and metrics, and the settings for sending them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) collector: Collector,
    pub(crate) service_name: String,
    pub(crate) timeout: Duration,
    /// The time between two reports of metrics, if there are any.
    pub(crate) metrics_interval: Option<Duration>,
}

impl Target {
    /// Returns the target that the configuration names, if it names one.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        /// The shortest time between two reports: a shorter setting is replaced by it.
        const INTERVAL_MIN: Duration = Duration::from_secs(1);
        let collector = settings.otlp_endpoint.collector()?.clone();
        let interval = settings.otlp_metrics_interval;
        Some(Self {
            collector,
            service_name: settings.otlp_service_name.clone(),
            timeout: Duration::from_micros(settings.otlp_timeout.0),
            metrics_interval: (!interval.is_zero())
                .then(|| Duration::from_micros(interval.0).max(INTERVAL_MIN)),
        })
    }
}

/// Describes the process for traces and metrics.
fn resource(service_name: &str) -> Resource {
    Resource {
        attributes: vec![
            text("service.name", service_name),
            text("service.version", env!("CARGO_PKG_VERSION")),
            number("process.pid", u64::from(std::process::id())),
        ],
        ..Resource::default()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "pgweir".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(signed(value)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
