//! See `tollway_report::fuzzing::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_report::fuzzing::http(data));
