//! Counts the clients of each database and each user in the whole process, and checks the limits on them
//! (`max_client_conn`, `max_db_client_connections`, `max_user_client_connections`).

use std::collections::HashMap;

use crate::{base::fault::Fault, pool::PoolKey};

/// The limits that apply to a client; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// The limit for the whole process (`max_client_conn`).
    pub total: Option<usize>,
    /// The limit for the client's database (`max_db_client_connections`).
    pub of_database: Option<usize>,
    /// The limit for the client's user (`max_user_client_connections`).
    pub of_user: Option<usize>,
}

/// The clients by the database and by the user in their startup packets. A client is counted when it has authenticated,
/// not before: so nobody can take the places of others by mere connections. A name without clients takes no memory.
#[derive(Debug, Default)]
pub struct ClientCounts {
    databases: HashMap<Box<str>, usize>,
    users: HashMap<Box<str>, usize>,
    /// Connections that have not authenticated, and those that carry cancel requests. The limits on clients do not
    /// apply to them.
    logins: usize,
    admissions: u64,
}

impl ClientCounts {
    /// Adds a client.
    pub fn add(&mut self, names: &PoolKey) {
        add(&mut self.databases, &names.database);
        add(&mut self.users, &names.user);
    }

    /// Adds a client if the limits allow it. `others` is the number of clients of the process, whatever their database.
    ///
    /// # Errors
    /// The client would be above a limit.
    pub fn admit_client(
        &mut self,
        names: &PoolKey,
        limits: &ClientLimits,
        others: usize,
    ) -> Result<(), Fault> {
        // Most names have no limit: then nothing is looked up.
        let of_database = limits
            .of_database
            .map(|_| self.of_database(&names.database));
        let of_user = limits.of_user.map(|_| self.of_user(&names.user));
        limits.admit(others, of_database.unwrap_or(0), of_user.unwrap_or(0))?;
        self.add(names);
        self.admissions += 1;
        Ok(())
    }

    /// Counts a connection that has not authenticated yet.
    pub fn login_began(&mut self) {
        self.logins += 1;
    }

    /// Notes that a login was admitted, or has ended.
    pub fn login_ended(&mut self) {
        self.logins -= 1;
    }

    /// Returns the number of connections that have not authenticated.
    #[must_use]
    pub fn logins(&self) -> usize {
        self.logins
    }

    /// Returns the number of clients that were admitted since the process began.
    #[must_use]
    pub fn admissions(&self) -> u64 {
        self.admissions
    }

    /// Removes a client that was added.
    pub fn remove(&mut self, names: &PoolKey) {
        remove(&mut self.databases, &names.database);
        remove(&mut self.users, &names.user);
    }

    /// Returns the number of clients of a database.
    #[must_use]
    pub fn of_database(&self, name: &str) -> usize {
        self.databases.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of clients of all databases but this one.
    #[must_use]
    pub fn of_databases_except(&self, name: &str) -> usize {
        let counts = self.databases.iter();
        let others = counts.filter(|(database, _)| ***database != *name);
        others.map(|(_, count)| count).sum()
    }

    /// Returns the number of clients of a user.
    #[must_use]
    pub fn of_user(&self, name: &str) -> usize {
        self.users.get(name).copied().unwrap_or(0)
    }
}

impl ClientLimits {
    /// Checks the limits for one more client beside these numbers of others.
    ///
    /// # Errors
    ///
    /// The client would be above a limit.
    pub fn admit(&self, others: usize, of_database: usize, of_user: usize) -> Result<(), Fault> {
        let is_reached =
            |most: Option<usize>, others: usize| most.is_some_and(|most| others >= most);
        if is_reached(self.total, others) {
            return Err(Fault::TooManyClients);
        }
        if is_reached(self.of_database, of_database) {
            return Err(Fault::TooManyClientsOfDatabase);
        }
        if is_reached(self.of_user, of_user) {
            return Err(Fault::TooManyClientsOfUser);
        }
        Ok(())
    }
}

fn add(counts: &mut HashMap<Box<str>, usize>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => _ = counts.insert(name.into(), 1),
    }
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

    fn names(database: &str, user: &str) -> PoolKey {
        PoolKey {
            database: database.into(),
            user: user.into(),
        }
    }

    #[test]
    fn names_without_clients_are_forgotten() {
        let mut counts = ClientCounts::default();
        counts.add(&names("a", "x"));
        counts.add(&names("a", "y"));
        assert_eq!((counts.of_database("a"), counts.of_user("x")), (2, 1));
        counts.remove(&names("a", "x"));
        assert_eq!((counts.of_database("a"), counts.of_user("x")), (1, 0));
        counts.remove(&names("a", "y"));
        assert!(counts.databases.is_empty() && counts.users.is_empty());
    }

    #[test]
    fn a_client_above_a_limit_is_not_counted() {
        let limits = ClientLimits {
            total: Some(3),
            of_database: Some(2),
            of_user: Some(1),
        };
        let mut counts = ClientCounts::default();
        counts.admit_client(&names("a", "x"), &limits, 0).unwrap();
        let of_user = counts.admit_client(&names("b", "x"), &limits, 1);
        assert!(matches!(of_user, Err(Fault::TooManyClientsOfUser)));
        assert_eq!(counts.of_database("b"), 0);
        counts.admit_client(&names("a", "y"), &limits, 1).unwrap();
        let of_database = counts.admit_client(&names("a", "z"), &limits, 2);
        assert!(matches!(of_database, Err(Fault::TooManyClientsOfDatabase)));
        counts.admit_client(&names("b", "z"), &limits, 2).unwrap();
        let of_process = counts.admit_client(&names("c", "c"), &limits, 3);
        assert!(matches!(of_process, Err(Fault::TooManyClients)));
        assert_eq!(counts.admissions(), 3);
        counts
            .admit_client(&names("a", "x"), &ClientLimits::default(), 3)
            .unwrap();
    }
}
