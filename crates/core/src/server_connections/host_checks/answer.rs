//! The query of a check, and its answer.

use crate::shared::{
    hosts::{HostFacts, Replay},
    pool::ServerRole,
};

/// Asks for the role, the position in the WAL, the timeline of a primary, the age of the last transaction that a standby has
/// replayed (in microseconds), whether transactions can't write by default, the position up to which all confirmed commits of a
/// primary lie, and the timeline that a standby replays. All names are qualified, whatever the role's `search_path` is.
///
/// A commit is confirmed after its flush. But if `synchronous_commit` is off for a role or a database, a confirmed commit may lie
/// anywhere in the WAL that was written to memory. A standby does not report the timeline that it replays, but the last restart
/// point, the end of the minimum recovery and the WAL receiver have it, or an earlier one.
pub(super) const QUERY: &[u8] = b"SELECT r, \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn, \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()) END, \
    CASE WHEN r THEN pg_catalog.trunc((1000000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', \
    pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.pg_last_xact_replay_timestamp()))::pg_catalog.numeric) END, \
    pg_catalog.current_setting('default_transaction_read_only'), \
    CASE WHEN r THEN NULL WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' OR EXISTS (\
    SELECT FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c \
    WHERE c OPERATOR(pg_catalog.~*) '^synchronous_commit=[ofn0]' \
    AND c OPERATOR(pg_catalog.!~*) '^synchronous_commit=on$') \
    THEN pg_catalog.pg_current_wal_insert_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn, \
    CASE WHEN r THEN (SELECT greatest(c.timeline_id, e.min_recovery_end_timeline, w.received_tli) \
    FROM pg_catalog.pg_control_checkpoint() AS c, pg_catalog.pg_control_recovery() AS e, \
    pg_catalog.pg_stat_get_wal_receiver() AS w) END \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r) AS recovery";

/// The hexadecimal digits of the timeline in the name of a file of the WAL.
const TIMELINE_DIGITS: usize = 8;

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    role: ServerRole,
    position: Option<u64>,
    timeline: Option<u32>,
    /// The position up to which all confirmed commits of a primary lie.
    confirmed: Option<u64>,
    /// The timeline that a standby replays.
    replay_timeline: Option<u32>,
    /// Microseconds since the last replayed transaction was committed on the primary.
    replayed_before: Option<u64>,
}

impl Answer {
    /// Reads the columns of [`QUERY`]; `None` if they are something else.
    pub(super) fn parse(columns: &[Option<&[u8]>]) -> Option<Self> {
        let &[
            is_standby,
            position,
            file,
            age,
            is_read_only,
            confirmed,
            replay,
        ] = columns
        else {
            return None;
        };
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).ok();
        let number = |value: Option<&[u8]>| {
            let value: Option<i128> = value.and_then(text)?.parse().ok();
            // A clock that is behind the primary's gives an age below zero.
            u64::try_from(value?.max(0)).ok()
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
            confirmed: number(confirmed),
            replay_timeline: number(replay).and_then(|number| u32::try_from(number).ok()),
            replayed_before: number(age),
        })
    }

    /// Returns whether the host is a standby.
    pub(super) fn is_standby(&self) -> bool {
        self.role.is_standby()
    }

    /// Adds the answer to what is known of the host's replay.
    pub(super) fn apply_replay(&self, replay: &Replay) {
        let timeline = self.timeline.or(self.replay_timeline);
        let position = match self.is_standby() {
            true => self.position,
            false => self.confirmed,
        };
        replay.note_answer(self.is_standby(), timeline, position);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(columns: [&str; 7]) -> Option<Answer> {
        let columns = columns.map(|column| (!column.is_empty()).then_some(column.as_bytes()));
        Answer::parse(&columns)
    }

    #[test]
    fn answers_of_a_primary_and_a_standby() {
        let primary = parse([
            "f",
            "50331648",
            "0000000A0000000000000003",
            "",
            "off",
            "50331700",
            "",
        ]);
        let expect = Answer {
            role: ServerRole::new(false, false),
            position: Some(50_331_648),
            timeline: Some(10),
            confirmed: Some(50_331_700),
            replay_timeline: None,
            replayed_before: None,
        };
        assert_eq!(primary, Some(expect));
        let standby = parse(["t", "4096", "", "1500000", "off", "", "3"]).expect("an answer");
        assert_eq!(standby.role, ServerRole::new(true, true));
        assert_eq!(standby.replay_timeline, Some(3));
        let mut facts = HostFacts::default();
        standby.apply(&mut facts, Some(4097));
        assert_eq!(facts.lag, Some(1_500_000));
        standby.apply(&mut facts, Some(4096));
        assert_eq!(facts.lag, Some(0));
        let ahead = parse(["t", "4096", "", "-7", "off", "", ""]).expect("an answer");
        assert_eq!(ahead.replayed_before, Some(0));
        for garbage in [
            ["", "1", "", "", "off", "y", "x"],
            ["t", "x", "zz", "y", "", "", "-1"],
        ] {
            let answer = parse(garbage);
            assert!(
                answer.is_none_or(|answer| answer.position.is_none() && answer.timeline.is_none())
            );
        }
        assert_eq!(Answer::parse(&[Some(b"t")]), None);
    }
}
