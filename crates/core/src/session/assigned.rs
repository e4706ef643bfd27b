//! What sessions begin with by ALTER ROLE and ALTER DATABASE SET, and which texts may change it.

use std::{collections::BTreeMap, fmt};

use super::{Settings, SettingsTable, schema::words};

/// Of texts that drop roles, so many words are looked at up to the end of a transaction.
pub const DROPPED_MAX: usize = 1000;

/// A database and a role, each empty for all of them.
type Whose = (Vec<u8>, Vec<u8>);
/// Names and values, in the order in which they were assigned.
type Values = Vec<(Vec<u8>, Vec<u8>)>;

/// What is assigned to the sessions of a PostgreSQL.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct Assigned {
    of: BTreeMap<Whose, Values>,
}

impl fmt::Debug for Assigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        write!(f, "Assigned({})", self.of.len())
    }
}

impl Assigned {
    /// What a server answers to [`ASSIGNED`]: database, role, name, value.
    #[must_use]
    pub fn from_rows(rows: impl IntoIterator<Item = [Vec<u8>; 4]>) -> Self {
        let mut of: BTreeMap<Whose, Values> = BTreeMap::new();
        for [database, role, name, value] in rows {
            of.entry((database, role)).or_default().push((name, value));
        }
        Self { of }
    }

    /// What sessions of this role in this database begin with.
    #[must_use]
    pub fn of(&self, database: &str, role: &str, table: &SettingsTable) -> Settings {
        let (database, role) = (database.as_bytes(), role.as_bytes());
        // What comes later counts, as in PostgreSQL.
        let whose = [
            (&b""[..], &b""[..]),
            (database, b""),
            (b"", role),
            (database, role),
        ];
        let found = whose
            .iter()
            .filter_map(|(database, role)| self.of.get(&(database.to_vec(), role.to_vec())));
        table.intern(found.flatten().map(|(name, value)| (name, value)))
    }
}

/// What sessions of a pool would have of parameters if nobody set them.
#[derive(Debug, Default, Clone)]
pub struct Origin {
    /// Of those that anybody may set.
    values: Settings,
    /// Those of modules that not everybody may set, without values.
    reserved: Settings,
}

impl Origin {
    /// What a server answers to [`ORIGIN`]: `u` or `r`, name, value.
    #[must_use]
    pub fn from_rows(rows: &[[Vec<u8>; 4]], table: &SettingsTable) -> Self {
        let of = |kind: &'static [u8]| rows.iter().filter(move |row| row[0] == kind);
        let is_plain = |row: &&[Vec<u8>; 4]| is_plain(&row[2]) && !is_of_transaction(&row[1]);
        Self {
            values: table.intern(of(b"u").filter(is_plain).map(|row| (&row[1], &row[2]))),
            reserved: table.intern(of(b"r").map(|row| (&row[1], b""))),
        }
    }

    /// What sessions that have begun with `before` are to keep, now that others begin with `after`.
    #[must_use]
    pub fn kept(&self, before: &Settings, after: &Settings, table: &SettingsTable) -> Settings {
        table.intern(changed(before, after).filter_map(|name| {
            let value = self.values.get(name).or_else(|| {
                let is_free = name.contains(&b'.') && is_plain(name) && !self.has_module_of(name);
                is_free.then(|| before.get(name).unwrap_or_default())
            });
            Some((name, value.filter(|value| is_plain(value))?))
        }))
    }

    /// The values of these are not known any more.
    pub fn forget(&mut self, before: &Settings, after: &Settings, table: &SettingsTable) {
        let gone = table.intern(changed(before, after).map(|name| (name, b"")));
        self.values = table.without(&self.values, &gone);
    }

    /// Has a module that is loaded parameters of this prefix?
    fn has_module_of(&self, name: &[u8]) -> bool {
        let prefix = |name: &[u8]| name.split(|&byte| byte == b'.').next().map(<[u8]>::to_vec);
        let known = self.values.iter().chain(self.reserved.iter());
        let of = prefix(name);
        known
            .filter(|(own, _)| own.contains(&b'.'))
            .any(|(own, _)| prefix(own) == of)
    }
}

/// Names that have other values in one than in the other.
fn changed<'s>(before: &'s Settings, after: &'s Settings) -> impl Iterator<Item = &'s [u8]> {
    let gone = before
        .iter()
        .filter(|(name, _)| after.get(name).is_none())
        .map(|(name, _)| name);
    let others = after
        .iter()
        .filter(|&(name, value)| before.get(name) != Some(value));
    gone.chain(others.map(|(name, _)| name))
}

/// The same in every encoding, and not escaped.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii() && *byte != b'\\')
}

/// These are a transaction's, not a session's.
fn is_of_transaction(name: &[u8]) -> bool {
    matches!(
        name,
        b"transaction_isolation" | b"transaction_read_only" | b"transaction_deferrable"
    )
}

