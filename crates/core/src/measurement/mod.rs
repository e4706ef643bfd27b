//! Measurements of one worker: its memory, its statistics, and the traces of transactions.

pub(crate) mod memory_use;
pub(crate) mod recording;
pub(crate) mod statistics;
