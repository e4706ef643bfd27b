//! pgweir-sim
