//! `pgweir_fuzz_targets::patroni` says what is checked.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pgweir_fuzz_targets::patroni::run(data));
