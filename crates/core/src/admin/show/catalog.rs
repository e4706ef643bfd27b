//! SHOW CATALOG and SHOW OPAQUE: the facts that pgweir has read about databases' functions and relations, and which of
//! these make statements opaque.

use std::collections::BTreeMap;

use crate::{
    CatalogReport, Time,
    admin::Admin,
    console::{Cell, Column, Kind, Table},
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 14] = [
    ("database", Text),
    ("state", Text),
    ("reason", Text),
    ("unclean", Text),
    ("functions", Int4),
    ("opaque_functions", Int4),
    ("relations", Int4),
    ("opaque_relations", Int4),
    ("read_ago", Int8),
    ("read_time", Int8),
    ("readings", Int8),
    ("ddl", Int4),
    ("system_identifier", Text),
    ("database_oid", Int8),
];

const OPAQUE_COLUMNS: [Column; 6] = [
    ("database", Text),
    ("kind", Text),
    ("name", Text),
    ("read", Text),
    ("write", Text),
    ("reason", Text),
];

/// Returns the reports by entry of `[databases]`.
fn reports(admin: &Admin<'_>) -> BTreeMap<String, CatalogReport> {
    let pools = admin.env.directory.pools().into_iter();
    let reports = pools.map(|pool| (pool.key.database.to_string(), pool.catalog.report()));
    reports.collect()
}

fn optional(text: Option<&str>) -> Cell {
    text.map_or(Cell::Null, Cell::from)
}

pub(super) fn catalogs(admin: &Admin<'_>, now: Time) -> Table {
    let rows = reports(admin).into_iter().map(|(database, report)| {
        let counts = report.certificates.counts();
        let (read_ago, read_time) = match report.read_at {
            Some((at, took)) => (Cell::Int(now.since(at) / 1_000_000), Cell::Int(took)),
            None => (Cell::Null, Cell::Null),
        };
        let (system, oid) = match &report.identity {
            Some(of) => (Cell::from(&*of.system), Cell::Int(of.database.into())),
            None => (Cell::Null, Cell::Null),
        };
        vec![
            database.as_str().into(),
            report.state().into(),
            optional(report.reason()),
            optional(report.certificates.unclean_reason()),
            counts.functions.into(),
            counts.opaque_functions.into(),
            counts.relations.into(),
            counts.opaque_relations.into(),
            read_ago,
            read_time,
            Cell::Int(report.readings),
            Cell::Int(report.ddl.into()),
            system,
            oid,
        ]
    });
    (COLUMNS.into(), rows.collect())
}

pub(super) fn opaque(admin: &Admin<'_>) -> Table {
    let mut rows = Vec::new();
    for (database, report) in reports(admin) {
        for object in report.certificates.opaque_objects() {
            rows.push(vec![
                database.as_str().into(),
                object.kind.into(),
                (*object.name).into(),
                object.traces.read.to_string().as_str().into(),
                object.traces.write.to_string().as_str().into(),
                optional(object.reason.as_deref()),
            ]);
        }
    }
    (OPAQUE_COLUMNS.into(), rows)
}
