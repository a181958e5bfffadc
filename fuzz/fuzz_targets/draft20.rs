//! See `codecs::draft20`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::codecs::draft20(data));
