//! Finds the most visited links, from a search of all rows and from the links visited at present.
//!
//! The search reads everything that is stored, once an hour, and keeps the links with the largest counts. Links that
//! rise in between are noticed when their visits are written to the log. Both kinds are candidates, and their counts
//! are looked up on demand. So the order among candidates is exact. Any other link had fewer visits than the candidates
//! of the last search, and has had few since.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use carom_shards::Code;

use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, TallyRow, VisitCounts};

/// Number of candidates of each kind: as many as a list by visits may have.
const KEPT: usize = carom_limits::LIST_SORTED_MAX;

/// The links with the largest counts.
#[derive(Debug, Default)]
struct Largest(BinaryHeap<Reverse<(u64, Code)>>);

impl Largest {
    fn add(&mut self, count: u64, code: Code) {
        if count > 0 && (self.0.len() < KEPT || self.0.peek().is_some_and(|least| least.0.0 < count)) {
            self.0.push(Reverse((count, code)));
            if self.0.len() > KEPT {
                self.0.pop();
            }
        }
    }

    fn codes(self) -> impl Iterator<Item = Code> {
        self.0.into_iter().map(|Reverse((_, code))| code)
    }
}

/// The search and its results.
#[derive(Debug, Default)]
pub(super) struct TopLinks {
    /// The subject whose rows are being summed up.
    name: Vec<u8>,
    counts: VisitCounts,
    all: Largest,
    without_bots: Largest,
    /// The links that the last whole search found.
    found: HashSet<Code>,
    /// True once a whole search has ended.
    has_searched: bool,
    /// Links that were visited lately, with their visits in the current tallies.
    rising: HashMap<Code, u64>,
}

impl TopLinks {
    /// Adds a stored row to the search. The rows of one subject must follow each other.
    pub(super) fn add_row(&mut self, name: &[u8], is_merged: bool, value: &[u8]) {
        if self.name != name {
            self.end_subject();
            self.name = name.to_vec();
        }
        self.counts.add(if is_merged {
            VisitHistory::decode(value).unwrap_or_default().all.counts
        } else {
            TallyRow::decode(&mut &value[..]).unwrap_or_default().counts
        });
    }

    fn end_subject(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if let Some(Subject::Link(code)) = Subject::of_name(&std::mem::take(&mut self.name)) {
            self.all.add(counts.total, code);
            self.without_bots.add(counts.total.saturating_sub(counts.bots), code);
        }
    }

    /// Ends the search, after the last row.
    pub(super) fn end_search(&mut self) {
        self.end_subject();
        let (all, without_bots) = (std::mem::take(&mut self.all), std::mem::take(&mut self.without_bots));
        self.found = all.codes().chain(without_bots.codes()).collect();
        self.has_searched = true;
    }

    /// True if the candidates are those of all links. Before, they are only links that were visited since the start.
    pub(super) fn has_searched(&self) -> bool {
        self.has_searched
    }

    /// True while links that were visited once are worth noting: few others were visited since the last search.
    pub(super) fn has_room(&self) -> bool {
        self.rising.len() < KEPT
    }

    /// Notes a link that was visited, with its visits in the current tallies.
    pub(super) fn note_visited(&mut self, code: Code, count: u64) {
        self.rising.insert(code, count);
        if self.rising.len() > 2 * KEPT {
            let mut rising: Vec<(Code, u64)> = self.rising.drain().collect();
            rising.select_nth_unstable_by_key(KEPT, |(_, count)| Reverse(*count));
            self.rising = rising.into_iter().take(KEPT).collect();
        }
    }

    /// Returns the candidates, each once.
    pub(super) fn candidates(&self) -> Vec<Code> {
        let rising = self.rising.keys().filter(|code| !self.found.contains(code));
        self.found.iter().chain(rising).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_found_and_what_rises_is_among_them() {
        let mut top_links = TopLinks::default();
        let code = |number: usize| Code::parse(format!("c{number:05}").as_bytes()).unwrap();
        for number in 0..3 * KEPT {
            // Two rows each, one of them merged. The last links have the most visits, by bots.
            let mut row = TallyRow::default();
            (0..=number / 100).for_each(|_| row.add(&TallyRow::of_visit(number > 2 * KEPT, b"")));
            let mut history = VisitHistory::default();
            history.add(490_000, &row);
            let (name, mut bytes, mut together) = (Subject::Link(code(number)).name(), Vec::new(), Vec::new());
            row.encode(&mut bytes);
            history.encode(&mut together);
            top_links.add_row(&name, true, &together);
            top_links.add_row(&name, false, &bytes);
        }
        assert!(top_links.candidates().is_empty());
        top_links.end_search();
        let found = top_links.candidates();
        assert!(found.contains(&code(3 * KEPT - 1)));
        assert!(found.contains(&code(2 * KEPT)));
        assert!(!found.contains(&code(0)));
        assert!(found.len() <= 2 * KEPT);
        top_links.note_visited(code(0), 1_000_000);
        (0..5 * KEPT).for_each(|number| top_links.note_visited(code(10 + number), 1));
        let found = top_links.candidates();
        assert!(found.contains(&code(0)));
        assert!(found.len() <= 4 * KEPT);
        let distinct: HashSet<&Code> = found.iter().collect();
        assert_eq!(distinct.len(), found.len());
    }
}
