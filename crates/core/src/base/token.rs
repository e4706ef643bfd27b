//! The ids of connections and workers.

/// The id of one connection of one worker: a client, a server or a cancel request.
///
/// The generation makes a late event for a closed connection harmless: another connection may use the same slot, but
/// never with the same generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// The index in the worker's (and the driver's) table of connections.
    pub slot: u32,
    /// The number of connections that have used the slot before.
    pub generation: u32,
}

impl Token {
    /// Packs the token into the 64 bits that a poller returns with each event.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Returns the token of these bits: the reverse of [`Token::to_bits`].
    #[must_use]
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        let [slot, generation] = [bits & 0xffff_ffff, bits >> 32].map(|half| half as u32);
        Self { slot, generation }
    }
}

/// A worker's index: 0 to `workers - 1`, at most 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u8);

impl WorkerId {
    /// The largest number of workers of a process: cancel keys have six bits for the worker.
    pub const MAX_WORKERS: usize = 64;

    /// Returns the id as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
