//! Kills at random moments, while clients create and delete: no acknowledged change is lost or undone, and no code is
//! given twice.

use std::time::{Duration, Instant};

use crate::support::ledger::Ledger;
use crate::support::node::{CUT_OFF, Dice, Node, Setup};

/// Kills under load, at least.
const KILLS: usize = 50;

/// Clients that change links at once.
const CLIENTS: usize = 6;

/// The library of the id table does not always open what a crash left; then the node begins a new one, and tells.
const NEW_ID_TABLE: &str = "the code table could not be opened";

/// Changes before each kill, at least.
const CHANGES: u64 = 10;

/// Runs clients against a node and kills it at a random moment.
fn kill_under_load(node: Node, ledger: &mut Ledger, dice: &mut Dice) -> Setup {
    let changes = CHANGES + dice.below(200);
    // Any moment of a commit.
    let then = Duration::from_micros(dice.below(20_000));
    ledger.run_until(node.public, changes, then, || node.kill())
}

#[test]
fn fifty_kills_lose_nothing_acknowledged() {
    let data = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut ledger = Ledger::new(CLIENTS, &mut dice);
    let mut setup = Setup::new(data.path()).cores(2).expect(CUT_OFF).expect(NEW_ID_TABLE);
    let begin = Instant::now();
    for round in 0..KILLS {
        // Some die while they read their links back.
        if round % 5 == 4 {
            setup.start_and_kill(Duration::from_micros(dice.below(100_000)));
        }
        let node = setup.start();
        assert_eq!(ledger.check(&node, 16), Vec::<String>::new(), "before kill {round}");
        setup = kill_under_load(node, &mut ledger, &mut dice).cores(1 + round % 3);
    }
    let node = setup.start();
    assert_eq!(ledger.check(&node, 1), Vec::<String>::new());
    println!(
        "{KILLS} kills, {} acknowledged changes, {} codes, {:?}",
        ledger.acknowledged(),
        ledger.issued(),
        begin.elapsed()
    );
    // Enough happened for the check to mean something.
    assert!(ledger.acknowledged() >= CHANGES * KILLS as u64, "only {} changes", ledger.acknowledged());
    node.terminate();
}
