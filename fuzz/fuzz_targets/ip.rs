//! See `packets::ip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::packets::ip(data));
