//! How many clients each database and each user has, in the whole process.

use std::collections::HashMap;

use crate::pool::PoolKey;

/// Clients by the database and by the user that they named, from their startup packet on. A name
/// without clients takes no memory.
#[derive(Debug, Default)]
pub struct ClientCounts {
    databases: HashMap<Box<str>, usize>,
    users: HashMap<Box<str>, usize>,
}

impl ClientCounts {
    /// Adds a client: how many its database and its user have now.
    pub fn add(&mut self, names: &PoolKey) -> (usize, usize) {
        let of_database = add(&mut self.databases, &names.database);
        (of_database, add(&mut self.users, &names.user))
    }

    /// Takes away a client that was added.
    pub fn remove(&mut self, names: &PoolKey) {
        remove(&mut self.databases, &names.database);
        remove(&mut self.users, &names.user);
    }

    /// Clients of a database.
    #[must_use]
    pub fn of_database(&self, name: &str) -> usize {
        self.databases.get(name).copied().unwrap_or(0)
    }

    /// Clients of a user.
    #[must_use]
    pub fn of_user(&self, name: &str) -> usize {
        self.users.get(name).copied().unwrap_or(0)
    }
}

fn add(counts: &mut HashMap<Box<str>, usize>, name: &str) -> usize {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
        return *count;
    }
    counts.insert(name.into(), 1);
    1
}

fn remove(counts: &mut HashMap<Box<str>, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_clients_are_forgotten() {
        let names = |database: &str, user: &str| PoolKey {
            database: database.into(),
            user: user.into(),
        };
        let mut counts = ClientCounts::default();
        assert_eq!(counts.add(&names("a", "x")), (1, 1));
        assert_eq!(counts.add(&names("a", "y")), (2, 1));
        assert_eq!((counts.of_database("a"), counts.of_user("x")), (2, 1));
        counts.remove(&names("a", "x"));
        assert_eq!((counts.of_database("a"), counts.of_user("x")), (1, 0));
        counts.remove(&names("a", "y"));
        assert!(counts.databases.is_empty() && counts.users.is_empty());
    }
}
