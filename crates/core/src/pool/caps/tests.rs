use super::*;

const NONE: CapLimits = CapLimits {
    database: 0,
    user: 0,
    process: 0,
    weight: 1,
};

/// Creates caps with pools 0, 1, ... of these databases and users.
fn caps_with(pools: &[(&str, &str, CapLimits)]) -> Caps {
    let mut caps = Caps::default();
    for (id, (database, user, limits)) in pools.iter().enumerate() {
        caps.join(PoolId(id as u32), [database, user, ""], *limits);
    }
    caps
}

fn process(limit: u32, weights: &[u32]) -> Caps {
    let limits = |weight| CapLimits {
        process: limit,
        weight,
        ..NONE
    };
    let names: Vec<String> = (0..weights.len()).map(|n| n.to_string()).collect();
    let pools: Vec<_> = names
        .iter()
        .zip(weights)
        .map(|(name, &weight)| (name.as_str(), name.as_str(), limits(weight)))
        .collect();
    caps_with(&pools)
}

fn take(caps: &mut Caps, pool: u32, times: u32) {
    for _ in 0..times {
        assert_eq!(caps.take(PoolId(pool), Time(0)), Ok(()));
    }
}

#[test]
fn the_first_full_cap_denies_and_one_search_is_enough() {
    let limits = CapLimits {
        database: 1,
        user: 2,
        ..NONE
    };
    let mut caps = caps_with(&[("d", "a", limits), ("d", "b", limits), ("e", "a", limits)]);
    take(&mut caps, 0, 1);
    let denied = |search: &[Scope]| {
        Err(Denied {
            by: Scope::Database,
            search: search.to_vec(),
        })
    };
    assert_eq!(caps.take(PoolId(1), Time(0)), denied(&[Scope::Database]));
    assert_eq!(caps.take(PoolId(1), Time(0)), denied(&[]));
    take(&mut caps, 2, 1);
    assert_eq!(caps.taken(Scope::User, "a"), 2);
    assert_eq!(caps.give_back(PoolId(0)), [PoolId(1)]);
    assert_eq!((caps.taken(Scope::Database, "d"), caps.short()), (1, 0));
    assert!(caps.claim(PoolId(1)) && !caps.claim(PoolId(1)), "once");
}

#[test]
fn a_slot_goes_to_the_pool_that_has_least_for_its_weight() {
    let mut caps = process(6, &[1, 1, 3]);
    take(&mut caps, 0, 2);
    take(&mut caps, 1, 1);
    take(&mut caps, 2, 3);
    for pool in [0, 1, 2] {
        assert!(caps.take(PoolId(pool), Time(0)).is_err());
    }
    // Now they have 2 for 1, 1 for 1, and 2 for 3.
    assert_eq!(caps.give_back(PoolId(2)), [PoolId(2)]);
    assert!(caps.claim(PoolId(2)));
    assert!(caps.take(PoolId(2), Time(0)).is_err());
    // 1 for 1, 1 for 1, 3 for 3: the first in the queue.
    assert_eq!(caps.give_back(PoolId(0)), [PoolId(0)]);
    assert_eq!(caps.give_back(PoolId(2)), [PoolId(2)]);
}

#[test]
fn a_pool_whose_other_cap_is_full_is_notified_without_a_slot() {
    let limits = CapLimits {
        database: 1,
        user: 1,
        ..NONE
    };
    let mut caps = caps_with(&[("d", "a", limits), ("e", "b", limits), ("d", "b", limits)]);
    take(&mut caps, 0, 1);
    take(&mut caps, 1, 1);
    assert!(caps.take(PoolId(2), Time(0)).is_err());
    assert_eq!(caps.give_back(PoolId(0)), [PoolId(2)]);
    assert!(!caps.claim(PoolId(2)));
    let denied = Denied {
        by: Scope::User,
        search: vec![Scope::User],
    };
    assert_eq!(caps.take(PoolId(2), Time(0)), Err(denied));
    assert_eq!(caps.give_back(PoolId(1)), [PoolId(2)]);
    assert!(caps.claim(PoolId(2)));
}

