//! The checks of the fuzz targets over the committed seeds, over every truncation and over a few changes of each byte:
//! the first inputs of a fuzzer, in every test run.

#[path = "../fuzz/checks.rs"]
mod checks;
#[path = "../fuzz/format_checks.rs"]
mod format_checks;
#[path = "../fuzz/net_checks.rs"]
mod net_checks;
#[path = "../fuzz/server_checks.rs"]
mod server_checks;

use std::path::Path;

/// Runs a check over every seed of a target and its neighbours.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).expect("each target has seeds") {
        let seed = std::fs::read(entry.expect("a seed can be listed").path()).expect("a seed can be read");
        seeds += 1;
        check(&seed);
        for at in 0..seed.len() {
            check(&seed[..at]);
            for byte in [0, b'\n', b'\r', b' ', b':', b'0', 0xff, seed[at] ^ 0x20, seed[at] ^ 1] {
                let mut changed = seed.clone();
                changed[at] = byte;
                check(&changed);
            }
            let mut doubled = seed.clone();
            doubled.insert(at, seed[at]);
            check(&doubled);
        }
    }
    assert!(seeds > 0, "{} has no seeds", folder.display());
}

#[test]
fn head_seeds_hold() {
    replay("head", checks::check_head);
}

#[test]
fn connection_seeds_hold() {
    replay("connection", checks::check_connection);
}

#[test]
fn record_seeds_hold() {
    replay("record", checks::check_record);
}

#[test]
fn code_seeds_hold() {
    replay("code", checks::check_code);
}

#[test]
fn net_seeds_hold() {
    replay("net", net_checks::check_frames);
}

#[test]
fn tunnel_seeds_hold() {
    replay("tunnel", net_checks::check_tunnels);
}

#[test]
fn rules_seeds_hold() {
    replay("rules", format_checks::check_rules);
}

#[test]
fn state_seeds_hold() {
    replay("state", format_checks::check_state);
}

#[test]
fn visits_seeds_hold() {
    replay("visits", format_checks::check_visits);
}

#[test]
fn request_seeds_hold() {
    replay("request", format_checks::check_request);
}

#[test]
fn import_seeds_hold() {
    replay("import", server_checks::check_import);
}

#[test]
fn geo_seeds_hold() {
    replay("geo", server_checks::check_geo);
}

#[test]
fn backup_seeds_hold() {
    replay("backup", server_checks::check_backup);
}

#[test]
fn tls_seeds_hold() {
    replay("tls", checks::check_tls);
}
