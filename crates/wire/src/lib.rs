//! pgweir-wire
