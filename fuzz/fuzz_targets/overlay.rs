//! See `overlay::overlay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::overlay::overlay(data));
