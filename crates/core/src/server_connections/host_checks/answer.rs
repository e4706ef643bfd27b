//! The query of a check, and its answer.

use crate::{
    backend::USABLE_CONNECTIONS,
    shared::{
        hosts::{CompletedTransactions, HostFacts, Replay},
        pool::ServerRole,
    },
};

/// Asks for the role, the position in the WAL, the timeline of a primary, the age of the last transaction that a
/// standby has replayed (in microseconds), and whether transactions can't write by default. [`USABLE_CONNECTIONS`]
/// follows. All names are qualified, whatever the role's `search_path` is.
const COLUMNS: &[u8] = b"SELECT r, \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn, \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()) END, \
    CASE WHEN r THEN pg_catalog.trunc((1000000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', \
    pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.pg_last_xact_replay_timestamp()))::pg_catalog.numeric) END, \
    pg_catalog.current_setting('default_transaction_read_only')";

/// Asks a primary for the end of the WAL that it has written to memory, and for its snapshot: the id of the first
/// transaction that is not in the snapshot, and the number of earlier ones that are still running. Asks a standby for
/// the timeline that it replays.
///
/// A standby does not report the timeline that it replays, but the last restart point, the end of the minimum recovery
/// and the WAL receiver have it, or an earlier one.
const REPLAY_COLUMNS: &[u8] = b", \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_current_wal_insert_lsn() OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn END, \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) END, \
    CASE WHEN r THEN NULL ELSE (SELECT pg_catalog.count(*) FROM pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot())) END, \
    CASE WHEN r THEN (SELECT greatest(c.timeline_id, e.min_recovery_end_timeline, w.received_tli) \
    FROM pg_catalog.pg_control_checkpoint() AS c, pg_catalog.pg_control_recovery() AS e, \
    pg_catalog.pg_stat_get_wal_receiver() AS w) END";

const SOURCE: &[u8] = b" FROM (SELECT pg_catalog.pg_is_in_recovery() AS r) AS recovery";

/// Returns the query of a check. `asks_for_replay`: `read_after_write` needs the answer.
pub(super) fn query(asks_for_replay: bool) -> Vec<u8> {
    let replay = if asks_for_replay { REPLAY_COLUMNS } else { b"" };
    let connections = USABLE_CONNECTIONS.as_bytes();
    [COLUMNS, b", ", connections, replay, SOURCE].concat()
}

/// The hexadecimal digits of the timeline in the name of a file of the WAL.
const TIMELINE_DIGITS: usize = 8;

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    role: ServerRole,
    position: Option<u64>,
    timeline: Option<u32>,
    /// Microseconds since the last replayed transaction was committed on the primary.
    replayed_before: Option<u64>,
    /// How many connections the host allows, less its reserved ones.
    usable_connections: Option<u32>,
    /// What `read_after_write` needs, if the check has asked for it.
    replay: Option<ReplayColumns>,
}

/// The values of [`REPLAY_COLUMNS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReplayColumns {
    /// The end of the WAL that a primary has written to memory.
    wal_end: Option<u64>,
    /// The transactions that a primary has completed.
    completed: Option<CompletedTransactions>,
    /// The timeline that a standby replays.
    timeline: Option<u32>,
}

impl Answer {
    /// Reads the columns of [`query`]; `None` if they are something else.
    pub(super) fn parse(columns: &[Option<&[u8]>]) -> Option<Self> {
        let (&[is_standby, position, file, age, is_read_only, usable], replay) =
            columns.split_first_chunk()?;
        let replay = match replay {
            [] => None,
            &[wal_end, xmax, running, timeline] => Some(ReplayColumns {
                wal_end: number(wal_end),
                completed: number(xmax)
                    .zip(number(running))
                    .map(|(xmax, running)| CompletedTransactions { xmax, running }),
                timeline: number(timeline).and_then(|number| u32::try_from(number).ok()),
            }),
            _ => return None,
        };
        let is_standby = is_standby? == b"t";
        let timeline = file.and_then(text).and_then(|name| {
            let digits = name.get(..TIMELINE_DIGITS)?;
            u32::from_str_radix(digits, 16).ok()
        });
        Some(Self {
            role: ServerRole::new(is_standby, is_standby || is_read_only? == b"on"),
            position: number(position),
            timeline,
            replayed_before: number(age),
            usable_connections: number(usable).and_then(|number| u32::try_from(number).ok()),
            replay,
        })
    }

