//! A fold: it moves the tallies of one log into the store, some rows at a time.

use std::collections::HashMap;

use carom_shards::Code;

use super::parts::Apps;
use carom_model::visits::tally::{Subject, Tally, TallyRow, VisitCounts, VisitGroup, name_of_day};
use carom_store::links::Batch;

/// Number of rows written at once. That takes a few milliseconds, for which a reader of counts waits.
pub(super) const FOLD_STEP: usize = 2_000;

/// The tallies that are being written to the store.
#[derive(Debug)]
pub(super) struct Fold {
    /// The number of their log, under which the rows are stored.
    pub(super) seq: u32,
    /// The tallies to write, by hour.
    pub(super) tallies: Vec<(u32, Tally)>,
    /// The rows that remain to be written, in reverse order.
    todo: Vec<(u32, Subject)>,
    /// Visits by hour and part (app or domain), summed over the links written so far.
    parts: HashMap<(u32, VisitGroup), VisitCounts>,
}

impl Fold {
    /// Returns the fold of a log's tallies.
    pub(super) fn new(seq: u32, tallies: Vec<(u32, Tally)>) -> Fold {
        assert!(
            (1..tallies.len()).all(|at| tallies[..at].iter().all(|(hour, _)| *hour != tallies[at].0)),
            "two rows of a subject and an hour would replace each other"
        );
        let subjects = tallies.iter().flat_map(|(hour, tally)| tally.subjects().map(|subject| (*hour, subject)));
        let mut todo: Vec<(u32, Subject)> = subjects.collect();
        // In the order of the store, so that neighbours are written together.
        todo.sort_unstable_by_key(|(_, subject)| std::cmp::Reverse(*subject));
        Fold { seq, tallies, todo, parts: HashMap::new() }
    }

    /// Returns the links whose rows are written next.
    pub(super) fn next_links(&self) -> Vec<Code> {
        let next = self.todo.iter().rev().take(FOLD_STEP);
        next.filter_map(|(_, subject)| if let Subject::Link(code) = subject { Some(*code) } else { None }).collect()
    }

    /// Adds the next rows to a batch. `apps` must know their links. Returns true if no rows remain.
    pub(super) fn put_some(&mut self, batch: &mut Batch, apps: &Apps) -> bool {
        let mut value = Vec::new();
        let mut put = |name: &[u8], hour: u32, row: &TallyRow| {
            value.clear();
            row.encode(&mut value);
            batch.put_visits(name, (hour, self.seq), &value);
        };
        for _ in 0..FOLD_STEP {
            let Some((hour, subject)) = self.todo.pop() else { break };
            debug_assert!(self.tallies.iter().any(|(of, _)| *of == hour), "the visits of an hour would not be stored");
            let row = self.tallies.iter().find(|(of, _)| *of == hour).map(|(_, tally)| tally.row(&subject));
            let Some(row) = row.filter(|row| *row != TallyRow::default()) else { continue };
            put(&subject.name(), hour, &row);
            match subject {
                Subject::All => put(&name_of_day(hour / 24), hour, &row),
                Subject::Orphans => {}
                Subject::Link(code) => {
                    apps.parts_of(&code).for_each(|part| self.parts.entry((hour, part)).or_default().add(row.counts));
                }
            }
        }
        let is_done = self.todo.is_empty();
        if is_done {
            self.parts.iter().for_each(|((hour, part), counts)| put(&part.name(), *hour, &TallyRow::from(*counts)));
        }
        is_done
    }
}
