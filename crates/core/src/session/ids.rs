//! A compact list of small numbers: each client has such a list, so its size matters.

/// Numbers in the order in which the caller inserts them: two bytes each, as long as all are below 2^16.
#[derive(Debug)]
pub(super) enum Ids {
    Short(Vec<u16>),
    Long(Vec<u32>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Short(Vec::new())
    }
}

impl Ids {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Short(ids) => ids.len(),
            Self::Long(ids) => ids.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<u32> {
        match self {
            Self::Short(ids) => ids.get(at).map(|&id| u32::from(id)),
            Self::Long(ids) => ids.get(at).copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Returns the index of the first number for which `is_before` is false. `is_before` must be true for all numbers
    /// before that.
    #[inline]
    pub(super) fn partition_point(&self, is_before: impl Fn(u32) -> bool) -> usize {
        match self {
            Self::Short(ids) => ids.partition_point(|&id| is_before(u32::from(id))),
            Self::Long(ids) => ids.partition_point(|&id| is_before(id)),
        }
    }

    pub(super) fn insert(&mut self, at: usize, id: u32) {
        if let (Self::Short(ids), Ok(id)) = (&mut *self, u16::try_from(id)) {
            return insert(ids, at, id);
        }
        self.lengthen();
        if let Self::Long(ids) = self {
            insert(ids, at, id);
        }
    }

    pub(super) fn replace(&mut self, at: usize, id: u32) {
        if let (Self::Short(ids), Ok(id)) = (&mut *self, u16::try_from(id)) {
            ids[at] = id;
            return;
        }
        self.lengthen();
        if let Self::Long(ids) = self {
            ids[at] = id;
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> u32 {
        match self {
            Self::Short(ids) => ids.remove(at).into(),
            Self::Long(ids) => ids.remove(at),
        }
    }

    /// Changes the representation to four bytes a number.
    fn lengthen(&mut self) {
        if let Self::Short(ids) = self {
            *self = Self::Long(ids.iter().map(|&id| id.into()).collect());
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Short(ids) => 2 * ids.capacity(),
            Self::Long(ids) => 4 * ids.capacity(),
        }
    }
}

/// Inserts with little spare capacity: with a thousand statements a client, these lists make up most of the memory.
fn insert<T>(ids: &mut Vec<T>, at: usize, id: T) {
    if ids.len() == ids.capacity() {
        ids.reserve_exact(4 + (ids.len() / 8).min(28));
    }
    ids.insert(at, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_or_long() {
        let mut ids = Ids::default();
        for id in [0, 7, 65_535] {
            ids.insert(0, id);
        }
        assert!(matches!(ids, Ids::Short(_)));
        ids.replace(1, 8);
        ids.insert(1, 65_536);
        assert!(matches!(ids, Ids::Long(_)));
        assert_eq!(ids.iter().collect::<Vec<_>>(), [65_535, 65_536, 8, 0]);
        ids.replace(3, 70_000);
        assert_eq!(
            (ids.remove(0), ids.get(0), ids.get(2)),
            (65_535, Some(65_536), Some(70_000))
        );
        assert_eq!((ids.len(), ids.get(3)), (3, None));
        assert_eq!(ids.partition_point(|id| id > 100), 1);
    }
}
