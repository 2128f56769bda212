//! Fuzz target for states of codes in Redis: see `check_state` in `fuzz/format_checks.rs`.
#![no_main]

#[path = "../format_checks.rs"]
mod format_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| format_checks::check_state(input));
