//! Translates the figures of `/metrics` to OTLP.

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::KeyValue,
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
    },
};
use pgweir_core::{
    Time,
    base::stats::{BUCKETS, upper_bound},
};
use prost::Message;

use super::{resource, scope, signed, spans::nanos, text};
use crate::http::{FamilyPoints, Kind, PointValue};

/// Returns the message with these families. Counters count since `since`.
pub(crate) fn metrics_request(
    service_name: &str,
    families: Vec<FamilyPoints>,
    (since, now): (Time, Time),
) -> Vec<u8> {
    let times = (nanos(since), nanos(now));
    let metrics = families.into_iter().map(|family| metric(family, times));
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource(service_name)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: metrics.collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec()
}

fn metric(family: FamilyPoints, times: (u64, u64)) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let points = family.points.into_iter();
    let data = match family.kind {
        Kind::Gauge => Data::Gauge(Gauge {
            data_points: points
                .map(|(labels, value)| number(&labels, &value, times))
                .collect(),
        }),
        Kind::Counter => Data::Sum(Sum {
            data_points: points
                .map(|(labels, value)| number(&labels, &value, times))
                .collect(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: points
                .filter_map(|(labels, value)| histogram(&labels, &value, times))
                .collect(),
            aggregation_temporality: cumulative,
        }),
    };
    let is_time = family.name.ends_with("_seconds");
    Metric {
        name: family.name,
        description: family.help.to_owned(),
        unit: if is_time { "s" } else { "" }.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<KeyValue> {
    let pairs = labels.iter();
    pairs.map(|(name, value)| text(name, value)).collect()
}

fn number(
    labels: &[(String, String)],
    value: &PointValue,
    (since, now): (u64, u64),
) -> NumberDataPoint {
    let value = match value {
        PointValue::Number(number) => Value::AsInt(signed(*number)),
        PointValue::Micros(micros) => Value::AsDouble(seconds(*micros)),
        PointValue::Histogram(histogram) => Value::AsInt(signed(histogram.count())),
    };
    NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since,
        time_unix_nano: now,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

fn histogram(
    labels: &[(String, String)],
    value: &PointValue,
    (since, now): (u64, u64),
) -> Option<HistogramDataPoint> {
    let PointValue::Histogram(histogram) = value else {
        return None;
    };
    let mut below = 0;
    let cumulative = histogram.cumulative().chain([histogram.count()]);
    let counts = cumulative.map(|count| count - std::mem::replace(&mut below, count));
    Some(HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since,
        time_unix_nano: now,
        count: histogram.count(),
        sum: Some(seconds(histogram.sum())),
        bucket_counts: counts.collect(),
        explicit_bounds: (0..BUCKETS)
            .map(|bucket| seconds(upper_bound(bucket)))
            .collect(),
        ..HistogramDataPoint::default()
    })
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use pgweir_core::base::stats;

    use super::*;

    #[test]
    fn buckets_have_their_own_counts() {
        let mut times = stats::Histogram::default();
        for micros in [1, 100, 120, 1 << 40] {
            times.observe(micros);
        }
        let value = PointValue::Histogram(Box::new(times));
        let point = histogram(&[], &value, (1, 2)).unwrap();
        assert_eq!(point.bucket_counts[..3], [1, 2, 0]);
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!((point.bucket_counts[BUCKETS], point.count), (1, 4));
    }
}
