//! Whatever reads foreign bytes, as functions of any bytes: each panics if something is wrong.
//!
//! libFuzzer calls them (`fuzz/`, with a nightly compiler), and so do this crate's tests, over the same corpus and with
//! mutations of it (`tests/corpus.rs`).

pub mod hba;
pub mod ini;
pub mod scan;
pub mod scram;
pub mod takeover;
pub mod userlist;
pub mod worker;

/// A target's name, which is that of its folder in `fuzz/corpus`, and what it does with some bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("hba", hba::run),
    ("ini", ini::run),
    ("scan", scan::run),
    ("scram", scram::run),
    ("takeover", takeover::run),
    ("userlist", userlist::run),
    ("worker", worker::run),
];
