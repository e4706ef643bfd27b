//! pgweir
fn main() {}
