//! See `tollway_net::fuzzing::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_net::fuzzing::frame(data));
