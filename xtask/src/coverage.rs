//! Generates the page that lists the black-box tests of each setting, from marks in `tests/*.py` and the table of
//! settings.
//!
//! A test says `@pytest.mark.shows("query_timeout", "user.query_timeout")`; the page `docs/compatibility.md` is
//! generated from these marks. A setting without such a test is an error.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use pgweir_config::{Effect, Scope, SettingInfo};

/// The path of the generated page.
pub(crate) const PAGE: &str = "docs/compatibility.md";

const MARK: &str = "mark.shows(";

/// Tests by the key they show, as marks spell it.
pub(crate) type Shown = BTreeMap<String, Vec<Test>>;

/// A test function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    file: String,
    name: String,
}

/// The spelling of a setting in a mark: a global one without a prefix, others with their scope.
pub(crate) fn spelling(info: &SettingInfo) -> String {
    match info.scope {
        Scope::Global => info.name.to_owned(),
        Scope::Database => format!("database.{}", info.name),
        Scope::User => format!("user.{}", info.name),
        Scope::Peer => format!("peer.{}", info.name),
    }
}

/// Returns the page, generated from the table and from the marks of the tests below `root`.
pub(crate) fn page(root: &Path) -> io::Result<String> {
    Ok(write_page(&read_tests(&root.join("tests"))?))
}

/// Returns all marks of the test files in a folder.
fn read_tests(folder: &Path) -> io::Result<Shown> {
    let mut shown = Shown::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if file.starts_with("test_") && file.ends_with(".py") {
            read_marks(&file, &fs::read_to_string(&path)?, &mut shown)
                .map_err(|complaint| io::Error::new(ErrorKind::InvalidData, complaint))?;
        }
    }
    for tests in shown.values_mut() {
        tests.sort();
        tests.dedup();
    }
    Ok(shown)
}

/// Adds the marks of one file; each belongs to the next test function.
fn read_marks(file: &str, text: &str, shown: &mut Shown) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(MARK) {
        let complain = |what: &str| {
            let line = text[..text.len() - behind.len()].lines().count();
            format!("tests/{file}:{line}: {what}")
        };
        let (arguments, after) = behind
            .split_once(')')
            .ok_or_else(|| complain("`shows(` without its end"))?;
        let name = next_test(after).ok_or_else(|| complain("no test follows the mark"))?;
        for argument in arguments.split(',').map(str::trim) {
            if argument.is_empty() {
                continue;
            }
            let key = argument
                .strip_prefix('"')
                .and_then(|inside| inside.strip_suffix('"'))
                .ok_or_else(|| complain("keys stand between double quotes"))?;
            shown.entry(key.to_owned()).or_default().push(Test {
                file: file.to_owned(),
                name: name.to_owned(),
            });
        }
        rest = after;
    }
    Ok(())
}

fn next_test(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.strip_prefix("def test_"))
        .and_then(|line| line.split_once('('))
        .map(|(name, _)| name)
}

fn write_page(shown: &Shown) -> String {
    let mut out = String::from(INTRO);
    for scope in Scope::ALL {
        out.push_str(&format!("\n## Section [{}]\n\n", scope.section()));
        out.push_str("| key | what it does | shown by |\n|---|---|---|\n");
        for info in scope.settings() {
            out.push_str(&row(info, shown));
        }
    }
    out
}

fn row(info: &SettingInfo, shown: &Shown) -> String {
    let tests = links(shown.get(&spelling(info)));
    let effect = match info.effect {
        Effect::Now => first_sentence(info.doc),
        Effect::Never => "Accepted, but has no effect.".to_owned(),
    };
    format!(
        "| `{}` | {} | {tests} |\n",
        info.name,
        effect.replace('|', "\\|")
    )
}

fn first_sentence(doc: &str) -> String {
    let lines: Vec<_> = doc.lines().map(str::trim).collect();
    let text = lines.join(" ");
    let text = text.trim();
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].to_owned()
}

/// Returns the tests, by file: `test_pooling: reset_query, connect_query`.
fn links(tests: Option<&Vec<Test>>) -> String {
    let Some(tests) = tests else {
        return "**nothing yet**".to_owned();
    };
    let of_files: Vec<_> = tests
        .chunk_by(|a, b| a.file == b.file)
        .map(|tests| {
            let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
            let file = &tests[0].file;
            let title = file.trim_end_matches(".py");
            format!("[{title}](../tests/{file}): {}", names.join(", "))
        })
        .collect();
    of_files.join("; ")
}

const INTRO: &str = "\
<!-- Generated from crates/config/src/table and the marks in tests by `cargo xtask docs`. -->

# Compatibility: each key, what it does, and the test that shows it

pgweir accepts every key of PgBouncer's file. The last column names the black-box tests that show the key's effect, with
a real client on a real PostgreSQL. pgweir also checks the values of the few keys without an effect, and its log names
them at the start. Types, units and defaults are in [settings.md](settings.md).
";

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn settings() -> impl Iterator<Item = &'static SettingInfo> {
        Scope::ALL.into_iter().flat_map(|scope| scope.settings())
    }

    fn marks(text: &str) -> Result<Vec<(String, String)>, String> {
        let mut shown = Shown::new();
        read_marks("test_x.py", text, &mut shown)?;
        Ok(shown
            .into_iter()
            .flat_map(|(key, tests)| tests.into_iter().map(move |test| (key.clone(), test.name)))
            .collect())
    }

    #[test]
    fn a_mark_belongs_to_the_next_test() {
        let text = "@pytest.mark.shows(\"b\", \"user.a\",\n    \"c\")\n@other\ndef test_one(pg):\n\
                    \x20   pass\n\n@pytest.mark.shows(\"b\")\nasync = 1\ndef test_two():\n";
        let pairs = marks(text).unwrap();
        let expected = [("b", "one"), ("b", "two"), ("c", "one"), ("user.a", "one")];
        assert_eq!(
            pairs,
            expected.map(|(key, test)| (key.to_owned(), test.to_owned()))
        );
    }

    #[test]
    fn unreadable_marks_are_reported() {
        for text in [
            "@pytest.mark.shows(KEYS)\ndef test_x():",
            "@pytest.mark.shows(\"a\"",
            "@pytest.mark.shows(\"a\")\ndef helper():",
        ] {
            assert!(marks(text).unwrap_err().starts_with("tests/test_x.py:1: "));
        }
    }

    #[test]
    fn every_mark_names_a_setting() {
        let shown = read_tests(&root().join("tests")).unwrap();
        for (key, tests) in shown {
            assert!(
                settings().any(|info| spelling(info) == key),
                "{tests:?}: there is no setting `{key}`"
            );
        }
    }

    #[test]
    fn every_setting_is_shown() {
        let shown = read_tests(&root().join("tests")).unwrap();
        let bare: Vec<_> = settings()
            .map(spelling)
            .filter(|key| !shown.contains_key(key))
            .collect();
        assert!(bare.is_empty(), "no test is marked with it: {bare:?}");
    }

    #[test]
    fn the_page_is_current() {
        let page_now = page(&root()).unwrap();
        let written = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
        assert!(
            page_now == written,
            "{PAGE} is stale: run `cargo xtask docs`"
        );
    }
}
