//! What lists must know of visits, from whoever counts them.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use carom_shards::Code;

use crate::services::visits;
use carom_model::query::PartCounts;
use carom_model::visits::tally::{Counts, Part, Subject};
use carom_store::links::StoreError;

/// Who counts visits.
pub trait Visits: Send + Sync {
    /// How often the links of these codes were followed.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn counts(&self, codes: &[Code]) -> Result<Vec<Counts>, StoreError>;

    /// How often the link of a code was followed in those hours, counted from 1970 UTC.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn counts_within(&self, code: &Code, _hours: Range<u32>) -> Result<Counts, StoreError> {
        Ok(self.counts(std::slice::from_ref(code))?.first().copied().unwrap_or_default())
    }

    /// The hosts that sent visits of any links on those days, counted from 1970 UTC, and how many.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn referrers(&self, _days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        Ok(HashMap::new())
    }

    /// How often the links of parts were followed in those hours, counted from 1970 UTC.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn of_parts(&self, parts: &[Part], _hours: Range<u32>) -> Result<PartCounts, StoreError> {
        Ok(PartCounts { counts: vec![Counts::default(); parts.len()], is_whole: true })
    }

    /// The codes of so many links that were followed most, those first that were followed most often; `None` where nobody
    /// keeps them in that order.
    ///
    /// # Errors
    /// Where the store cannot be read.
    fn most_visited(&self, _count: usize, _without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        Ok(None)
    }
}

impl Visits for visits::Visits {
    fn counts(&self, codes: &[Code]) -> Result<Vec<Counts>, StoreError> {
        self.counts(codes)
    }

    fn counts_within(&self, code: &Code, hours: Range<u32>) -> Result<Counts, StoreError> {
        Ok(self.history(Subject::Link(*code))?.within(hours))
    }

    fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        self.referrers(days)
    }

    fn of_parts(&self, parts: &[Part], hours: Range<u32>) -> Result<PartCounts, StoreError> {
        self.of_parts(parts, hours)
    }

    fn most_visited(&self, count: usize, without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        self.most_visited(count, without_bots).map(Some)
    }
}
