//! See `tollway_report::fuzzing::http` and `tollway_exec::fuzzing::wish`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tollway_report::fuzzing::http(data);
    tollway_exec::fuzzing::wish(data);
});
