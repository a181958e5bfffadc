//! See `tollway_net::fuzzing::edge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_net::fuzzing::edge(data));
