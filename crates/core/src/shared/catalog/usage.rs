//! The memory that the catalogs take.

use super::{Catalog, Catalogs};
use crate::base::memory::MemoryUsage;

impl Catalogs {
    /// Returns the memory that the catalogs take. A catalog that several entries share counts once.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        for catalog in self.living() {
            if catalog.same.get().is_some() {
                usage.add(size_of::<Catalog>());
                continue;
            }
            let state = catalog.state.lock();
            usage.add(size_of::<Catalog>() + state.certificates.bytes());
        }
        usage.bytes += self.builtins.bytes();
        usage
    }
}