#[test]
fn from_the_process_each_pool_keeps_its_share() {
    let mut caps = process(4, &[1, 1]);
    take(&mut caps, 0, 3);
    take(&mut caps, 1, 1);
    assert!(
        !caps.must_give_up_server(PoolId(0), false, Time(0)),
        "nobody is denied"
    );
    assert!(caps.take(PoolId(1), Time(0)).is_err());
    assert!(caps.must_give_up_server(PoolId(0), false, Time(0)));
    assert!(caps.may_evict(PoolId(1), Scope::Process, PoolId(0), 0));
    assert!(!caps.must_give_up_server(PoolId(0), true, Time(PATIENCE - 1)));
    assert!(caps.must_give_up_server(PoolId(0), true, Time(PATIENCE)));
    assert_eq!(caps.give_back(PoolId(0)), [PoolId(1)]);
    assert!(caps.claim(PoolId(1)));
    assert!(caps.take(PoolId(1), Time(0)).is_err());
    assert!(
        !caps.must_give_up_server(PoolId(0), false, Time(PATIENCE)),
        "two of four"
    );
    assert!(!caps.may_evict(PoolId(1), Scope::Process, PoolId(0), 0));
    assert!(!caps.may_evict(PoolId(1), Scope::Process, PoolId(0), PATIENCE - 1));
    assert!(
        caps.may_evict(PoolId(1), Scope::Process, PoolId(0), PATIENCE),
        "nobody uses it"
    );
}

/// Pool 3 has one server of three, and pool 1 is denied one. Then pool 2 joins, whose user already has as many servers
/// as it may have.
fn one_more_pool_comes(search_is_under_way: bool) -> (Caps, Vec<Scope>) {
    let limits = CapLimits {
        user: 2,
        process: 3,
        ..NONE
    };
    let names = [("d", "b"), ("d", "a"), ("e", "b"), ("e", "a")];
    let mut caps = caps_with(&names.map(|(d, u)| (d, u, limits)));
    take(&mut caps, 0, 2);
    take(&mut caps, 3, 1);
    let first = caps
        .take(PoolId(1), Time(0))
        .map_err(|denied| denied.search);
    assert_eq!(first, Err(vec![Scope::Process]));
    let may_go = |caps: &Caps| caps.may_evict(PoolId(1), Scope::Process, PoolId(3), 0);
    assert!(!may_go(&caps), "its share");
    if !search_is_under_way {
        assert!(!caps.searched(PoolId(1), Scope::Process, false));
    }
    let denied = caps
        .take(PoolId(2), Time(0))
        .map_err(|denied| denied.search);
    assert!(may_go(&caps), "it has more than its share now");
    (caps, denied.err().unwrap_or_default())
}

#[test]
fn smaller_shares_are_a_reason_to_search() {
    let (mut caps, search) = one_more_pool_comes(false);
    assert_eq!(search, [Scope::User, Scope::Process]);
    let again = caps
        .take(PoolId(2), Time(0))
        .map_err(|denied| denied.search);
    assert_eq!(again, Err(vec![]), "once");
    // A search that is under way begins anew.
    let (mut caps, search) = one_more_pool_comes(true);
    assert_eq!(search, [Scope::User]);
    assert!(caps.searched(PoolId(1), Scope::Process, false));
    assert!(!caps.searched(PoolId(1), Scope::Process, false));
}

#[test]
fn of_a_database_any_idle_server_may_go() {
    let limits = CapLimits {
        database: 2,
        ..NONE
    };
    let mut caps = caps_with(&[("d", "a", limits), ("d", "b", limits), ("e", "a", limits)]);
    take(&mut caps, 0, 1);
    take(&mut caps, 1, 1);
    take(&mut caps, 2, 1);
    assert!(caps.take(PoolId(1), Time(0)).is_err());
    assert!(caps.may_evict(PoolId(1), Scope::Database, PoolId(0), 0));
    assert!(
        !caps.may_evict(PoolId(1), Scope::Database, PoolId(1), 0),
        "it is its own"
    );
    assert!(
        !caps.may_evict(PoolId(1), Scope::Database, PoolId(2), 0),
        "of another one"
    );
    assert!(!caps.must_give_up_server(PoolId(2), false, Time(0)));
    assert!(caps.must_give_up_server(PoolId(0), false, Time(0)));
    assert!(
        !caps.must_give_up_server(PoolId(0), true, Time(PATIENCE)),
        "it has its share"
    );
}

