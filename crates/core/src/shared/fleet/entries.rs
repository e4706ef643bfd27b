//! The state of the entries of `[databases]` and `[users]` in etcd (`config_etcd`), for metrics.

/// The entries in etcd, as this process has read them last. All fields are zero without `config_etcd`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntriesView {
    /// The revision of etcd that was read last.
    pub revision: u64,
    /// How many entries of etcd are in force.
    pub entries: u64,
    /// Whether the entries that were read last are not used, since one of them is wrong.
    pub is_refused: bool,
    /// Whether etcd answers.
    pub is_connected: bool,
}
