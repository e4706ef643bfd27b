//! Groups of hosts: with `max_server_conn` in percent, each group has a cap in place of the process's cap.

use super::{Caps, Name, PoolId, Scope};

impl Caps {
    /// Puts a pool, with its slots, under the cap of this group of hosts. A new cap has no limit: the caller sets one.
    /// Returns the pools whose [`Ledger::room`](crate::pool::Ledger::room) is to be called.
    pub(super) fn set_group(&mut self, pool: PoolId, group: &str) -> Vec<PoolId> {
        let Some(before) = self.name(pool, Scope::Process).cloned() else {
            return Vec::new();
        };
        if *before.1 == *group {
            return Vec::new();
        }
        let was_denied = self
            .holder(pool)
            .is_some_and(|holder| holder.denied.is_some());
        // A denied pool asks again, since another cap decides now.
        self.withdraw(pool);
        let after: Name = (Scope::Process, group.into());
        let Some(Some(holder)) = self.holders.get_mut(pool.index()) else {
            return Vec::new();
        };
        holder.names[Scope::Process as usize] = after.clone();
        let (slots, weight) = (holder.slots, holder.active_weight());
        let to = self.caps.entry(after).or_default();
        to.taken += slots;
        to.weights += weight;
        to.holders += 1;
        let mut pools_to_notify = Vec::new();
        if let Some(from) = self.caps.get_mut(&before) {
            from.taken -= slots;
            from.weights -= weight;
            from.holders -= 1;
            if from.holders == 0 {
                self.caps.remove(&before);
            } else if let Some(&other) = from.denied.front() {
                pools_to_notify = self.grant(other);
            }
        }
        if was_denied {
            pools_to_notify.push(pool);
        }
        pools_to_notify
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Time,
        pool::{CapLimits, Caps, PoolId, SERVERS_AT_FIRST, Scope},
    };

    const ONE: PoolId = PoolId(0);
    const TWO: PoolId = PoolId(1);

    fn limits(process: u32) -> CapLimits {
        CapLimits {
            database: 0,
            user: 0,
            process,
            weight: 1,
        }
    }

    #[test]
    fn a_pool_takes_its_servers_along_to_another_group() {
        let mut caps = Caps::default();
        caps.join(ONE, ["d", "u", ""], limits(2));
        caps.join(TWO, ["e", "u", ""], limits(2));
        assert!(caps.take(ONE, Time(0)).is_ok() && caps.take(TWO, Time(0)).is_ok());
        assert!(caps.take(ONE, Time(0)).is_err() && caps.take(TWO, Time(0)).is_err());
        // The first pool leaves, so the second one has room, and the first one asks again under the new cap.
        assert_eq!(caps.set_limits(ONE, "a", limits(1)), [TWO, ONE]);
        assert_eq!(caps.usage(ONE, Scope::Process), (1, 1));
        assert_eq!(caps.usage(TWO, Scope::Process), (2, 2));
        assert!(caps.claim(TWO) && !caps.claim(ONE));
        assert!(caps.take(ONE, Time(0)).is_err());
        assert_eq!(caps.set_limits(ONE, "a", limits(3)), [ONE]);
        assert_eq!(caps.usage(ONE, Scope::Process), (2, 3));
        assert_eq!(caps.short(), 0);
        assert_eq!(caps.set_limits(TWO, "a", limits(3)), []);
        assert_eq!(caps.usage(ONE, Scope::Process), (4, 3));
        caps.part(ONE);
        assert_eq!(caps.usage(TWO, Scope::Process), (2, 3));
        caps.part(TWO);
        assert!(caps.caps.is_empty());
    }

    #[test]
    fn until_a_limit_is_known_one_more_server_than_there_are_may_log_in() {
        let mut caps = Caps::default();
        caps.join(ONE, ["d", "u", "a"], limits(CapLimits::NOT_KNOWN));
        assert_eq!(caps.usage(ONE, Scope::Process), (0, SERVERS_AT_FIRST));
        for _ in 0..SERVERS_AT_FIRST {
            assert!(caps.take(ONE, Time(0)).is_ok());
        }
        assert!(caps.take(ONE, Time(0)).is_err());
        assert_eq!(
            caps.set_limits(ONE, "a", limits(CapLimits::NOT_KNOWN)),
            [ONE]
        );
        assert_eq!(caps.usage(ONE, Scope::Process), (11, 11));
    }
}
