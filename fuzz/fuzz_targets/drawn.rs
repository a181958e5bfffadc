//! See `scenarios::drawn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::scenarios::drawn(data));
