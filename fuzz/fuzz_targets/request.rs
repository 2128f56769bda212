//! Fuzz target for header fields, queries and destinations of clients: see `check_request` in `fuzz/format_checks.rs`.
#![no_main]

#[path = "../format_checks.rs"]
mod format_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| format_checks::check_request(input));
