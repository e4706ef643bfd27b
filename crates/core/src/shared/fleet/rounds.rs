//! Requests of the control thread to the workers: count idle servers, list process ids of backends, count the backends
//! in PostgreSQL.

use std::sync::atomic::AtomicBool;

use pgweir_wire::Body;

/// A request that visits all workers and collects their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetRound {
    /// How many servers no client needs now.
    pub idle: u32,
    /// The process ids of this process's backends, if `wants_pids`.
    pub pids: Vec<u32>,
    /// Whether the workers add these process ids.
    pub wants_pids: bool,
    /// How many workers were visited.
    pub(crate) visited: usize,
}

/// A request to count the backends in PostgreSQL.
#[derive(Debug)]
pub struct FleetCount {
    /// The number of the count.
    pub number: u64,
    /// The query: see [`FleetCount::new`].
    pub(crate) query: String,
    /// Whether a server has begun to run the query.
    pub(crate) is_begun: AtomicBool,
}

/// The result of a count of the backends in PostgreSQL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetCounted {
    /// The number of the count.
    pub number: u64,
    /// The origin of the connection that has counted: an address, or `socket`.
    pub own: String,
    /// The number of backends by origin: an address, `socket`, or `hidden` if the role has no privilege to see the
    /// origin.
    pub backends: Vec<(String, u32)>,
    /// The reason why the count has failed.
    pub error: Option<String>,
    /// The role that has run the query.
    pub user: String,
}

impl FleetRound {
    /// Creates a round.
    #[must_use]
    pub fn new(wants_pids: bool) -> Self {
        Self {
            wants_pids,
            ..Self::default()
        }
    }
}

impl FleetCount {
    /// Creates a count that leaves out the backends with these process ids. All names in the query are qualified, since
    /// the previous client of the server may have set another search_path. If the role has no privilege to see a
    /// session, `backend_type` of the session is null. `usesysid` of a client's session is never null.
    #[must_use]
    pub fn new(number: u64, without: &[u32]) -> Self {
        let pids: Vec<_> = without.iter().map(ToString::to_string).collect();
        let query = format!(
            "SELECT 'self', COALESCE(pg_catalog.host(pg_catalog.inet_client_addr()), 'socket'), 0::pg_catalog.int8 \
             UNION ALL SELECT 'other', CASE WHEN backend_type IS NULL THEN 'hidden' \
             WHEN client_addr IS NULL THEN 'socket' ELSE pg_catalog.host(client_addr) END, pg_catalog.count(*) \
             FROM pg_catalog.pg_stat_activity WHERE usesysid IS NOT NULL \
             AND (backend_type IS NULL OR backend_type OPERATOR(pg_catalog.=) 'client backend'::pg_catalog.text) \
             AND pid OPERATOR(pg_catalog.<>) ALL ('{{{}}}'::pg_catalog.int4[]) GROUP BY 2",
            pids.join(",")
        );
        Self {
            number,
            query,
            is_begun: AtomicBool::new(false),
        }
    }
}

impl FleetCounted {
    /// Adds a row of the answer.
    pub fn take(&mut self, row: &[u8]) {
        match parse(row) {
            Some((true, own, _)) => self.own = own,
            Some((false, source, count)) => self.backends.push((source, count)),
            None => self.fail("the answer has another form"),
        }
    }

    /// Records why the count has failed.
    pub fn fail(&mut self, why: &str) {
        self.error = Some(why.to_owned());
    }
}

fn parse(row: &[u8]) -> Option<(bool, String, u32)> {
    let columns = Body::new(row).columns().ok()?;
    let [Some(kind), Some(source), Some(count)] = columns[..] else {
        return None;
    };
    let text = |bytes| std::str::from_utf8(bytes).ok();
    Some((
        kind == b"self",
        text(source)?.to_owned(),
        text(count)?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_leaves_out_backends() {
        let without = |pids: &[u32]| FleetCount::new(1, pids).query;
        assert!(without(&[7, 8]).contains("ALL ('{7,8}'::"));
        assert!(without(&[]).contains("ALL ('{}'::"));
    }
}