#[test]
fn higher_limits_give_room_and_a_pool_that_goes_takes_nothing_along() {
    let mut caps = process(1, &[1, 1]);
    take(&mut caps, 0, 1);
    assert!(caps.take(PoolId(1), Time(0)).is_err());
    let limits = CapLimits { process: 2, ..NONE };
    assert_eq!(caps.set_limits(PoolId(0), "", limits), [PoolId(1)]);
    // The pool is removed before it handles the message.
    caps.part(PoolId(1));
    assert_eq!(caps.usage(PoolId(0), Scope::Process), (1, 2));
    caps.part(PoolId(0));
    assert!(caps.caps.is_empty());
    assert_eq!(caps.short(), 0);
}

/// Returns random numbers below a bound, the same ones in each run.
fn random(seed: &mut u64, bound: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % bound
}

/// Pools take slots, give them back, give up and get messages, in any order: no cap is ever exceeded, all counts are
/// right, and once all pools have handled their messages, no cap that has room denies a pool.
#[test]
fn no_pool_stays_denied_while_there_is_room() {
    for mut seed in 0..60 {
        let mut limit = |most| random(&mut seed, most) as u32;
        let (database, user, whole) = (limit(4), limit(4), limit(7));
        let limits = |weight| CapLimits {
            database,
            user,
            process: whole,
            weight,
        };
        let names = ["d", "e", "f"]
            .iter()
            .flat_map(|d| ["a", "b"].map(|u| (*d, u)));
        let pools: Vec<_> = names.map(|(d, u)| (d, u, limits(1 + limit(3)))).collect();
        let mut caps = caps_with(&pools);
        let mut held = vec![0_u32; pools.len()];
        let mut wants = vec![false; pools.len()];
        let mut mail = VecDeque::new();
        for _ in 0..400 {
            let pool = random(&mut seed, pools.len() as u64) as usize;
            let id = PoolId(pool as u32);
            match random(&mut seed, 8) {
                0..=3 => {
                    let took = caps.take(id, Time(0)).is_ok();
                    held[pool] += u32::from(took);
                    wants[pool] = !took;
                }
                4..=5 if held[pool] > 0 => {
                    held[pool] -= 1;
                    mail.extend(caps.give_back(id));
                }
                6 => {
                    caps.withdraw(id);
                    wants[pool] = false;
                }
                7 => give_room(&mut caps, &mut mail, &mut held, &mut wants),
                _ => {}
            }
            check_counts(&caps, &pools, &held);
        }
        while !mail.is_empty() {
            give_room(&mut caps, &mut mail, &mut held, &mut wants);
        }
        for (pool, wants) in wants.iter().enumerate() {
            let id = PoolId(pool as u32);
            assert!(
                !wants || caps.full(id).is_some(),
                "seed {seed}: pool {pool} could have one"
            );
        }
        let denied = wants.iter().filter(|wants| **wants).count();
        assert_eq!(caps.short(), denied);
    }
}

/// Lets a pool that was granted room do what its ledger does.
fn give_room(caps: &mut Caps, mail: &mut VecDeque<PoolId>, held: &mut [u32], wants: &mut [bool]) {
    let Some(id) = mail.pop_front() else { return };
    let pool = id.index();
    match (caps.claim(id), wants[pool]) {
        (true, false) => {
            // The ledger counts as many servers already: it gives the slot back.
            mail.extend(caps.give_back(id));
        }
        (granted, true) if granted || caps.take(id, Time(0)).is_ok() => {
            held[pool] += 1;
            wants[pool] = false;
        }
        _ => {}
    }
}

fn check_counts(caps: &Caps, pools: &[(&str, &str, CapLimits)], held: &[u32]) {
    for (pool, (database, user, limits)) in pools.iter().enumerate() {
        let id = PoolId(pool as u32);
        let holder = caps.holder(id).expect("it has joined");
        assert_eq!(holder.slots, held[pool] + holder.granted);
        let (taken, limit) = caps.usage(id, Scope::Process);
        assert!(limit == 0 || taken <= limit);
        for (scope, name, limit) in [
            (Scope::Database, database, limits.database),
            (Scope::User, user, limits.user),
        ] {
            let taken = caps.taken(scope, name);
            assert!(
                limit == 0 || taken <= limit,
                "{scope:?} {name}: {taken} of {limit}"
            );
        }
        for name in &holder.names {
            let cap = &caps.caps[name];
            let under = caps
                .holders
                .iter()
                .flatten()
                .filter(|other| other.names.contains(name));
            let sums = under.fold((0, 0), |(slots, weights), other| {
                (slots + other.slots, weights + other.active_weight())
            });
            assert_eq!((cap.taken, cap.weights), sums);
        }
    }
}
