//! Fuzz target for databases of locations: see `check_geo` in `fuzz/server_checks.rs`.
#![no_main]

#[path = "../server_checks.rs"]
mod server_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| server_checks::check_geo(input));
