//! The account in the shared store: how many of the spare servers each node holds.

use std::collections::BTreeMap;

/// A process of the fleet. Each start of a process draws a new number, so two processes with one name are two nodes.
pub type NodeId = u64;

/// One node's entry in the store's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The store's revision at the last change of this record.
    pub version: u64,
    /// Servers above the floor that the node may have.
    pub extra: u32,
    /// How many times the node itself has written its record.
    pub renewals: u64,
    /// Servers that the node could use: those in use, and one for each waiting client.
    pub wanted: u32,
    /// The weight of the node's waiting clients, at least 1.
    pub weight: u32,
}

/// One transaction on the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node writes its own record, which renews its lease.
    Write {
        /// The node.
        node: NodeId,
        /// The version of the record that this change replaces; `None`: there is no record.
        version: Option<u64>,
        /// The servers above the floor from now on.
        extra: u32,
        /// Whether the node may have more servers after this change. If not, `extra` is at most the recorded number.
        raises: bool,
        /// See [`Record::wanted`].
        wanted: u32,
        /// See [`Record::weight`].
        weight: u32,
    },
    /// A node corrects the record of another node whose lease is over.
    Correct {
        /// The node whose lease is over.
        node: NodeId,
        /// The version of the record that this change replaces; `None`: there is no record.
        version: Option<u64>,
        /// The servers above the floor from now on. 0 removes the record.
        extra: u32,
    },
}

/// Why the store refused a change. A refused change leaves the account unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The record has another version than the change expects.
    Outdated,
    /// Fewer servers are free than the change takes.
    Full,
}

/// The account. Each change keeps `free` plus the `extra` of all records constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Spare servers that no node holds. The number is negative after a correction that found more servers than were
    /// recorded.
    pub free: i64,
    /// The number of changes so far.
    pub revision: u64,
    /// The nodes.
    pub records: BTreeMap<NodeId, Record>,
}

impl Account {
    /// Creates the account of a fleet with `spare` servers above the floors.
    #[must_use]
    pub fn new(spare: u32) -> Self {
        Self {
            free: spare.into(),
            revision: 0,
            records: BTreeMap::new(),
        }
    }

    /// Carries out a change as a whole. Returns the new record, or `None` if the change has removed it.
    ///
    /// # Errors
    /// The change does not fit the account, and changes nothing.
    pub fn apply(&mut self, change: &Change) -> Result<Option<Record>, Refusal> {
        let &(Change::Write { node, version, .. } | Change::Correct { node, version, .. }) = change;
        let before = self.records.get(&node).copied();
        if before.map(|record| record.version) != version {
            return Err(Refusal::Outdated);
        }
        let held = before.map_or(0, |record| record.extra);
        let record = match *change {
            Change::Write {
                extra,
                raises,
                wanted,
                weight,
                ..
            } => {
                let is_more = raises || extra > held;
                if is_more && i64::from(extra) - i64::from(held) > self.free {
                    return Err(Refusal::Full);
                }
                Some(Record {
                    version: 0,
                    extra,
                    renewals: before.map_or(0, |record| record.renewals) + 1,
                    wanted,
                    weight,
                })
            }
            Change::Correct { extra: 0, .. } => None,
            Change::Correct { extra, .. } => Some(Record {
                version: 0,
                extra,
                renewals: before.map_or(0, |record| record.renewals),
                wanted: 0,
                weight: 1,
            }),
        };
        self.revision += 1;
        let extra = record.map_or(0, |record| record.extra);
        self.free += i64::from(held) - i64::from(extra);
        let record = record.map(|record| Record {
            version: self.revision,
            ..record
        });
        match record {
            Some(record) => drop(self.records.insert(node, record)),
            None => drop(self.records.remove(&node)),
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(node: NodeId, version: Option<u64>, extra: u32) -> Change {
        Change::Write {
            node,
            version,
            extra,
            raises: false,
            wanted: 0,
            weight: 1,
        }
    }

    #[test]
    fn changes_keep_the_sum_and_refuse_what_is_outdated() {
        let mut account = Account::new(10);
        let one = account.apply(&write(1, None, 4)).unwrap().unwrap();
        assert_eq!(account.apply(&write(2, None, 7)), Err(Refusal::Full));
        assert_eq!(account.apply(&write(1, None, 1)), Err(Refusal::Outdated));
        account.apply(&write(2, None, 6)).unwrap();
        assert_eq!(account.free, 0);
        let correct = |version, extra| Change::Correct {
            node: 1,
            version,
            extra,
        };
        let found = account
            .apply(&correct(Some(one.version), 6))
            .unwrap()
            .unwrap();
        assert_eq!((account.free, found.extra), (-2, 6));
        // While `free` is negative, no node takes servers, but nodes renew and give back the servers that they hold.
        let version = Some(account.records[&2].version);
        assert_eq!(account.apply(&write(2, version, 7)), Err(Refusal::Full));
        account.apply(&write(2, version, 5)).unwrap();
        assert_eq!(account.apply(&correct(Some(found.version), 0)), Ok(None));
        assert_eq!((account.free, account.records.len()), (5, 1));
    }
}
