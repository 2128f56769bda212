//! A fold: it moves the tallies of one log into the store, some rows at a time.

use std::collections::HashMap;

use carom_shards::Code;

use super::groups::Apps;
use carom_model::visits::origins::OriginSlot;
use carom_model::visits::tally::{Subject, Tally, TallyRow, VisitCounts, VisitGroup, name_of_day};
use carom_store::links::{Batch, RowPlace};

/// The origin and the hour of a tally.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Period {
    /// The slot of the origin.
    pub(super) slot: OriginSlot,
    /// The hour, counted from 1970 UTC.
    pub(super) hour: u32,
}

/// Number of rows written at once. That takes a few milliseconds, for which a reader of counts waits.
pub(super) const FOLD_STEP: usize = 2_000;

/// The tallies that are being written to the store.
#[derive(Debug)]
pub(super) struct Fold {
    /// The number of their log, under which the rows are stored.
    pub(super) seq: u32,
    /// The tallies to write.
    pub(super) tallies: Vec<(Period, Tally)>,
    /// The last batch of each origin in the log.
    pub(super) reached: HashMap<OriginSlot, u64>,
    /// The rows that remain to be written, in reverse order.
    todo: Vec<(Period, Subject)>,
    /// Visits by period and group (app or domain), summed over the links written so far.
    groups: HashMap<(Period, VisitGroup), VisitCounts>,
}

impl Fold {
    /// Returns the fold of a log's tallies.
    pub(super) fn new(seq: u32, tallies: Vec<(Period, Tally)>, reached: HashMap<OriginSlot, u64>) -> Fold {
        assert!(
            (1..tallies.len()).all(|at| tallies[..at].iter().all(|(period, _)| *period != tallies[at].0)),
            "two rows of a subject and an hour would replace each other"
        );
        let subjects = tallies.iter().flat_map(|(period, tally)| tally.subjects().map(|subject| (*period, subject)));
        let mut todo: Vec<(Period, Subject)> = subjects.collect();
        // In the order of the store, so that neighbours are written together.
        todo.sort_unstable_by_key(|(_, subject)| std::cmp::Reverse(*subject));
        Fold { seq, tallies, reached, todo, groups: HashMap::new() }
    }

    /// Returns the links whose rows are written next.
    pub(super) fn next_links(&self) -> Vec<Code> {
        let next = self.todo.iter().rev().take(FOLD_STEP);
        next.filter_map(|(_, subject)| if let Subject::Link(code) = subject { Some(*code) } else { None }).collect()
    }

    /// Adds the next rows to a batch. `apps` must know their links. Returns true if no rows remain.
    pub(super) fn put_some(&mut self, batch: &mut Batch, apps: &Apps) -> bool {
        let mut value = Vec::new();
        let mut put = |name: &[u8], Period { slot, hour }: Period, row: &TallyRow| {
            value.clear();
            row.encode(&mut value);
            batch.put_visits(name, RowPlace { hour, slot, log: self.seq }, &value);
        };
        for _ in 0..FOLD_STEP {
            let Some((period, subject)) = self.todo.pop() else { break };
            // The tally is gone if a snapshot of its origin has replaced it.
            let row = self.tallies.iter().find(|(of, _)| *of == period).map(|(_, tally)| tally.row(&subject));
            let Some(row) = row.filter(|row| *row != TallyRow::default()) else { continue };
            put(&subject.name(), period, &row);
            match subject {
                Subject::All => put(&name_of_day(period.hour / 24), period, &row),
                Subject::Orphans => {}
                Subject::Link(code) => {
                    apps.groups_of(&code)
                        .for_each(|group| self.groups.entry((period, group)).or_default().add(row.counts));
                }
            }
        }
        let is_done = self.todo.is_empty();
        if is_done {
            self.groups
                .iter()
                .for_each(|((period, group), counts)| put(&group.name(), *period, &TallyRow::from(*counts)));
        }
        is_done
    }
}
