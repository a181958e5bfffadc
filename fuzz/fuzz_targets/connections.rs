//! See `tollway_net::fuzzing::connections`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_net::fuzzing::connections(data));
