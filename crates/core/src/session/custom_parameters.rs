//! The known names of custom parameters. PostgreSQL has no list of custom parameters, so an inspection queries those of
//! this set by name.

use std::collections::BTreeSet;

use lru::LruCache;

use super::sql::CustomNames;

/// Names of custom parameters (`app.tenant`), in lower case.
#[derive(Debug)]
pub struct CustomParameters {
    /// The names that functions and settings in the catalog contain.
    watched: BTreeSet<Box<[u8]>>,
    /// Other names, which clients' texts contain.
    recent: LruCache<Box<[u8]>, ()>,
}

impl Default for CustomParameters {
    fn default() -> Self {
        Self {
            watched: BTreeSet::new(),
            recent: LruCache::unbounded(),
        }
    }
}

impl CustomParameters {
    /// The largest number of names from clients' texts. If there are more, the least recently used name is dropped.
    /// Names from the catalog are fewer, and never dropped.
    pub const MAX: usize = CustomNames::MAX;

    /// Adds a name, in any case. A name that is not ASCII is added only if `is_utf8`: client and server are known to
    /// use UTF-8, so the name can be queried. Returns `false` if the name can't be queried.
    pub fn insert(&mut self, name: &[u8], is_utf8: bool) -> bool {
        let can_be_asked_for = can_be_asked_for(name, is_utf8);
        let name = name.to_ascii_lowercase().into_boxed_slice();
        if can_be_asked_for && !self.watched.contains(&name) {
            self.recent.put(name, ());
            self.forget_oldest();
        }
        can_be_asked_for
    }

    /// Replaces the names from the catalog.
    pub fn watch<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>, is_utf8: bool) {
        let names = names.filter(|name| can_be_asked_for(name, is_utf8));
        self.watched = names.map(|name| name.to_ascii_lowercase().into()).collect();
        for name in &self.watched {
            self.recent.pop(name);
        }
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        while self.watched.len() + self.recent.len() > Self::MAX && self.recent.pop_lru().is_some()
        {
        }
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let recent = self.recent.iter().map(|(name, ())| name);
        self.watched.iter().chain(recent).map(|name| &**name)
    }
}

/// Returns whether an inspection can query the name. If one name is not valid text, the query fails for all names.
fn can_be_asked_for(name: &[u8], is_utf8: bool) -> bool {
    let is_text = name.is_ascii() || is_utf8 && std::str::from_utf8(name).is_ok();
    is_text && name.len() <= CustomNames::NAME_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(customs: &CustomParameters, name: &str) -> bool {
        customs.names().any(|known| known == name.as_bytes())
    }

    #[test]
    fn bounded() {
        let mut customs = CustomParameters::default();
        customs.watch([&b"App.Watched"[..]].into_iter(), false);
        assert!(customs.insert(b"App.Tenant", false) && customs.insert(b"app.tenant", true));
        assert_eq!(customs.names().count(), 2);
        for number in 0..2 * CustomParameters::MAX {
            customs.insert(b"app.kept", false);
            customs.insert(format!("app.{number}").as_bytes(), false);
        }
        assert_eq!(customs.names().count(), CustomParameters::MAX);
        assert!(
            has(&customs, "app.watched") && has(&customs, "app.kept") && has(&customs, "app.1999")
        );
        assert!(!has(&customs, "app.tenant") && !has(&customs, "app.999"));
        customs.watch([&b"app.kept"[..]].into_iter(), false);
        assert!(!has(&customs, "app.watched"));
        for number in 0..CustomParameters::MAX {
            customs.insert(format!("app.new{number}").as_bytes(), false);
        }
        assert!(has(&customs, "app.kept") && !has(&customs, "app.1999"));
        assert_eq!(customs.names().count(), CustomParameters::MAX);
        assert_eq!(customs.recent.len(), CustomParameters::MAX - 1);
    }

    #[test]
    fn names_that_cannot_be_queried() {
        let mut customs = CustomParameters::default();
        assert!(!customs.insert(&[b'x'; 300], false));
        assert!(!customs.insert("app.\u{e4}".as_bytes(), false));
        assert!(customs.insert("app.\u{e4}".as_bytes(), true));
        assert!(!customs.insert(b"app.\xe4", true));
    }
}
