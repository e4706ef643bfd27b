//! The C functions of known extensions, by their names in the extension.

use std::collections::HashMap;

/// Lines of `extension: names`. Functions after a `!` run SQL or set parameters, but leave only session state that a
/// clean removes. The table covers contrib of PostgreSQL 15 and 18, pgvector and PostGIS 3.3. Functions that are not
/// listed count as opaque.
const TABLE: &str = include_str!("extensions.txt");

/// The facts known about a C function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The function keeps no session state.
    Clean,
    /// The function may do anything that SQL can do.
    RunsSql,
}

/// The functions of one extension.
#[derive(Debug)]
pub(super) struct Extensions {
    functions: HashMap<(&'static str, &'static str), Known>,
}

impl Extensions {
    pub(super) fn new() -> Self {
        let mut functions = HashMap::new();
        for line in TABLE.lines() {
            let (known, line) = match line.strip_prefix('!') {
                Some(line) => (Known::RunsSql, line),
                None => (Known::Clean, line),
            };
            let Some((extension, names)) = line.split_once(": ") else {
                continue;
            };
            for name in names.split(' ') {
                functions.insert((extension, name), known);
            }
        }
        Self { functions }
    }

    pub(super) fn get(&self, extension: &str, function: &str) -> Option<Known> {
        // The key of a lookup may have a shorter lifetime.
        self.functions.get(&(extension, function)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_functions_of_extensions() {
        let known = Extensions::new();
        assert_eq!(known.get("pg_trgm", "similarity"), Some(Known::Clean));
        assert_eq!(known.get("pg_trgm", "set_limit"), Some(Known::RunsSql));
        assert_eq!(known.get("postgis", "st_area"), Some(Known::Clean));
        assert_eq!(known.get("vector", "vector_in"), Some(Known::Clean));
        for name in ["crosstab", "crosstab4", "connectby"] {
            assert_eq!(known.get("tablefunc", name), Some(Known::RunsSql), "{name}");
        }
        assert_eq!(known.get("autoinc", "autoinc"), Some(Known::RunsSql));
        for (extension, name) in [
            ("dblink", "dblink_connect"),
            ("isn", "isn_weak"),
            ("btree_gin", "similarity"),
        ] {
            assert_eq!(known.get(extension, name), None, "{extension}.{name}");
        }
    }

    #[test]
    fn every_line_is_understood() {
        for line in TABLE.lines() {
            let (extension, names) = line.split_once(": ").expect(line);
            let extension = extension.trim_start_matches('!');
            assert!(!extension.contains(' ') && !names.is_empty(), "{line}");
        }
    }
}
