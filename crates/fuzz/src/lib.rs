//! Fuzz targets for the code of the crates auth, config, core, formats and records that parses bytes from the network or from
//! files. A target is a function of arbitrary bytes, which panics if a check fails.
//!
//! libFuzzer calls the targets (`fuzz/`, with a nightly compiler). This crate's tests call them for the same corpus and for
//! mutations of it (`tests/corpus.rs`).

pub mod etcd;
pub mod files;
pub mod hba;
pub mod http;
pub mod ini;
pub mod patroni;
pub mod records;
pub mod scan;
pub mod scram;
pub mod takeover;
pub mod userlist;
pub mod worker;

/// A target: its name, which is also the name of its folder in `fuzz/corpus`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("etcd", etcd::run),
    ("files", files::run),
    ("hba", hba::run),
    ("http", http::run),
    ("ini", ini::run),
    ("patroni", patroni::run),
    ("records", records::run),
    ("scan", scan::run),
    ("scram", scram::run),
    ("takeover", takeover::run),
    ("userlist", userlist::run),
    ("worker", worker::run),
];
