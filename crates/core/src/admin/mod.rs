//! The console.
/// A console command on its way through all workers.
#[derive(Debug)]
pub struct Collection;
