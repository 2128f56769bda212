//! Fuzz target for packets from tunnels of balancers: see `check_tunnels` in `fuzz/net_checks.rs`.
#![no_main]

#[path = "../net_checks.rs"]
mod net_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| net_checks::check_tunnels(input));
