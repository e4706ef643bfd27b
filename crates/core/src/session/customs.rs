//! Custom parameters by name: PostgreSQL lists them nowhere, so a probe asks for those that were heard of.

use std::collections::BTreeSet;

/// Names of custom parameters (`app.tenant`) that were read in clients' texts or in the catalog.
#[derive(Debug, Default)]
pub struct Customs {
    names: BTreeSet<Box<[u8]>>,
    /// There were more than are remembered.
    overflowed: bool,
}

impl Customs {
    /// The most that are remembered.
    pub const MAX: usize = 1000;
    /// PostgreSQL takes longer names, but nobody uses them.
    const NAME_MAX: usize = 255;

    /// Adds a name, in any case. `false` if it can't be remembered.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase().into_boxed_slice();
        if self.names.contains(&name) {
            return true;
        }
        let fits = self.names.len() < Self::MAX && name.len() <= Self::NAME_MAX;
        if fits {
            self.names.insert(name);
        } else {
            self.overflowed = true;
        }
        fits
    }

    /// All names.
    #[must_use]
    pub fn names(&self) -> Vec<Box<[u8]>> {
        self.names.iter().cloned().collect()
    }

    /// Are there more than are remembered?
    #[must_use]
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded() {
        let mut customs = Customs::default();
        assert!(customs.insert(b"App.Tenant") && customs.insert(b"app.tenant"));
        assert_eq!(customs.names(), [b"app.tenant"[..].into()]);
        assert!(!customs.insert(&[b'x'; 300]) && customs.has_overflowed());
        for number in 0..2 * Customs::MAX {
            customs.insert(format!("app.{number}").as_bytes());
        }
        assert_eq!(customs.names().len(), Customs::MAX);
    }
}
