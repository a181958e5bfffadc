//! See `inputs::graphml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::inputs::graphml(data));
