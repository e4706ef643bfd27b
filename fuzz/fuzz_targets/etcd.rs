//! The checks are described at `pgweir_fuzz_targets::etcd`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pgweir_fuzz_targets::etcd::run(data));
