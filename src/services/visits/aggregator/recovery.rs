//! The start of the aggregator: it reads the logs of the last process.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;

use carom_shards::Code;

use super::super::fold::{Fold, Period};
use super::super::intake::tally_of;
use super::super::log;
use carom_model::visits::batches::FleetCounts;
use carom_model::visits::origins::OriginSlot;
use carom_model::visits::tally::Subject;

/// The logs of the last process.
pub(super) struct Recovered {
    /// One fold for each log, oldest first.
    pub(super) folds: VecDeque<Fold>,
    /// Links that have ended, by the slot of the batch that says so.
    pub(super) gone: HashMap<OriginSlot, Vec<Code>>,
    /// The number of the last log.
    pub(super) last: u32,
}

/// Reads the logs that are not folded, and removes the others.
pub(super) fn recover(dir: &Path, folded: u32, fleet: &mut FleetCounts) -> io::Result<Recovered> {
    let mut folds: VecDeque<Fold> = VecDeque::new();
    let mut gone: HashMap<OriginSlot, Vec<Code>> = HashMap::new();
    let mut last = folded;
    for seq in log::seqs(dir)? {
        last = last.max(seq);
        if seq <= folded {
            // The rows of this log are stored; the crash came before it was removed.
            log::remove(dir, seq)?;
            continue;
        }
        let mut tallies = Vec::new();
        log::read(dir, seq, |piece| {
            let Some(slot) = fleet.recover(piece.logged()) else { return };
            for code in piece.ended {
                let before = folds.iter_mut().flat_map(|fold| &mut fold.tallies).chain(&mut tallies);
                let before = before.filter(|(period, _)| fleet.ends(slot, period.slot));
                before.for_each(|(_, tally)| tally.remove(&Subject::Link(code)));
                gone.entry(slot).or_default().push(code);
            }
            let tally = tally_of(&mut tallies, Period { slot, hour: piece.hour });
            piece.rows.iter().for_each(|(subject, row)| tally.add_row(*subject, row));
        })?;
        log::sync(dir, seq)?;
        assert!(folds.back().is_none_or(|last| last.seq < seq), "logs are folded in their order");
        // Some rows may be stored already. Rows under the same number replace each other.
        folds.push_back(Fold::new(seq, tallies, fleet.take_reached()));
    }
    Ok(Recovered { folds, gone, last })
}
