//! Pages of lists that were sorted in the background ([`super::sorted_lists`]). They leave out links that were deleted or no
//! longer match.

use std::io;
use std::time::Instant;

use super::bounded_scan::FilterResult;
use super::filter::LinkFilter;
use super::list::Finder;
use super::sorted_lists::SortedList;
use crate::bridge::LinksAnswer;
use carom_limits::LIST_SORTED_MAX;
use carom_model::query::{Behind, Cursor, LinkPosition, ListPage};
use carom_store::links::StoreError;

/// Places by which a link may have moved from the page that ends with it to the sorted list that continues the pages. A read of
/// so many positions takes less than a millisecond.
const SHIFT_MAX: u64 = LIST_SORTED_MAX as u64;

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

    /// True if a scan of the list has run out of time lately.
    pub(super) fn is_slow(&self) -> bool {
        self.catalog.sorted_lists.is_slow(self.query, Instant::now())
    }

    /// Returns the number of links of a list before the page.
    ///
    /// # Errors
    /// If the list cannot be read.
    fn offset_in(&self, list: &SortedList) -> io::Result<u64> {
        let (total, descending) = (list.count(), self.query.order.descending);
        let Some(cursor) = &self.query.cursor else { return Ok(self.offset()) };
        let Behind::Key(_, place) = cursor.behind else { return Ok(cursor.seen) };
        // Links were created, deleted and visited between the last page and the sort.
        let (from, to) = (cursor.seen.saturating_sub(SHIFT_MAX), cursor.seen.saturating_add(SHIFT_MAX).min(total));
        let (from, count) = (if descending { total - to } else { from }, to.saturating_sub(from));
        let found = list.find(place, from, count)?;
        Ok(found.map_or(cursor.seen, |number| if descending { total - number } else { number + 1 }))
    }

    /// Returns the number of links of a list before the page, and the positions of the page.
    ///
    /// # Errors
    /// If the list cannot be read.
    fn places_in(&self, list: &SortedList) -> io::Result<(u64, Vec<LinkPosition>)> {
        let offset = self.offset_in(list)?;
        let rest = list.count().saturating_sub(offset);
        let shown = rest.min(self.query.per_page as u64);
        if !self.query.order.descending {
            return Ok((offset, list.read(offset, shown)?));
        }
        let mut places = list.read(rest - shown, shown)?;
        places.reverse();
        Ok((offset, places))
    }

    fn page_of_list(&self, list: &SortedList) -> Result<LinksAnswer, StoreError> {
        let (query, total) = (self.query, list.count());
        let page = query.cursor.as_ref().map_or(query.page, |cursor| cursor.page);
        let (offset, places) = match self.places_in(list) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot read a sorted list back");
                return Ok(Err(self.catalog.sorted_lists.drop_unreadable(query, Instant::now())));
            }
        };
        let (view, ()) = self.catalog.view_with_counts(|_| ());
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let mut links = Vec::with_capacity(places.len());
        for place in places {
            if let FilterResult::Link(link) = filter.check_place(&view, place, true)? {
                links.push(link);
            }
        }
        let seen = offset.saturating_add(query.per_page as u64).min(total.max(offset));
        let behind = Behind::Sorted(list.sorted_ms());
        let next = (seen < total).then(|| Cursor { behind, page: page.saturating_add(1), seen });
        let sorted_ms = Some(list.sorted_ms());
        Ok(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next, sorted_ms }))
    }
}
