//! See `tollway_shape::fuzzing::types`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_shape::fuzzing::types(data));
