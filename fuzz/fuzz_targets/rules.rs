//! Fuzz target for redirect rules: see `check_rules` in `fuzz/format_checks.rs`.
#![no_main]

#[path = "../format_checks.rs"]
mod format_checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| format_checks::check_rules(input));