    /// Returns whether the host is a standby.
    pub(super) fn is_standby(&self) -> bool {
        self.role.is_standby()
    }

    /// Returns how many connections the host allows, less its reserved ones.
    pub(super) fn usable_connections(&self) -> Option<u32> {
        self.usable_connections
    }

    /// Adds the answer to what is known of the host's replay.
    pub(super) fn apply_replay(&self, replay: &Replay) {
        let Some(own) = self.replay else {
            return;
        };
        match self.is_standby() {
            true => replay.note_standby(own.timeline, self.position),
            false => replay.note_primary(self.timeline, own.wal_end, own.completed),
        }
    }

    /// Adds the answer to what is known of its host. `primary`: the position of the primary. A standby that has
    /// replayed the WAL up to this position is not behind, however old its last transaction is.
    pub(super) fn apply(&self, facts: &mut HostFacts, primary: Option<u64>) {
        facts.role = Some(self.role);
        facts.timeline = self.timeline;
        facts.position = self.position;
        let has_all = match (self.position, primary) {
            (Some(own), Some(primary)) => own >= primary,
            _ => false,
        };
        facts.lag = match self.is_standby() {
            true if has_all => Some(0),
            true => self.replayed_before,
            false => None,
        };
    }
}

fn text(value: &[u8]) -> Option<String> {
    String::from_utf8(value.to_vec()).ok()
}

fn number(value: Option<&[u8]>) -> Option<u64> {
    let value: i128 = value.and_then(text)?.parse().ok()?;
    // A clock that is behind the primary's gives an age below zero.
    u64::try_from(value.max(0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(columns: &[&str]) -> Option<Answer> {
        let columns = columns.iter();
        let columns = columns.map(|column| (!column.is_empty()).then_some(column.as_bytes()));
        Answer::parse(&columns.collect::<Vec<_>>())
    }

    #[test]
    fn answers_of_a_primary_and_a_standby() {
        let primary = ["f", "50331648", "0000000A0000000000000003", "", "off", "97"];
        let expect = Answer {
            role: ServerRole::new(false, false),
            position: Some(50_331_648),
            timeline: Some(10),
            replayed_before: None,
            usable_connections: Some(97),
            replay: None,
        };
        assert_eq!(parse(&primary), Some(expect));
        let with_replay = [&primary[..], &["50331700", "4294967999", "2", ""]].concat();
        let replay = Some(ReplayColumns {
            wal_end: Some(50_331_700),
            completed: Some(CompletedTransactions {
                xmax: 4_294_967_999,
                running: 2,
            }),
            timeline: None,
        });
        assert_eq!(parse(&with_replay), Some(Answer { replay, ..expect }));
        let columns = ["t", "4096", "", "1500000", "off", "", "", "", "", "3"];
        let standby = parse(&columns).expect("an answer");
        assert_eq!(standby.role, ServerRole::new(true, true));
        assert_eq!(standby.replay.and_then(|replay| replay.timeline), Some(3));
        let mut facts = HostFacts::default();
        standby.apply(&mut facts, Some(4097));
        assert_eq!(facts.lag, Some(1_500_000));
        standby.apply(&mut facts, Some(4096));
        assert_eq!(facts.lag, Some(0));
        let ahead = parse(&["t", "4096", "", "-7", "off", "x"]).expect("an answer");
        assert_eq!(ahead.replayed_before, Some(0));
        assert_eq!(ahead.usable_connections, None);
    }

    #[test]
    fn other_answers() {
        for garbage in [
            ["", "1", "", "", "off", "", "y", "x", "", ""],
            ["t", "x", "zz", "y", "", "z", "", "", "-1", "z"],
        ] {
            let answer = parse(&garbage);
            assert!(
                answer.is_none_or(|answer| answer.position.is_none() && answer.timeline.is_none())
            );
        }
        assert_eq!(parse(&["t"]), None);
        assert_eq!(parse(&["t", "4096", "", "0", "off", "97", "1"]), None);
    }
}
