//! The part of `max_server_conn` that one node of a fleet may use.
//!
//! All nodes have the same configuration and do not know of each other, so each of the `fleet_nodes` nodes gets the same
//! whole number of servers: `max_server_conn / fleet_nodes`, rounded down. The sum over the nodes never exceeds the limit.
//! The remainder, fewer servers than there are nodes, is used by no node.

use crate::{Settings, value::BadValue};

impl Settings {
    /// Returns the most servers of this process: its share of `max_server_conn`. 0 is no limit.
    #[must_use]
    pub fn fleet_share(&self) -> u32 {
        self.max_server_conn / self.fleet_nodes.max(1)
    }

    /// Checks that each node of the fleet has at least one server: a share of 0 would be no limit.
    ///
    /// # Errors
    /// `max_server_conn` is smaller than `fleet_nodes`, but not 0.
    pub(crate) fn check_fleet(&self) -> Result<(), BadValue> {
        match self.max_server_conn > 0 && self.fleet_share() == 0 {
            true => Err(BadValue::new(format!(
                "0 (no limit), or at least fleet_nodes ({}), so that each node has a server",
                self.fleet_nodes
            ))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the settings of a node.
    fn node(limit: u32, nodes: u32) -> Settings {
        Settings {
            max_server_conn: limit,
            fleet_nodes: nodes,
            ..Settings::default()
        }
    }

    #[test]
    fn nodes_get_equal_shares_and_no_more_than_there_is() {
        for limit in (0..200).chain([u32::MAX]) {
            for nodes in 1..=50 {
                let settings = node(limit, nodes);
                let share = settings.fleet_share();
                let sum = u64::from(share) * u64::from(nodes);
                assert!(sum <= limit.into(), "{limit} for {nodes}");
                assert!(u64::from(limit) - sum < nodes.into(), "{limit} for {nodes}");
                // A share of 0 is no limit: only without a limit for the fleet.
                let is_refused = settings.check_fleet().is_err();
                assert_eq!(share == 0, is_refused || limit == 0, "{limit} for {nodes}");
            }
        }
        assert_eq!(node(61, 3).fleet_share(), 20);
        assert_eq!(node(60, 1).fleet_share(), 60);
    }
}
