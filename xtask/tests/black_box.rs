//! House rules of the black-box tests (`tests/*.py`): they wait for conditions, and each helper is defined in one
//! place.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Calls that wait for a fixed time.
const SLEEPS: &[&str] = &["time.sleep(", "asyncio.sleep("];

/// Files that may sleep: the number of times, and the reason.
const TESTS_THAT_SLEEP: &[(&str, usize, &str)] = &[
    (
        "machine.py",
        2,
        "`wait_until` and `every` pause between two looks",
    ),
    (
        "leaks/protocol.py",
        1,
        "nothing shows that the pooler has lent the server to somebody else",
    ),
];

/// A function or class at the first level of a file.
struct Helper {
    path: PathBuf,
    name: String,
    body: String,
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

/// Returns the Python files below a folder. Drivers are programs of their own, which share nothing.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("drivers") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "py") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sleeps_in(text: &str) -> usize {
    SLEEPS.iter().map(|call| text.matches(call).count()).sum()
}

/// Returns the functions and classes at the first level of a file, without decorators. Tests are left out.
fn helpers(path: &Path, text: &str) -> Vec<Helper> {
    let mut found: Vec<Helper> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let is_indented = line.starts_with([' ', '\t']) || line.is_empty() || line.starts_with(')');
        let named = ["def ", "async def ", "class "]
            .iter()
            .find_map(|word| line.strip_prefix(word));
        if let Some(rest) = named {
            let end = rest.find(['(', ':']).unwrap_or(rest.len());
            let name = rest[..end].to_owned();
            is_inside = !name.starts_with("test_");
            if is_inside {
                found.push(Helper {
                    path: path.to_owned(),
                    name,
                    body: rest[end..].to_owned(),
                });
            }
        } else if !is_indented {
            is_inside = false;
        } else if is_inside && let Some(helper) = found.last_mut() {
            helper.body.push('\n');
            helper.body.push_str(line.trim_end());
        }
    }
    for helper in &mut found {
        helper.body.truncate(helper.body.trim_end().len());
    }
    found
}

/// Returns the helpers that are defined in several files with the same name and the same body.
fn repeated(helpers: Vec<Helper>) -> Vec<String> {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for helper in helpers {
        places
            .entry((helper.name, helper.body))
            .or_default()
            .push(helper.path.display().to_string());
    }
    places
        .into_iter()
        .filter(|(_, paths)| paths.len() > 1)
        .map(|((name, _), paths)| {
            format!(
                "`{name}` stands in {}: move it to the module of its subject",
                paths.join(" and ")
            )
        })
        .collect()
}

#[test]
fn tests_wait_for_conditions() {
    let mut complaints = Vec::new();
    for path in sources(&tests()) {
        let count = sleeps_in(&fs::read_to_string(&path).expect("text"));
        let allowed = TESTS_THAT_SLEEP
            .iter()
            .find(|(name, _, _)| path == tests().join(name))
            .map_or(0, |(_, count, _)| *count);
        if count != allowed {
            complaints.push(format!(
                "{}: {count} sleeps, {allowed} allowed: use machine.wait_until, stays_true or every",
                path.display()
            ));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn a_helper_stands_in_one_place() {
    let mut all = Vec::new();
    for path in sources(&tests()) {
        all.extend(helpers(&path, &fs::read_to_string(&path).expect("text")));
    }
    assert!(all.len() > 300, "{} helpers", all.len());
    let complaints = repeated(all);
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The two checks above can fail.
#[test]
fn repetitions_and_sleeps_are_found() {
    let one =
        "import time\n\n\n@fixture\ndef wait(a):\n    time.sleep(1)\n\n\ndef test_a():\n    pass\n";
    let other = "def wait(a):\n    time.sleep(1)\n\n# end\n\ndef test_a():\n    pass\n";
    let mut all = helpers(Path::new("one.py"), one);
    all.extend(helpers(Path::new("other.py"), other));
    assert_eq!(all.len(), 2);
    assert_eq!(
        repeated(all),
        ["`wait` stands in one.py and other.py: move it to the module of its subject"]
    );
    assert_eq!(sleeps_in(one), 1);
    let third = helpers(Path::new("third.py"), "def wait(a):\n    time.sleep(2)\n");
    let mut differing = helpers(Path::new("one.py"), one);
    differing.extend(third);
    assert!(repeated(differing).is_empty());
}
