//! See `codecs::tcp_option`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollway_fuzz::codecs::tcp_option(data));
