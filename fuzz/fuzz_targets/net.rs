//! Fuzz target for frames of the TCP/IP stack: see `check_frames` in `fuzz/net_checks.rs`.
#![no_main]

#[path = "../net_checks.rs"]
mod net_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| net_checks::check_frames(input));
