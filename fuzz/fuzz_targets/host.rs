//! See `hosts::strangers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::hosts::strangers(data));
