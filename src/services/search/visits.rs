//! The counts of visits that lists need.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use carom_shards::Code;

use crate::services::visits;
use carom_model::query::GroupCounts;
use carom_model::visits::tally::{Subject, VisitCounts, VisitGroup};
use carom_store::links::StoreError;

/// A source of visit counts.
pub trait VisitSource: Send + Sync {
    /// Returns the visits of the links with these codes, in their order.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError>;

    /// Returns the visits of a link within `hours`, counted from 1970 UTC.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn counts_within(&self, code: &Code, _hours: Range<u32>) -> Result<VisitCounts, StoreError> {
        Ok(self.counts(std::slice::from_ref(code))?.first().copied().unwrap_or_default())
    }

    /// Returns the visits by referring host on `days`, counted from 1970 UTC, summed over all links.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn referrers(&self, _days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        Ok(HashMap::new())
    }

    /// Returns the visits of groups of links within `hours`, counted from 1970 UTC; all visits without `hours`.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn of_groups(&self, groups: &[VisitGroup], _hours: Option<Range<u32>>) -> Result<GroupCounts, StoreError> {
        Ok(GroupCounts { counts: vec![VisitCounts::default(); groups.len()], is_whole: true })
    }

    /// Returns the codes of the most visited links, at most `count` of them, most visited first; `None` if no such
    /// ranking exists.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn most_visited(&self, _count: usize, _without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        Ok(None)
    }

    /// True if the last ranking is that of all links. Soon after a start, it has only links that were visited since.
    fn ranks_all(&self) -> bool {
        true
    }
}

impl VisitSource for visits::VisitReader {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        self.counts(codes)
    }

    fn counts_within(&self, code: &Code, hours: Range<u32>) -> Result<VisitCounts, StoreError> {
        Ok(self.history(Subject::Link(*code))?.within(hours))
    }

    fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        self.referrers(days)
    }

    fn of_groups(&self, groups: &[VisitGroup], hours: Option<Range<u32>>) -> Result<GroupCounts, StoreError> {
        self.of_groups(groups, hours)
    }

    fn most_visited(&self, count: usize, without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        self.most_visited(count, without_bots).map(Some)
    }

    fn ranks_all(&self) -> bool {
        self.ranks_all()
    }
}
