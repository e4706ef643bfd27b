//! The counters of each pool and each worker.

mod histogram;
mod logins;

use std::ops::{AddAssign, Sub};

pub use self::{
    histogram::{BUCKETS, Distribution, Histogram, Percentiles, Times, upper_bound},
    logins::{LoginResult, Logins},
};

macro_rules! counters {
    (
        in SHOW STATS: $($(#[doc = $doc:literal])+ $name:ident,)+
        for metrics only: $($(#[doc = $other_doc:literal])+ $other:ident,)+
    ) => {
        /// Counters that only rise. Times are in microseconds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $other_doc])+ pub $other: u64,)+
        }

        impl Stats {
            /// Names, in the order of SHOW STATS.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// Values, in the order of [`Stats::NAMES`].
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }
        }

        impl AddAssign for Stats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
                $(self.$other += other.$other;)+
            }
        }

        impl Sub for Stats {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self {
                    $($name: self.$name.saturating_sub(earlier.$name),)+
                    $($other: self.$other.saturating_sub(earlier.$other),)+
                }
            }
        }
    };
}

counters! {
    in SHOW STATS:
    /// Assignments of a server connection to a client.
    server_assignment_count,
    /// Transactions.
    xact_count,
    /// Queries: requests that ended with ReadyForQuery.
    query_count,
    /// Bytes from clients.
    received,
    /// Bytes to clients.
    sent,
    /// Time in transactions.
    xact_time,
    /// Time in queries.
    query_time,
    /// Time that clients waited for a server connection.
    wait_time,
    /// Prepared statements that clients created.
    client_parse_count,
    /// Prepared statements that pgweir created on servers.
    server_parse_count,
    /// Bind messages.
    bind_count,
    /// Logins of clients.
    client_login_count,
    for metrics only:
    /// Uses of a prepared statement that the server connection had already.
    statement_hit_count,
    /// Texts that may have changed sequence values, and nothing else.
    sequence_text_count,
    /// Texts that may have changed parameters that they name, and nothing else.
    setting_text_count,
    /// Texts that may have changed anything in the session.
    opaque_text_count,
    /// Inspections of the session state of server connections.
    look_count,
    /// Inspections that have failed, and are repeated.
    failed_look_count,
    /// Inspections whose answer was too long to be read.
    long_look_count,
    /// Times at which SQL's PREPARE or EXECUTE named more text than pgweir reads.
    unread_prepare_count,
    /// Cleans of the session state of server connections.
    clean_count,
    /// Server connections that were closed since no clean was certain to remove all of their session state.
    unclean_close_count,
    /// Idle server connections that moved to another worker.
    server_move_count,
    /// Idle server connections that were closed to make room for another pool.
    eviction_count,
    /// Requests that were sent to another host, since a standby was lost before it replied.
    repeated_read_count,
    /// Transactions that waited until a standby had replayed earlier writes.
    replay_wait_count,
    /// Transactions that waited for longer than `read_after_write_wait`.
    replay_timeout_count,
    /// Races between two hosts that were won by the host that was tried first.
    first_host_win_count,
    /// Races between two hosts that were won by the host that was tried second.
    second_host_win_count,
    /// Races between two hosts in which a login failed or was given up before the other one was complete.
    undecided_race_count,
    /// Successful logins to servers.
    server_login_count,
    /// Failed logins to servers.
    server_login_failure_count,
}

/// Numbers of texts, by what they may have changed in the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextCounts {
    /// Texts that may have changed sequence values.
    pub sequences: u32,
    /// Texts that may have changed parameters that they name.
    pub settings: u32,
    /// Texts that may have changed anything.
    pub opaque: u32,
}

impl Stats {
    /// Adds texts that were sent to a server.
    pub fn add_texts(&mut self, texts: &TextCounts) {
        self.sequence_text_count += u64::from(texts.sequences);
        self.setting_text_count += u64::from(texts.settings);
        self.opaque_text_count += u64::from(texts.opaque);
    }

    /// Returns the rates per second over `span` microseconds, and the average times per transaction, per query and per
    /// assignment of a server connection.
    #[must_use]
    pub fn averages(&self, span: u64) -> Self {
        let per_second = |count: u64| {
            let rate = u128::from(count) * 1_000_000 / u128::from(span.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let each = |time: u64, count: u64| time.checked_div(count).unwrap_or_default();
        Self {
            server_assignment_count: per_second(self.server_assignment_count),
            xact_count: per_second(self.xact_count),
            query_count: per_second(self.query_count),
            received: per_second(self.received),
            sent: per_second(self.sent),
            xact_time: each(self.xact_time, self.xact_count),
            query_time: each(self.query_time, self.query_count),
            wait_time: each(self.wait_time, self.server_assignment_count),
            client_parse_count: per_second(self.client_parse_count),
            server_parse_count: per_second(self.server_parse_count),
            bind_count: per_second(self.bind_count),
            client_login_count: per_second(self.client_login_count),
            ..Self::default()
        }
    }
}

/// Counters, and their values at the ends of the last two periods (`stats_period`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Periods {
    /// The current values.
    pub now: Stats,
    older: Stats,
    newer: Stats,
}

impl Periods {
    /// Records that `ended` periods have ended since the last call.
    pub fn turn(&mut self, ended: u64) {
        if ended > 0 {
            self.older = if ended == 1 { self.newer } else { self.now };
            self.newer = self.now;
        }
    }

    /// Returns the counts since the beginning of the last whole period.
    #[must_use]
    pub fn recent(&self) -> Stats {
        self.now - self.older
    }
}
