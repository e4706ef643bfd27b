//! How several pgweir processes (nodes) share one limit on server connections, through a store such as etcd: without I/O.
//!
//! Each node always has its *floor*. The servers above the floors, `budget - nodes * floor`, are the *spare* ones. An account
//! in the store says which node holds how many of them (its *extra*). A node uses its extra only while it has a lease.
//!
//! # Why the budget is never exceeded
//!
//! Claim: at any moment, a node has at most `floor + extra` servers, where `extra` is what the store says of it. Each
//! transaction keeps the sum of all `extra` and of what is free equal to the spare servers, and nothing is taken
//! from a rest below one. So the fleet has at most `budget` servers.
//!
//! 1. *A node raises its own limit only after the store has said that the raise is recorded*: by the answer to a write of its
//!    own, never by what it reads. *It lowers its own limit, and waits until it has no more servers, before it writes
//!    less.* A write that is delayed in the network fails once a later one has succeeded, since each names
//!    the version that it replaces.
//! 2. *Other nodes lower the record of a node only to what PostgreSQL says.* They cannot know whether a silent node is
//!    dead, cut off, or stopped with all its servers open, as by SIGSTOP. So they wait until its lease must be over, then count its
//!    backends in PostgreSQL, and record that number `n`. From then on the silent node has at most `floor + n`
//!    servers: those that were counted, and those whose opening it had begun. It never has more than `floor` logins under way, and
//!    begins none after its lease while it has `floor` servers. The check of the lease and the call that opens the
//!    connection are two steps, and a process may be stopped between them: such a server is one of the logins under way.
//!    To get the servers of a stopped node back, an operator or a role that may do so terminates its backends.
//!
//!    PostgreSQL shows the address that a backend's connection comes from, and no number of a node. So each node records its
//!    addresses, and a backend counts for *each* node that it may belong to ([`attribute`]): `n` may be too large, which frees
//!    servers later, but never too small. A node that asks leaves out the backends that it knows to be its own, by their process
//!    ids. So a node that was started anew at the address of a lost one can free what that one had.
//! 3. *A lease is over for the others later than for its node.* The node counts from the moment at which it sent the
//!    renewal, and takes [`Terms::usable`]; the others count from the moment at which they saw the renewal, and take
//!    [`Terms::patience`]. No clock is compared with another one; but their rates must differ from real time by less than
//!    [`DRIFT_PER_MILLE`], and time must pass while the process or the machine is suspended (`CLOCK_BOOTTIME`).
//! 4. *A store that was restored from an old copy is not trusted.* Each node holds its own record against what it has,
//!    and uses the smaller one. For the time of a lease, no node takes anything. Then those records that were not renewed since
//!    are set to what PostgreSQL counts, and so are nodes that the store has forgotten. A node renews only when
//!    it has no more servers than its record allows.
//!
//! # What this assumes
//!
//! - At most `nodes` processes run with these terms, and a process starts after the servers of its predecessor have gone.
//! - A node counts a server from before its opening until PostgreSQL has closed its side, and PostgreSQL closes a server whose
//!   node has died. A network that fails between a node and PostgreSQL leaves backends that the node no longer counts, until
//!   PostgreSQL notices (`tcp_keepalives_idle`, `tcp_user_timeout`). The same holds for the limit of a single process.
//! - All servers of a node come from addresses that it has recorded, or it has recorded none.
//! - After the store was restored from an old copy: a node that it has forgotten, and that is silent, has no address in common
//!   with a node that runs. Otherwise nobody could tell that its backends are those of two nodes.
//! - PostgreSQL gives the process id of a backend that a node has not yet seen to end to no backend of another node.
//! - A store that goes back in time is noticed: connections to it break, or the cluster's id, its term or its
//!   revision shows it. A request that was sent to the store before does not reach the store as it is afterwards.
//!
//! The simulator (`crates/sim/src/fleet`) tries to break the claim, and has to find faults that are planted.

mod backends;
mod ledger;
mod node;
mod shares;
mod terms;

pub use backends::{Source, attribute};
pub use ledger::{Change, Ledger, NodeId, Record, Refusal};
pub use node::{Answer, Load, Node, Request};
pub use shares::{Demand, divide};
pub use terms::{DRIFT_PER_MILLE, Terms, TermsError};
