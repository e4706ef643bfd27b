//! The setting `bypass_users`: users whose clients may exceed the limits of pools.

use std::fmt;

use crate::value::{BadValue, Value};

/// The right form, as the end of "expected ...".
const EXPECTED: &str = "a list of db/user, db/* or */user";

/// The users and databases whose clients get servers outside of all pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BypassUsers(Vec<BypassItem>);

/// An item of the list: a user, a database, or both. `None` stands for all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BypassItem {
    database: Option<String>,
    user: Option<String>,
}

impl BypassUsers {
    /// Returns whether a client of this database and user matches an item of the list.
    #[must_use]
    pub fn includes(&self, database: &str, user: &str) -> bool {
        let fits = |wanted: &Option<String>, name: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == name)
        };
        self.0
            .iter()
            .any(|lane| fits(&lane.database, database) && fits(&lane.user, user))
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl BypassItem {
    fn parse(text: &str) -> Result<Self, BadValue> {
        let wrong = |why: &str| BadValue::new(format!("{EXPECTED} ({why})"));
        let (database, user) = text
            .split_once('/')
            .ok_or_else(|| wrong(&format!("\"{text}\" has no /")))?;
        let name = |name: &str| match name.trim() {
            "*" => Ok(None),
            "" => Err(wrong(&format!("a name is missing in \"{text}\""))),
            name if name.contains('/') => Err(wrong(&format!("\"{text}\" has two /"))),
            name => Ok(Some(name.to_owned())),
        };
        match (name(database)?, name(user)?) {
            (None, None) => Err(wrong("*/* would leave nobody in the pools")),
            (database, user) => Ok(Self { database, user }),
        }
    }
}

impl fmt::Display for BypassItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
        write!(f, "{}/{}", name(&self.database), name(&self.user))
    }
}

impl Value for BypassUsers {
    const KIND: &'static str = "list";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let items = text.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty());
        items
            .map(BypassItem::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn show(&self) -> String {
        let items: Vec<_> = self.0.iter().map(BypassItem::to_string).collect();
        items.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_match_databases_and_users() {
        let check = |list: &str, database: &str, user: &str, expect: bool| {
            let list = BypassUsers::parse(list).unwrap();
            assert_eq!(
                list.includes(database, user),
                expect,
                "{list:?} {database}/{user}"
            );
        };
        check("", "app", "ann", false);
        check("app/ann", "app", "ann", true);
        check("app/ann", "app", "bob", false);
        check("app/ann", "web", "ann", false);
        check("app/*", "app", "bob", true);
        check("app/*", "web", "bob", false);
        check("*/ann", "web", "ann", true);
        check("*/ann", "web", "bob", false);
        check("a/b, app/* ,*/ann", "app", "bob", true);
    }

    #[test]
    fn invalid_items_are_refused() {
        for text in ["ann", "app/", "/ann", "*/*", "a/b/c", "app/ann, bob"] {
            let bad = BypassUsers::parse(text).unwrap_err();
            assert!(
                bad.expected.starts_with(EXPECTED),
                "{text}: {}",
                bad.expected
            );
        }
        assert_eq!(BypassUsers::parse(" a/b , */c").unwrap().show(), "a/b,*/c");
    }
}
