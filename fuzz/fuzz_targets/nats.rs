//! See `tollway_overlay::nats::parse::read_anything`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_overlay::nats::parse::read_anything(data));
