//! See `scenarios::table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::scenarios::table(data));
