//! The known names of custom parameters. PostgreSQL lists custom parameters nowhere, so a probe asks for those in this
//! set.

use std::collections::BTreeMap;

use super::scan::CustomNames;

/// Names of custom parameters (`app.tenant`) that were read in clients' texts or in the catalog.
#[derive(Debug, Default)]
pub struct CustomParameters {
    /// Each name with the time when it was last read; `None` if the catalog contains it.
    names: BTreeMap<Box<[u8]>, Option<u64>>,
    /// The same by time, without the names from the catalog.
    times: BTreeMap<u64, Box<[u8]>>,
    time: u64,
}

impl CustomParameters {
    /// The most names that are remembered: those that were read last. Names from the catalog are fewer, and stay.
    pub const MAX: usize = 1000;

    /// Adds a name, in any case. A name that is not ASCII is added only if it `is_utf8`: then client and server are
    /// known to use UTF-8, and a server can be asked for it. Returns `false` if no server can be asked for the name.
    pub fn insert(&mut self, name: &[u8], is_utf8: bool) -> bool {
        let can_be_asked_for = can_be_asked_for(name, is_utf8);
        if can_be_asked_for {
            self.set(name, false);
        }
        can_be_asked_for
    }

    /// Replaces the names from the catalog.
    pub fn watch<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>, is_utf8: bool) {
        self.names.retain(|_, time| time.is_some());
        for name in names.filter(|name| can_be_asked_for(name, is_utf8)) {
            self.set(name, true);
        }
    }

    fn set(&mut self, name: &[u8], stays: bool) {
        let name = name.to_ascii_lowercase().into_boxed_slice();
        self.time += 1;
        let time = (!stays).then_some(self.time);
        match self.names.get_mut(&name) {
            Some(None) => return,
            Some(last) => {
                if let Some(last) = std::mem::replace(last, time) {
                    self.times.remove(&last);
                }
            }
            None => {
                if self.names.len() == Self::MAX
                    && let Some((_, oldest)) = self.times.pop_first()
                {
                    self.names.remove(&oldest);
                }
                self.names.insert(name.clone(), time);
            }
        }
        if let Some(time) = time {
            self.times.insert(time, name);
        }
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(|name| &**name)
    }
}

/// Returns whether a probe can ask for the name. If one name is not valid text, the query fails for all names.
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
        assert_eq!(customs.times.len(), CustomParameters::MAX - 1);
    }

    #[test]
    fn what_no_server_can_be_asked_for() {
        let mut customs = CustomParameters::default();
        assert!(!customs.insert(&[b'x'; 300], false));
        assert!(!customs.insert("app.\u{e4}".as_bytes(), false));
        assert!(customs.insert("app.\u{e4}".as_bytes(), true));
        assert!(!customs.insert(b"app.\xe4", true));
    }
}
