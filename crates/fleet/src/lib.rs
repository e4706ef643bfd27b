//! How several pgweir processes (nodes) share one limit on server connections through a store such as etcd. No I/O.
//!
//! The shared limit is the *budget*. Each node may always have a fixed number of servers, its *floor*. The servers of
//! the budget that are left, `budget - nodes * floor`, are the *spare* servers. The store has an account of the spare
//! servers: how many each node holds (its *extra*), and how many are *free*. A node uses its extra only while it has a
//! *lease*, which it renews by writing its record in the account.
//!
//! # Why the budget is never exceeded
//!
//! Claim: at any moment, a node has at most `floor + extra` servers, where `extra` is the number in the node's record.
//! Each transaction keeps the sum of `free` and the `extra` of all records equal to the spare servers, and no node may
//! take more than is free. So the fleet has at most `budget` servers.
//!
//! 1. *A node raises its own limit only after the store has confirmed the higher `extra`* in its answer to the node's
//!    own write. What the node reads never raises its limit. *Before a node writes a lower `extra`, it lowers its own
//!    limit and waits until it has no more servers than that.* Each write names the version of the record that it
//!    replaces, so a write that is delayed in the network fails if a later write has succeeded before.
//! 2. *Other nodes lower the record of a node only to the number of its backends in PostgreSQL.* They cannot know
//!    whether a silent node is dead, cut off, or stopped with all its servers open, as by SIGSTOP. So they wait until
//!    its lease must be over, then count its backends in PostgreSQL, and record that number `n`. From then on the
//!    silent node has at most `floor + n` servers: the counted ones, and those that it had begun to open. A node never
//!    has more than `floor` logins to servers under way, and after its lease it begins no login while it has `floor`
//!    servers or more. The check of the lease and the call that opens the connection are two steps, and a process may
//!    be stopped between them: such a server counts as one of the logins under way. A stopped node's servers become
//!    free when an operator, or a role with the privilege, terminates its backends.
//!
//!    PostgreSQL shows the address that a backend's connection comes from, but not the node. So each node records its
//!    addresses, and a backend counts for *each* node that has recorded its address ([`attribute`]). Therefore `n` is
//!    never too small. If `n` is too large, servers become free later than they could. The node that counts leaves out
//!    its own backends, which it knows by their process ids. So a node that starts at the address of a lost node can
//!    free the servers of that node. A node takes no spare server before it has counted, and by its own count it learns
//!    its address. So a record without an address has an `extra` of 0, and its node has at most its floor.
//! 3. *A node ends its lease before other nodes consider it over.* The node measures the lease from the moment at which
//!    it sent the renewal, and the lease lasts for [`Terms::usable`]. The other nodes measure from the moment at which
//!    they read the renewal, and wait for [`Terms::patience`]. Clocks of different nodes are never compared. But the
//!    rate of each clock must differ from real time by less than [`DRIFT_PER_MILLE`], and the clock must go on while
//!    the process or the machine is suspended (`CLOCK_BOOTTIME`).
//! 4. *After the store was restored from an old copy, its records are checked first.* Each node compares its own record
//!    with the `extra` that it has, and uses the smaller number. For the time of a lease, no node takes a free server.
//!    Then the nodes correct each record that was not renewed since the restore to the number of backends in
//!    PostgreSQL, and add records for backends from addresses that the store has forgotten: those of nodes without a
//!    record, and of nodes whose record has no address yet. A node renews its lease only when it has no more servers
//!    than its record allows.
//!
//! # What this assumes
//!
//! - At most `nodes` processes run with these terms, and a process starts after the servers of its predecessor have
//!   ended.
//! - A node counts a server from before its opening until PostgreSQL has closed its side of the connection. PostgreSQL
//!   closes the servers of a node that has died. If the network between a node and PostgreSQL fails, PostgreSQL keeps
//!   backends that the node no longer counts, until PostgreSQL notices the failure (`tcp_keepalives_idle`,
//!   `tcp_user_timeout`). A single process with a limit has the same gap.
//! - A node has recorded all addresses that its servers come from, or none.
//! - After the store was restored from an old copy, a silent node that the store has forgotten, or whose address it has
//!   forgotten, shares no address with a running node. Otherwise no node could find out that the backends from this
//!   address belong to two nodes.
//! - While a node does not know that one of its backends has ended, PostgreSQL gives the process id of that backend to
//!   no backend of another node.
//! - Nodes notice when the store goes back in time: their connections break, or the cluster's id, the raft term or the
//!   revision shows it. A request that was sent before does not reach the restored store.
//!
//! The simulator (`crates/sim/src/fleet`) tries to break the claim. It must find each fault that is planted in it.

mod account;
mod backends;
mod node;
mod shares;
mod terms;

pub use account::{Account, Change, NodeId, Record, Refusal};
pub use backends::{Source, attribute};
pub use node::{Answer, Load, Node, Request};
pub use shares::{Demand, divide};
pub use terms::{DRIFT_PER_MILLE, Terms, TermsError};
