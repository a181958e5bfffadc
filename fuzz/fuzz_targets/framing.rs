//! See `codecs::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::codecs::framing(data));
