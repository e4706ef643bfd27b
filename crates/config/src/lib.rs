//! Every setting of pgweir declared once, and the parser of pgbouncer.ini.

/// A checked configuration.
#[derive(Debug, Default)]
pub struct Config;
