//! Power loss: unsynced data is gone, but no acknowledged change is. A control node acknowledges before it syncs, and
//! the same check must notice.

#![cfg(feature = "faults")]

use std::time::Duration;

use carom::services::faults::power_loss;

use crate::support::ledger::Ledger;
use crate::support::node::{CUT_OFF, Dice, Setup};

/// Losses of power that an honest node must survive.
const LOSSES: usize = 12;

/// Changes before each loss, at least.
const CHANGES: u64 = 20;

/// Rounds after which the control must have been caught.
const CONTROL_ROUNDS: usize = 10;

/// Clients that change links at once.
const CLIENTS: usize = 6;

/// Runs clients, kills the node, and takes away what was not synced. Returns what the next node does not keep, and how
/// many bytes were lost.
fn lose_power(setup: &Setup, ledger: &mut Ledger, dice: &mut Dice) -> (Vec<String>, u64) {
    let node = setup.start();
    let changes = CHANGES + dice.below(200);
    let then = Duration::from_micros(dice.below(20_000));
    ledger.run_until(node.public, changes, then, || node.kill());
    let lost = power_loss(setup.data_dir()).expect("the writer kept its list");
    let node = setup.start();
    let broken = ledger.check(&node, 1);
    node.terminate();
    (broken, lost)
}

fn setup(data: &tempfile::TempDir) -> Setup {
    // What a loss of power leaves behind the last sync is noise, in the middle of a write or after it.
    Setup::new(data.path()).cores(2).expect(CUT_OFF).expect("the code table could not be opened")
}

#[test]
fn acknowledged_writes_survive() {
    let data = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut ledger = Ledger::new(CLIENTS, &mut dice);
    let setup = setup(&data);
    for round in 0..LOSSES {
        let (broken, _) = lose_power(&setup, &mut ledger, &mut dice);
        assert_eq!(broken, Vec::<String>::new(), "loss {round}");
    }
    assert!(ledger.acknowledged() >= CHANGES * LOSSES as u64, "only {} changes", ledger.acknowledged());
}

#[test]
fn early_acknowledgement_is_caught() {
    let data = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut ledger = Ledger::new(CLIENTS, &mut dice);
    // The settings know nothing of faults, and say so.
    let setup = setup(&data).env("CAROM_FAULT", "ack-before-sync").expect("CAROM_FAULT is not a setting");
    let mut lost_in_all = 0;
    for _ in 0..CONTROL_ROUNDS {
        let (broken, lost) = lose_power(&setup, &mut ledger, &mut dice);
        lost_in_all += lost;
        if !broken.is_empty() {
            return;
        }
    }
    panic!("not caught in {CONTROL_ROUNDS} rounds, in which {lost_in_all} bytes were lost");
}
