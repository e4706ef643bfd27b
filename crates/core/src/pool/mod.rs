//! Who waits, which server is lent, which to open or close.
/// Names a pool in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId(pub u32);