/// What to ask a server of all that is assigned: one query, with any settings.
pub const ASSIGNED: &str = "SELECT \
    pg_catalog.encode(pg_catalog.convert_to(COALESCE(b.datname::pg_catalog.text, ''), \
    pg_catalog.getdatabaseencoding()), 'escape'), \
    pg_catalog.encode(pg_catalog.convert_to(COALESCE(r.rolname::pg_catalog.text, ''), \
    pg_catalog.getdatabaseencoding()), 'escape'), \
    pg_catalog.encode(pg_catalog.convert_to(pg_catalog.split_part(c.entry, '=', 1), \
    pg_catalog.getdatabaseencoding()), 'escape'), \
    pg_catalog.encode(pg_catalog.convert_to(pg_catalog.substr(c.entry, \
    pg_catalog.strpos(c.entry, '=') OPERATOR(pg_catalog.+) 1), \
    pg_catalog.getdatabaseencoding()), 'escape') \
    FROM pg_catalog.pg_db_role_setting AS d \
    LEFT JOIN pg_catalog.pg_database AS b ON b.oid OPERATOR(pg_catalog.=) d.setdatabase \
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) d.setrole \
    CROSS JOIN LATERAL pg_catalog.unnest(d.setconfig) AS c(entry)";

/// What to ask a server of what its session would have if nobody had set anything.
pub const ORIGIN: &str = "SELECT \
    CASE WHEN s.context OPERATOR(pg_catalog.=) 'user'::pg_catalog.text THEN 'u' ELSE 'r' END, \
    s.name, pg_catalog.encode(pg_catalog.convert_to(s.reset_val, \
    pg_catalog.getdatabaseencoding()), 'escape'), '' FROM pg_catalog.pg_settings AS s \
    WHERE s.context OPERATOR(pg_catalog.=) 'user'::pg_catalog.text \
    OR pg_catalog.strpos(s.name, '.') OPERATOR(pg_catalog.>) 0";

/// May a text assign something? What only looks like it costs one question.
#[must_use]
pub fn may_assign(text: &[u8]) -> bool {
    let mut before = String::new();
    words(text).any(|word| {
        let is_one = before == "alter" && matches!(word.as_str(), "role" | "user" | "database");
        before = word;
        is_one
    })
}

/// Words among which are the roles that a text drops; none if it drops none.
#[must_use]
pub fn dropped_roles(text: &[u8]) -> Vec<String> {
    let mut before = String::new();
    let mut found = Vec::new();
    let mut drops = false;
    for word in words(text) {
        if drops && found.len() < DROPPED_MAX {
            found.push(word.clone());
        }
        drops |= before == "drop" && matches!(word.as_str(), "role" | "user" | "group");
        before = word;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: [&str; 4]) -> [Vec<u8>; 4] {
        columns.map(|column| column.as_bytes().to_vec())
    }

    fn pairs(of: &Settings) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).expect("is UTF-8");
        of.iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn texts() {
        for text in [
            "ALTER ROLE a SET b = 1",
            "begin; alter\n user \"A b\" reset all",
            "BEGIN;ALTER DATABASE a SET b TO 1;COMMIT",
        ] {
            assert!(may_assign(text.as_bytes()), "{text}");
        }
        for text in ["ALTER TABLE role SET (a = 1)", "walter role", "", "ALTER"] {
            assert!(!may_assign(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn roles_that_are_dropped() {
        let among = |text: &str| dropped_roles(text.as_bytes());
        assert_eq!(
            among("DROP ROLE IF EXISTS a, B"),
            ["if", "exists", "a", "b"]
        );
        assert_eq!(among("begin; drop\nuser \"A\"; drop group g")[0], "A");
        for text in ["DROP TABLE a", "REVOKE a FROM role", "drop", ""] {
            assert_eq!(among(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn whose_they_are() {
        let table = SettingsTable::default();
        let all = Assigned::from_rows([
            row(["", "", "work_mem", "1"]),
            row(["d", "", "work_mem", "2"]),
            row(["d", "", "DateStyle", "ISO"]),
            row(["", "a", "work_mem", "3"]),
            row(["d", "a", "work_mem", "4"]),
        ]);
        let found = all.of("d", "a", &table);
        assert_eq!(pairs(&found), [("datestyle", "ISO"), ("work_mem", "4")]);
        assert_eq!(pairs(&all.of("e", "a", &table)), [("work_mem", "3")]);
        assert_eq!(pairs(&all.of("e", "b", &table)), [("work_mem", "1")]);
        assert!(all.of("d", "b", &table).get(b"work_mem") == Some(b"2"));
        assert!(!format!("{all:?}").contains("ISO"), "no values");
    }

    #[test]
    fn what_older_sessions_keep() {
        let table = SettingsTable::default();
        let origin = [
            row(["u", "work_mem", "4096", ""]),
            row(["u", "DateStyle", "ISO, MDY", ""]),
            row(["u", "search_path", "\\303\\244", ""]),
            row(["u", "transaction_isolation", "read committed", ""]),
            row(["r", "auto_explain.level", "on", ""]),
        ];
        let mut origin = Origin::from_rows(&origin, &table);
        let before = table.intern([("app.a", "1"), ("datestyle", "ISO"), ("app.same", "x")]);
        let after = table.intern([
            ("work_mem", "9"),
            ("app.b", "2"),
            ("app.same", "x"),
            ("search_path", "a"),
            ("transaction_isolation", "serializable"),
            ("log_statement", "all"),
            ("auto_explain.other", "1"),
        ]);
        let kept = origin.kept(&before, &after, &table);
        let expect = [
            ("app.a", "1"),
            ("app.b", ""),
            ("datestyle", "ISO, MDY"),
            ("work_mem", "4096"),
        ];
        assert_eq!(pairs(&kept), expect);
        assert!(origin.kept(&after, &after, &table).is_empty());
        origin.forget(&before, &after, &table);
        assert_eq!(pairs(&origin.values), []);
    }
}
