//! The stack against smoltcp over a wire that loses, doubles, reorders, delays, cuts and damages frames: every byte
//! arrives in order or the connection ends, and nothing is left at the end.
//!
//! `CAROM_NET_CONNECTIONS` sets the number of connections of the large run, `CAROM_NET_SEED` its seed.

mod client;
mod plan;
mod server;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use carom_net::{NetFaults, StackConfig};

use crate::wire::Quality;
use crate::world::{Report, Setting, World};

/// Connections of a world.
const PER_WORLD: u64 = 1_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn world(seed: u64, connections: u64, quality: Option<Quality>, config: StackConfig) -> Result<Report, String> {
    World::new(&Setting { seed, clients: 64, connections, quality, config }).run()
}

#[test]
fn every_byte_arrives_or_the_connection_ends() {
    let connections = number("CAROM_NET_CONNECTIONS", 100_000);
    let first = number("CAROM_NET_SEED", 1);
    let worlds = connections.div_ceil(PER_WORLD);
    let threads = 2;
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let run = |thread| {
            let seeds = (first + thread..first + worlds).step_by(threads as usize);
            seeds
                .map(|seed| {
                    world(seed, PER_WORLD, None, StackConfig::default())
                        .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"))
                })
                .collect::<Vec<Report>>()
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("the worlds hold")).collect()
    });
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (total, failed) = (sum(|report| report.connections), sum(|report| report.failed));
    let (unheard, forgotten) = (sum(|report| report.unheard), sum(|report| report.fin_forgotten));
    println!("{total} connections, {} finished at the server", sum(|report| report.finished));
    println!("{failed} ended early: {unheard} had nothing to say, {forgotten} forgot their FIN");
    assert!(total >= connections);
    assert!(unheard * 1_000 < total, "{unheard} and {forgotten} of {total}");
    assert!(forgotten * 5_000 < total, "{unheard} and {forgotten} of {total}");
    // When frames are short, the stack resets connections that acknowledge nothing for a second.
    let shed = sum(|report| report.counters.shed);
    assert!(shed * 200 < total, "{shed} of {total}");
    let unexplained = (failed - unheard - forgotten).saturating_sub(shed);
    assert!(unexplained * 100_000 <= total, "{unexplained} of {total} have ended early without a known reason");
    // Each rule was at work.
    for (name, count) in [
        ("retransmissions", sum(|report| report.counters.retransmissions)),
        ("fast retransmissions", sum(|report| report.counters.fast_retransmissions)),
        ("tail probes", sum(|report| report.counters.tail_probes)),
        ("timeouts", sum(|report| report.counters.timeouts)),
        ("out of order", sum(|report| report.counters.out_of_order)),
        ("no frame", sum(|report| report.counters.no_frame)),
        ("cookies", sum(|report| report.counters.cookies_accepted)),
        ("TIME-WAIT again", sum(|report| report.counters.time_wait_reused)),
        ("window probes", sum(|report| report.counters.window_probes)),
    ] {
        println!("{name}: {count}");
        assert!(count > 0, "{name}: none");
    }
}

#[test]
fn bursts_lost_at_full_rings_cost_no_connection() {
    // One in six handshakes begins, or ends, while the server gets no frame.
    let full = Quality { loss: 0, double: 0, late: 0, cut: 0, damage: 0, delay_us: 500, full_ms: 120 };
    for seed in 0..3 {
        let report = world(seed, PER_WORLD, Some(full), StackConfig::default())
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let explained = report.unheard + report.fin_forgotten + report.counters.shed;
        let unexplained = report.failed.saturating_sub(explained);
        assert!(unexplained * 500 <= report.connections, "seed {seed}: {unexplained} have ended early: {report:?}");
    }
}

/// Returns true if some world shows that a rule is off.
fn is_noticed(config: impl Fn() -> StackConfig) -> bool {
    let bad = Quality { loss: 50, double: 50, late: 200, cut: 10, damage: 50, delay_us: 1000, full_ms: 0 };
    (0..3).any(|seed| {
        let outcome = catch_unwind(AssertUnwindSafe(|| world(seed, 200, Some(bad), config())));
        outcome.is_err()
            || outcome.is_ok_and(|result| {
                result.is_err() || result.is_ok_and(|report| report.failed * 100 > report.connections)
            })
    })
}

fn with_faults(faults: NetFaults) -> StackConfig {
    StackConfig { faults, ..StackConfig::default() }
}

#[test]
fn all_rules_together_hold_in_the_bad_world() {
    assert!(!is_noticed(StackConfig::default));
}

#[test]
fn missing_checksum_verification_is_noticed() {
    assert!(is_noticed(|| StackConfig { verifies_checksums: false, ..StackConfig::default() }));
}

#[test]
fn missing_retransmission_is_noticed() {
    assert!(is_noticed(|| with_faults(NetFaults { never_retransmits: true, ..NetFaults::default() })));
}

#[test]
fn duplicates_are_noticed() {
    assert!(is_noticed(|| with_faults(NetFaults { keeps_duplicates: true, ..NetFaults::default() })));
}

#[test]
fn missing_reassembly_is_noticed() {
    assert!(is_noticed(|| with_faults(NetFaults { ignores_order: true, ..NetFaults::default() })));
}

#[test]
fn leaked_frames_are_noticed() {
    assert!(is_noticed(|| with_faults(NetFaults { leaks_frames: true, ..NetFaults::default() })));
}

#[test]
fn early_fin_is_noticed() {
    assert!(is_noticed(|| with_faults(NetFaults { takes_early_fin: true, ..NetFaults::default() })));
}
