//! The baseline: the values of parameters in a session that has set none.

use super::{Settings, SettingsTable, plan::ROLE, quote};

/// The values of all parameters that a session may set, as a server has them after a clean. An inspection compares the
/// session with these values instead of reading `pg_settings`, which takes several times as long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    settings: Settings,
    /// The settings that only superusers may set.
    privileged: Settings,
    /// `settings` as two array literals, names and values, without the parameters that an inspection reads in another
    /// way.
    arrays: [Box<[u8]>; 2],
}

/// Parameters that an inspection sets for its own transaction, so that the client's settings can't disturb it. The
/// inspection first reads their values, one by one.
pub const SHOWN: [&str; 3] = ["statement_timeout", "lock_timeout", "jit"];

/// The query for a server whose session was just cleaned. Its rows have the name, the value, the context that says who
/// may set the parameter, and an empty column.
pub const BASELINE: &str = "SELECT pg_catalog.lower(name),pg_catalog.current_setting(name),context,'' \
    FROM pg_catalog.pg_settings WHERE context OPERATOR(pg_catalog.=) ANY \
    (ARRAY['user','superuser']::pg_catalog.text[])";

impl Baseline {
    /// Builds a baseline from the rows of the answer. Returns `None` if a value is not ASCII: then a comparison would
    /// depend on `client_encoding`.
    #[must_use]
    pub fn from_rows(rows: &[[Vec<u8>; 4]], table: &SettingsTable) -> Option<Self> {
        if rows.is_empty()
            || rows
                .iter()
                .any(|[name, value, ..]| !name.is_ascii() || !value.is_ascii())
        {
            return None;
        }
        let settings = table.intern(rows.iter().map(|[name, value, ..]| (name, value)));
        let of_superusers = rows
            .iter()
            .filter(|[_, _, context, _]| context == b"superuser");
        let privileged = table.intern(of_superusers.map(|[name, value, ..]| (name, value)));
        let is_compared = |name: &[u8]| !SHOWN.iter().any(|shown| shown.as_bytes() == name);
        let compared: Vec<_> = settings
            .iter()
            .filter(|(name, _)| is_compared(name))
            .collect();
        // `pg_settings` does not list the role.
        let role: [&[u8]; 2] = [ROLE, b"none"];
        let names = array(compared.iter().map(|(name, _)| *name).chain([role[0]]));
        let values = array(compared.iter().map(|(_, value)| *value).chain([role[1]]));
        Some(Self {
            settings,
            privileged,
            arrays: [names, values],
        })
    }

    /// Returns the value of a parameter, whose name is in lower case; `None` if no session may set it.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.settings.get(name)
    }

    /// Returns whether every user may set the parameter.
    #[must_use]
    pub fn is_plain(&self, name: &[u8]) -> bool {
        self.settings.get(name).is_some() && self.privileged.get(name).is_none()
    }

    /// Returns the names and values to compare with, as SQL literals of type `text[]`.
    #[must_use]
    pub fn arrays(&self) -> [&[u8]; 2] {
        [&self.arrays[0], &self.arrays[1]]
    }
}

fn array<'v>(values: impl Iterator<Item = &'v [u8]>) -> Box<[u8]> {
    let mut array = b"{".to_vec();
    for (at, value) in values.enumerate() {
        if at > 0 {
            array.push(b',');
        }
        array.push(b'"');
        for &byte in value {
            if matches!(byte, b'"' | b'\\') {
                array.push(b'\\');
            }
            array.push(byte);
        }
        array.push(b'"');
    }
    array.push(b'}');
    let mut literal = Vec::with_capacity(array.len() + 8);
    quote::literal(&mut literal, &array);
    literal.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(pairs: &[(&str, &str)]) -> Vec<[Vec<u8>; 4]> {
        rows_of(pairs, "user")
    }

    fn rows_of(pairs: &[(&str, &str)], context: &str) -> Vec<[Vec<u8>; 4]> {
        let row = |(name, value): &(&str, &str)| {
            [*name, *value, context, ""].map(|text| text.as_bytes().to_vec())
        };
        pairs.iter().map(row).collect()
    }

    #[test]
    fn literals() {
        let table = SettingsTable::default();
        let found = rows(&[
            ("search_path", "\"$user\", public"),
            ("jit", "on"),
            ("work_mem", "4MB"),
        ]);
        let found = [found, rows_of(&[("log_statement", "none")], "superuser")].concat();
        let baseline = Baseline::from_rows(&found, &table).unwrap();
        let [names, values] = baseline.arrays();
        assert_eq!(
            names,
            br#"'{"log_statement","search_path","work_mem","role"}'"#
        );
        assert_eq!(
            values,
            br#" E'{"none","\\"$user\\", public","4MB","none"}'"#
        );
        assert_eq!(baseline.get(b"jit"), Some(&b"on"[..]));
        assert_eq!(baseline.get(b"app.x"), None);
        assert!(baseline.is_plain(b"work_mem") && !baseline.is_plain(b"log_statement"));
        assert!(Baseline::from_rows(&rows(&[("search_path", "gr\u{fc}n")]), &table).is_none());
        assert!(Baseline::from_rows(&[], &table).is_none());
    }
}
