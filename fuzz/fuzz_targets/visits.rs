//! Fuzz target for stored and exchanged visits: see `check_visits` in `fuzz/format_checks.rs`.
#![no_main]

#[path = "../format_checks.rs"]
mod format_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| format_checks::check_visits(input));
