//! Runs each target over its committed corpus (`fuzz/corpus`), and then over mutations of the corpus.
//!
//! A target runs for `PGWEIR_FUZZ_SECONDS` seconds (2 if not set; with 0, only over the corpus). `PGWEIR_FUZZ_SEED`
//! repeats the mutations of a seed. An input that makes a target fail is written to `fuzz/artifacts`, as libFuzzer does.

#![expect(clippy::disallowed_methods, reason = "a run lasts for some seconds")]

use std::{
    collections::hash_map::RandomState,
    env, fs,
    hash::{BuildHasher, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fastrand::Rng;
use pgweir_fuzz_targets::TARGETS;

/// Seconds of mutations for each target, if the environment does not set them.
const SECONDS: u64 = 2;
/// The length to which an input is cut, since longer inputs are only slower.
const INPUT_MAX: usize = 4096;
/// The number of changes to an input at a time.
const CHANGES_MAX: usize = 5;
/// Bytes that often reveal faults of parsers.
const EDGES: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\n",
    b"\"",
    b"'",
    b"$",
    b"\\",
    b"%",
    b"\0\0\0\0",
    b"\0\0\0\x04",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\n---\n",
    b"%include ",
];

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(kind)
        .join(target)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
    )
}

/// Returns the committed inputs of a target, ordered by name.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = folder("corpus", target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("an input"))
        .collect()
}

/// Runs a target. An input that makes the target panic is written to a file.
fn check(target: &str, run: fn(&[u8]), input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| run(input))).is_ok() {
        return;
    }
    let folder = folder("artifacts", target);
    let path = folder.join(format!("{:016x}", hash(input)));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, input))
        .expect("the input is kept");
    panic!(
        "{target} fails with {origin}: the input is {}",
        path.display()
    );
}

/// Returns the FNV-1a hash of an input, for a file name that is the same each time.
fn hash(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Returns a random input: a committed one, changed in a few places.
fn mutated(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..=CHANGES_MAX) {
        change(&mut input, corpus, rng);
    }
    input.truncate(INPUT_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let some = at..(at + rng.usize(..=16)).min(input.len());
    match rng.u8(..7) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.u8(..);
            }
        }
        2 => drop(input.drain(some)),
        3 => {
            let again = input[some].to_vec();
            input.splice(at..at, again);
        }
        4 => {
            let edge = EDGES[rng.usize(..EDGES.len())];
            input.splice(some, edge.iter().copied());
        }
        5 => input.insert(at, rng.u8(..)),
        _ => {
            // The beginning of the input, and the end of another one.
            let other = &corpus[rng.usize(..corpus.len())];
            input.truncate(at);
            input.extend_from_slice(&other[rng.usize(..=other.len())..]);
        }
    }
}

fn play(name: &str) {
    let (target, run) = *TARGETS
        .iter()
        .find(|(target, _)| *target == name)
        .expect("a target");
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{target} has no corpus");
    for (number, input) in corpus.iter().enumerate() {
        check(target, run, input, &format!("committed input {number}"));
    }
    let seed =
        number("PGWEIR_FUZZ_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seconds = number("PGWEIR_FUZZ_SECONDS").unwrap_or(SECONDS);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut rng = Rng::with_seed(seed);
    let mut count = 0_u64;
    while Instant::now() < until {
        check(
            target,
            run,
            &mutated(&corpus, &mut rng),
            &format!("mutation {count} of PGWEIR_FUZZ_SEED={seed}"),
        );
        count += 1;
    }
    assert!(count > 0 || seconds == 0, "no time for a mutation");
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            play(stringify!($name));
        })*

        #[test]
        fn each_target_has_a_test() {
            assert_eq!(TARGETS.map(|(name, _)| name).to_vec(), [$(stringify!($name)),*]);
        }
    };
}

targets!(
    etcd, files, hba, http, ini, patroni, records, scan, scram, takeover, userlist, worker
);

#[test]
fn mutations_are_those_of_their_seed() {
    let corpus = vec![b"SELECT 1".to_vec(), b"BEGIN; COMMIT".to_vec()];
    let some = |seed| {
        let mut rng = Rng::with_seed(seed);
        (0..50)
            .map(|_| mutated(&corpus, &mut rng))
            .collect::<Vec<_>>()
    };
    assert_eq!(some(1), some(1));
    assert_ne!(some(1), some(2));
    assert!(some(1).iter().all(|input| input.len() <= INPUT_MAX));
}

/// A failure names its input.
#[test]
fn a_failure_keeps_its_input() {
    let failed = catch_unwind(|| check("none", |input| assert!(input != b"bad"), b"bad", "a test"));
    let words = *failed
        .expect_err("it fails")
        .downcast::<String>()
        .expect("a text");
    assert!(
        words.starts_with("none fails with a test: the input is "),
        "{words}"
    );
    let path = folder("artifacts", "none").join(format!("{:016x}", hash(b"bad")));
    assert_eq!(fs::read(&path).expect("kept"), b"bad");
    fs::remove_dir_all(folder("artifacts", "none")).expect("removed");
}
