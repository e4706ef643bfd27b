//! One node with an account, step by step. The simulator runs many.

use super::*;

const TERMS: Terms = Terms {
    budget: 20,
    nodes: 2,
    floor: 2,
    lease: 3_000_000,
    interval: 200_000,
    timeout: 500_000,
};
const BUSY: Load = Load {
    servers: 2,
    wanted: 100,
    weight: 1,
};

/// A node with its account, and the time.
struct World {
    node: Node,
    account: Account,
    backends: BTreeMap<NodeId, u32>,
    instance: u64,
    now: u64,
}

impl World {
    fn new() -> Self {
        Self {
            node: Node::new(TERMS, 1),
            account: Account::new(TERMS.spare()),
            backends: BTreeMap::new(),
            instance: 0,
            now: 0,
        }
    }

    fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Read => Answer::Account(self.account.clone()),
            Request::Change(change) => Answer::Changed(self.account.apply(&change)),
            Request::CountBackends => Answer::Backends(self.backends.clone()),
        }
    }

    /// Lets time pass in steps of 50 ms, with a store that answers at once.
    fn run(&mut self, time: u64, load: Load) {
        let end = self.now + time;
        while self.now < end {
            self.now += 50_000;
            if let Some((number, request)) = self.node.tick(self.now, load) {
                let answer = self.carry_out(request);
                self.node.answer(self.now, number, self.instance, answer);
            }
        }
    }

    /// Returns the next request that is neither a read nor a count, after carrying those out.
    fn next_change(&mut self, load: Load) -> (u64, Request) {
        loop {
            self.now += 50_000;
            match self.node.tick(self.now, load) {
                Some((number, request @ Request::Change(_))) => return (number, request),
                Some((number, request)) => {
                    let answer = self.carry_out(request);
                    self.node.answer(self.now, number, self.instance, answer);
                }
                None => {}
            }
        }
    }

    fn limit(&self) -> u32 {
        self.node.limit(self.now)
    }
}

#[test]
fn a_new_node_has_its_floor_until_the_leases_before_it_are_over() {
    let mut world = World::new();
    world.run(TERMS.lease, BUSY);
    assert_eq!((world.limit(), world.account.free), (2, 16));
    world.run(TERMS.lease, BUSY);
    assert_eq!((world.limit(), world.account.free), (18, 0));
    assert!(world.node.may_open(world.now, 17, 1));
    assert!(!world.node.may_open(world.now, 18, 0), "the limit");
    assert!(
        !world.node.may_open(world.now, 5, 2),
        "two logins are under way"
    );
    // Without a word of the store, the lease ends on the node's own clock.
    world.now += TERMS.usable();
    assert_eq!(world.limit(), 2);
    assert!(!world.node.may_open(world.now, 2, 0));
}

#[test]
fn servers_are_closed_before_the_share_shrinks() {
    let mut world = World::new();
    world.run(2 * TERMS.lease, BUSY);
    let load = |servers| Load {
        servers,
        wanted: 0,
        weight: 1,
    };
    world.run(1_000_000, load(12));
    assert_eq!(
        (world.limit(), world.account.free),
        (2, 6),
        "ten are still in use"
    );
    world.run(1_000_000, load(2));
    assert_eq!(world.account.free, 16);
}

/// The answer to a request that gives servers back is lost, and the request arrives late.
#[test]
fn a_read_raises_no_limit() {
    let mut world = World::new();
    world.run(2 * TERMS.lease, BUSY);
    let idle = Load {
        servers: 2,
        wanted: 0,
        weight: 1,
    };
    let (_, late) = world.next_change(idle);
    world.now += TERMS.timeout;
    // The account still grants the node 16, and its clients are back.
    let (number, request) = world.next_change(BUSY);
    assert_eq!(world.limit(), 2, "until a write of its own has succeeded");
    assert!(matches!(world.carry_out(late), Answer::Changed(Ok(_))));
    let answer = world.carry_out(request);
    assert_eq!(answer, Answer::Changed(Err(Refusal::Outdated)));
    world.node.answer(world.now, number, 0, answer);
    assert_eq!(world.limit(), 2);
}

#[test]
fn counts_that_fail_cost_no_lease() {
    let mut world = World::new();
    world.run(2 * TERMS.lease, BUSY);
    let lost = Record {
        version: 7,
        extra: 0,
        renewals: 1,
        wanted: 0,
        weight: 1,
    };
    world.account.records.insert(2, lost);
    let (end, mut counts) = (world.now + 5 * TERMS.lease, 0);
    while world.now < end {
        world.now += 50_000;
        match world.node.tick(world.now, BUSY) {
            Some((number, Request::CountBackends)) => {
                counts += 1;
                world.now += TERMS.timeout;
                world.node.fail(world.now, number);
                // Other work of the node's thread, or a slow store.
                world.now += 600_000;
            }
            Some((number, request)) => {
                let answer = world.carry_out(request);
                world.node.answer(world.now, number, 0, answer);
            }
            None => {}
        }
        assert!(world.node.is_leased(world.now));
    }
    assert!(counts > 5, "{counts} counts");
}

#[test]
fn a_silent_node_keeps_what_postgresql_still_has() {
    let mut world = World::new();
    let other = Change::Write {
        node: 7,
        version: None,
        extra: 10,
        raises: true,
        wanted: 12,
        weight: 1,
    };
    world.account.apply(&other).unwrap();
    world.backends.insert(7, 9);
    world.run(3 * TERMS.lease, BUSY);
    assert_eq!(world.account.records[&7].extra, 9);
    assert_eq!((world.limit(), world.account.free), (2 + 7, 0));
    world.backends.remove(&7);
    world.run(2 * TERMS.lease, BUSY);
    assert_eq!(world.limit(), 18);
    assert!(!world.account.records.contains_key(&7));
}

#[test]
fn a_restored_store_is_believed_only_after_a_count() {
    let mut world = World::new();
    let copy = world.account.clone();
    world.run(2 * TERMS.lease, BUSY);
    assert_eq!(world.limit(), 18);
    // The account knows no node; another one has 6 servers, and does not answer.
    world.account = copy;
    world.instance = 1;
    world.backends.insert(7, 6);
    world.run(TERMS.lease, BUSY);
    assert_eq!((world.limit(), world.account.free), (2, 16));
    // The count makes a record of the forgotten node, which is watched for a lease as any other.
    world.run(2 * TERMS.lease, BUSY);
    assert_eq!(world.account.records[&7].extra, 6);
    assert_eq!(world.limit(), 12);
}
