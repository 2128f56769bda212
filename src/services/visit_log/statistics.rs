//! Statistics of the visit log: counts by what visits tell of their clients.

use super::query::{self, Collect};
use super::{Contents, VisitLogState};
use crate::bridge::visit_log::{VisitFilter, VisitStatistics};
use carom_limits::VISIT_LINKS_SHOWN_MAX;
use carom_model::visits::breakdown::VisitBreakdown;
use carom_model::visits::record::VisitRecord;

impl Collect for VisitBreakdown {
    fn take(&mut self, _: &[u8], visit: &VisitRecord<'_>) {
        self.add(visit);
    }
}

/// Counts the visits of a filter. Blocks for the disk, as long as a query does.
pub(super) fn run(shared: &VisitLogState, contents: &Contents, filter: &VisitFilter) -> VisitStatistics {
    let mut breakdown = VisitBreakdown::default();
    let complete = query::search(shared, contents, filter, &mut breakdown) && breakdown.is_exact();
    let top_links = breakdown.top_links(VISIT_LINKS_SHOWN_MAX);
    VisitStatistics { breakdown, top_links, since_ms: first_ms(contents), complete, is_enabled: true }
}

/// Returns the instant of the oldest visit that can be read.
fn first_ms(contents: &Contents) -> Option<u64> {
    let sealed = contents.sealed.iter().filter(|segment| segment.is_readable).map(|segment| segment.min_ms);
    let first_of = |chunk: &[u8]| VisitRecord::take(&mut &chunk[..]).map(|visit| visit.at_ms);
    sealed.chain(contents.recent.iter().filter_map(|chunk| first_of(chunk))).min()
}
