//! Pages of a run whose entries all match, so that counting finds any page at the same cost.

use super::bounded_scan::IndexRun;
use super::catalog::{Catalog, Tallies};
use super::rank_index::{Fence, Fences};
use carom_model::query::{Filter, LinkPosition};
use carom_store::links::StoreError;
use carom_store::links::catalog::{IndexKind, View};

/// The fences around a run, as of a view: enough to find any page of the run by reading a few runs between fences.
#[derive(Debug)]
pub(super) struct Around {
    /// The last fence at or before the first key.
    from: Fence,
    /// The last fence at or before the end, or the total number of entries if the run ends with the index.
    to: Result<Fence, u64>,
    /// A fence near the first entry of the page, on the side from which the scan reaches it.
    near: Option<Fence>,
}

pub(super) fn counted_of<'c>(counts: &'c Tallies, run: &IndexRun) -> Option<&'c Fences> {
    let counted = if run.kind == IndexKind::Dates { &counts.dates } else { &counts.tags };
    counted.whole()
}

/// Counts the links of a list that is a single run without further conditions. Returns `None` while its index is not
/// counted yet, and for any other list.
///
/// # Errors
/// If the index cannot be read.
pub(super) fn count(catalog: &Catalog, filter: &Filter) -> Result<Option<u64>, StoreError> {
    let run = match &filter.index_keys()[..] {
        [] => IndexRun::of_dates(filter),
        [index_key] => IndexRun::of_tag(index_key, filter),
        _ => return Ok(None),
    };
    if filter.needs_filtering() {
        return Ok(None);
    }
    let (view, around) =
        catalog.view_with_counts(|counts| counted_of(counts, &run).map(|fences| Around::of(fences, &run, 0, false)));
    let Some(around) = around else { return Ok(None) };
    let (before, before_end) = around.ranks(&view, &run)?;
    Ok(Some(before_end.saturating_sub(before)))
}

impl Around {
    /// Returns the fences around a run, and the one near the entry at `offset` in it.
    pub(super) fn of(fences: &Fences, run: &IndexRun, offset: u64, descending: bool) -> Around {
        let from = fences.before(&run.from);
        let to = if run.to.is_empty() { Err(fences.total()) } else { Ok(fences.before(&run.to)) };
        let near = if descending {
            // A lower bound would not do: this is at least the number of entries before the end.
            let before_end = match &to {
                Ok(fence) => fence.rank + fences.run_len(&run.to),
                Err(total) => *total,
            };
            before_end.checked_sub(1).and_then(|last| fences.behind_rank(last.saturating_sub(offset)))
        } else {
            // This is at most the number of entries before the first one of the page.
            Some(fences.before_rank(from.rank.saturating_add(offset)))
        };
        Around { from, to, near }
    }

    /// Returns an upper bound for the number of entries of the run.
    pub(super) fn len_max(fences: &Fences, run: &IndexRun) -> u64 {
        let before_end = match &run.to[..] {
            [] => fences.total(),
            to => fences.before(to).rank + fences.run_len(to),
        };
        before_end.saturating_sub(fences.before(&run.from).rank)
    }

    /// Returns the number of entries before the run, and before its end.
    pub(super) fn ranks(&self, view: &View, run: &IndexRun) -> Result<(u64, u64), StoreError> {
        let between = |fence: &Fence, to: &[u8]| -> Result<u64, StoreError> {
            if *fence.key == *to {
                return Ok(fence.rank);
            }
            let keys = view.keys(run.kind, &fence.key, to);
            keys.into_iter().try_fold(fence.rank, |rank, key| key.map(|_| rank + 1))
        };
        // An empty `to` would mean the end of the index.
        let before = if run.from.is_empty() { 0 } else { between(&self.from, &run.from)? };
        let before_end = match &self.to {
            Err(total) => *total,
            Ok(fence) => between(fence, &run.to)?,
        };
        Ok((before, before_end))
    }

    /// Iterates over the places of the run after the first `offset`. The run must have more than `offset` entries.
    pub(super) fn places(
        &self,
        view: &View,
        run: &IndexRun,
        (before, before_end): (u64, u64),
        offset: u64,
        descending: bool,
    ) -> impl Iterator<Item = Result<LinkPosition, StoreError>> + use<> {
        let mut part = run.clone();
        let skip = if descending {
            let wanted = before_end - 1 - offset;
            let end = self.near.as_ref().filter(|near| run.to.is_empty() || *near.key < *run.to);
            let rank = end.map_or(before_end, |near| near.rank);
            if let Some(near) = end {
                part.to = near.key.to_vec();
            }
            rank.saturating_sub(1).saturating_sub(wanted)
        } else {
            let wanted = before + offset;
            let begin = self.near.as_ref().filter(|near| *near.key > *run.from);
            let rank = begin.map_or(before, |near| near.rank);
            if let Some(near) = begin {
                part.from = near.key.to_vec();
            }
            wanted.saturating_sub(rank)
        };
        part.places(view, descending).skip(skip as usize)
    }
}
