//! Pages of lists that were sorted in the background ([`super::sorted_lists`]). They leave out links that were deleted or no
//! longer match.

use std::time::Instant;

use super::bounded_scan::FilterResult;
use super::filter::LinkFilter;
use super::list::Finder;
use super::sorted_lists::SortedList;
use crate::bridge::LinksAnswer;
use carom_model::query::{Behind, Cursor, ListFailure, ListPage};
use carom_store::links::StoreError;

impl Finder<'_> {
    /// Returns a page of a list that was sorted in the background; `None` if it is not kept.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn kept_page(&self) -> Result<Option<LinksAnswer>, StoreError> {
        let kept = self.catalog.sorted_lists.kept(self.query, Instant::now());
        kept.map(|list| self.page_of_list(&list)).transpose()
    }

    /// Returns a page of a list that was sorted in the background. If it is not kept, the list is to be sorted, and the
    /// answer says how far that is.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn sorted_in_background(&self) -> Result<LinksAnswer, StoreError> {
        let wait = || Err(self.catalog.sorted_lists.request(self.query, Instant::now()));
        Ok(self.kept_page()?.unwrap_or_else(wait))
    }

    /// True if the list is being sorted in the background, or waits for that.
    pub(super) fn is_being_sorted(&self) -> bool {
        self.catalog.sorted_lists.is_being_sorted(self.query, Instant::now())
    }

    fn page_of_list(&self, list: &SortedList) -> Result<LinksAnswer, StoreError> {
        let (query, total, descending) = (self.query, list.count(), self.query.order.descending);
        let (offset, page) = query.cursor.as_ref().map_or((self.offset(), query.page), |it| (it.seen, it.page));
        let shown = total.saturating_sub(offset).min(query.per_page as u64);
        let from = if descending { total.saturating_sub(offset) - shown } else { offset };
        let mut places = match list.read(from, shown) {
            Ok(places) => places,
            Err(error) => {
                tracing::warn!(%error, "cannot read a sorted list back");
                self.catalog.sorted_lists.drop_unreadable(query, Instant::now());
                return Ok(Err(ListFailure::NotSorted));
            }
        };
        if descending {
            places.reverse();
        }
        let (view, ()) = self.catalog.view_with_counts(|_| ());
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let mut links = Vec::with_capacity(places.len());
        for place in places {
            if let FilterResult::Link(link) = filter.check_place(&view, place, true)? {
                links.push(link);
            }
        }
        let seen = offset.saturating_add(shown);
        let behind = Behind::Sorted(list.sorted_ms());
        let next = (seen < total).then(|| Cursor { behind, page: page.saturating_add(1), seen });
        let sorted_ms = Some(list.sorted_ms());
        Ok(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next, sorted_ms }))
    }
}
