//! Queries and results of lists of tags.

use std::sync::Arc;

use crate::access::Scope;
use crate::visits::tally::VisitCounts;

/// The sort key of a list of tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagField {
    /// The tags themselves.
    Tag,
    /// The number of links with the tag.
    Links,
    /// The number of visits of these links.
    Visits,
    /// The number of visits of these links without bots.
    NonBotVisits,
}

impl TagField {
    /// True if the visits of all tags must be known to sort them.
    pub fn is_by_visits(self) -> bool {
        matches!(self, TagField::Visits | TagField::NonBotVisits)
    }
}

/// A query for a page of tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagQuery {
    /// The links whose tags are listed.
    pub scope: Scope,
    /// A search term in lower case, which matches the tag.
    pub term: Option<String>,
    /// The sort key.
    pub field: TagField,
    /// True for the largest first.
    pub descending: bool,
    /// The number of the page, from 1.
    pub page: u64,
    /// Tags per page.
    pub per_page: usize,
    /// True if the page includes the visits of the tagged links.
    pub with_visits: bool,
}

/// A page of tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagPage {
    /// Tags, each with its number of links.
    pub tags: Vec<(Arc<str>, u64)>,
    /// Visits of the links of each tag, if requested; `None` for tags with too many links to add up.
    pub visits: Vec<Option<VisitCounts>>,
    /// Number of tags in the list.
    pub total: u64,
}

/// The reason why a query for tags has no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagsFailure {
    /// More tags exist than are counted.
    TooManyTags,
    /// The tags have too many links to sort them by visits.
    TooManyToSort,
    /// The counting after the start is still in progress.
    Counting,
    /// An index or a record cannot be read. The cause was logged.
    Unreadable,
}
