//! A fleet in one thread: nodes, Redis and clients take steps in any order, things go wrong, and in the end everything
//! that was promised must be true.
//!
//! What is decided is the code of the program: `fleet::rules`, `fleet::follow`, `fleet::outbox`, `fleet::lease` and
//! `control::plan` are driven as its threads drive them. What they stand on is a model: the store of a node with what a
//! power loss may take of it (`store.rs`), Redis with replicas that lag behind, dumps, trimmed streams and clocks that
//! jump (`redis.rs`), commands that are lost, late, or sent twice (`world.rs`). A node has three threads that send orders
//! to its writer, each in its own order: who asks Redis for clients, who follows, brings and compares (`follower.rs`), and
//! who looks unknown codes up. The writer takes from them in any order (`node.rs`).
//!
//! A schedule is one run of some hundred steps, all of them chosen by a seed. Then everything is well again, and within a
//! bound all must come to rest (`rest.rs`). The promises (`ledger.rs`):
//!
//! 1. No code has two acknowledged links at once, and no counter value is given twice.
//! 2. No acknowledged link is lost without a delete. Of a slug that Redis forgot, and that somebody else claimed then, one
//!    may be, and a conflict is reported.
//! 3. All nodes end with what Redis has, and nothing waits for anything.
//! 4. What was deleted stays deleted, and what was refused does not turn up.
//! 5. A node whose client was told that a link is gone does not show it again.
//!
//! That this would be seen is shown for each thing that keeps the promises by leaving it out (`guards.rs`).
//!
//! `CAROM_SIM_SCHEDULES` says how many schedules are run, `CAROM_SIM_SEED` replays one with all its steps, and
//! `CAROM_SIM_STEPS` cuts schedules short: with few steps, a search finds short ones.
//!
//! What is not modelled:
//!
//! * A command that comes so late that the code has had two other changes in between, or from a server that is gone.
//! * Two entries of one stream with the same name and the same text, made before and after a loss.
//! * Two losses so close to each other that no read of a stream falls between them and a piece of a comparison.
//! * Losses of the counter by which more values are lost unseen than the margin leaves out, and a fleet whose nodes have
//!   never heard of any counter.
//! * That a slug is claimed, deleted and claimed again after a loss before anybody comes by who knows of the lost link, or
//!   that a second loss brings back what was there before a first one: then its loss may go unreported.
//! * Nodes that take over what others have leased; changes of links; imports; damaged records; full disks.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which the lint does not take for tests"
)]

mod adapter;
mod codes;
mod faults;
mod follower;
mod guards;
mod ledger;
mod node;
mod redis;
mod rest;
mod rng;
mod store;
mod trace;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guards::Guard;
use world::World;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a schedule; a panic of the code under test breaks a promise, too.
fn run(seed: u64, steps: Option<usize>, guard: Option<Guard>) -> Result<(), String> {
    std::panic::catch_unwind(|| World::run(seed, steps, guard, false))
        .unwrap_or_else(|_| Err(format!("schedule {seed} panicked")))
}

/// The first seed in each thread's share whose schedule breaks a promise.
fn search(schedules: u64, guard: Option<Guard>) -> Vec<(u64, String)> {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let steps = setting("CAROM_SIM_STEPS").map(|steps| steps as usize);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(100, Ordering::Relaxed);
            if from >= schedules {
                break;
            }
            for seed in from..(from + 100).min(schedules) {
                if let Err(broken) = run(seed, steps, guard) {
                    stop.store(true, Ordering::Relaxed);
                    return Some((seed, broken));
                }
            }
        }
        None
    };
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort();
    found
}

#[test]
fn the_promises_hold_in_every_schedule() {
    if let Some(seed) = setting("CAROM_SIM_SEED") {
        let steps = setting("CAROM_SIM_STEPS").map(|steps| steps as usize);
        World::run(seed, steps, None, true).unwrap();
        return;
    }
    let found = search(setting("CAROM_SIM_SCHEDULES").unwrap_or(SCHEDULES), None);
    assert!(found.is_empty(), "{found:#?}");
}

/// Without this, some schedule breaks a promise.
fn must_matter(guard: Guard) {
    let found = search(GUARD_SCHEDULES, Some(guard));
    let (seed, broken) = found.first().unwrap_or_else(|| panic!("nothing breaks without {guard:?}"));
    println!("without {guard:?}, schedule {seed}: {broken}");
}

/// Schedules of one test run, if nobody says otherwise: about 20 seconds on two cores.
const SCHEDULES: u64 = 200_000;

/// Schedules within which a guard that is left out must be missed.
const GUARD_SCHEDULES: u64 = 10_000;

macro_rules! guards {
    ($($name:ident: $guard:ident,)*) => {
        $(#[test]
        fn $name() {
            must_matter(Guard::$guard);
        })*
    };
}

guards! {
    a_code_is_given_only_if_nobody_has_it: InsertIfAbsent,
    the_outbox_waits_for_the_echo: Echo,
    what_was_passed_is_brought_again: Passed,
    a_gap_is_noticed: Gap,
    another_entry_of_the_same_name_is_noticed: Check,
    a_comparison_brings_what_redis_lacks: Upwards,
    a_counter_is_raised_to_the_floor: Floor,
    another_server_leaves_a_margin: Margin,
    a_lease_waits_for_a_replica: Wait,
    what_is_undelivered_is_not_overwritten: Undelivered,
    an_acknowledgement_waits_for_the_sync: Sync,
    a_doubtful_slug_is_withdrawn: Withdraw,
    a_mark_is_durable_before_its_values_are_used: Mark,
}
