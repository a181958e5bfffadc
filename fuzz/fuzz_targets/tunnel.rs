//! See `packets::tunnel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::packets::tunnel(data));
