//! The limits that hold for a client's messages.

/// The limits of a client's messages, and which messages are refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageLimits {
    /// The maximum number of statements on a server; 0 if pgweir does not replace statement names.
    pub(super) statements_max: usize,
    /// `max_client_prepared_bytes`.
    pub(super) prepared_bytes_max: usize,
    /// The maximum number of outstanding replies; above it, pgweir does not read from the client
    /// (`max_pipelined_messages`).
    pub(super) replies_max: usize,
    /// The maximum length of a message (`max_packet_size`).
    pub(super) message_max: u32,
    /// Whether simple queries are refused (`disable_pqexec`).
    pub(super) refuses_simple: bool,
    /// Whether an error that ends a connection in PgBouncer ends it here (`session_state = off`).
    pub(super) as_pgbouncer: bool,
}
