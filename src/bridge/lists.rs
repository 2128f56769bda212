//! The requests of a core to the list threads, and their answers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use carom_shards::DomainId;

use super::events::EventQueue;
use super::ticket::Ticket;
use super::visit_log::VisitLogQueue;
use carom_model::domains::DomainName;
use carom_model::purge::{EndedPage, EndedPlace, EndedSelector};
use carom_model::query::{
    Filter, GroupCounts, ListFailure, ListPage, ListQuery, TagPage, TagQuery, TagsFailure, UnreadableIndex,
};
use carom_model::visits::tally::VisitGroup;

/// A page of links.
pub type LinksAnswer = Result<ListPage, ListFailure>;

/// A page of tags.
pub type TagsAnswer = Result<TagPage, TagsFailure>;

/// The newest codes of links that crawlers may follow, each on a line of a `robots.txt`.
pub type CrawlableAnswer = Result<Arc<str>, UnreadableIndex>;

/// Number of links of each list; `None` until they are counted.
pub type CountsAnswer = Result<Vec<Option<u64>>, UnreadableIndex>;

/// Hosts with their visits, the most frequent first.
pub type HostCounts = Vec<(Box<[u8]>, u64)>;

/// Hosts that sent visits.
pub type ReferrersAnswer = Result<HostCounts, UnreadableIndex>;

/// Domains, in arbitrary order.
pub type DomainsAnswer = Result<Vec<DomainName>, UnreadableIndex>;

/// Links that were deleted or have expired before.
pub type EndedAnswer = Result<EndedPage, UnreadableIndex>;

/// Visits of the links of each app and domain that was asked for.
pub type GroupsAnswer = Result<GroupCounts, UnreadableIndex>;

/// A request to the list threads of `services::search`.
#[derive(Debug)]
pub enum ListRequest {
    /// A page of links.
    Links(Box<ListQuery>, Ticket<LinksAnswer>),
    /// A page of tags.
    Tags(Box<TagQuery>, Ticket<TagsAnswer>),
    /// Codes of the links that crawlers may follow, of one domain.
    Crawlable(Option<DomainId>, Ticket<CrawlableAnswer>),
    /// Number of links of each list. Each filter must match one run of an index, so that counting is enough.
    Counts(Vec<Filter>, Ticket<CountsAnswer>),
    /// The most visited links in a range of hours.
    Top {
        /// The first hour, counted from 1970 UTC.
        from_hour: u32,
        /// The end of the range, exclusive.
        to_hour: u32,
        /// Number of links.
        count: usize,
        /// The task that waits for the answer.
        ticket: Ticket<LinksAnswer>,
    },
    /// The top referring hosts of all links in a range of days, counted from 1970 UTC.
    Referrers {
        /// The first day.
        from_day: u32,
        /// The last day, inclusive.
        to_day: u32,
        /// Number of hosts.
        count: usize,
        /// The task that waits for the answer.
        ticket: Ticket<ReferrersAnswer>,
    },
    /// Domains that have links, besides the default one.
    Domains(Ticket<DomainsAnswer>),
    /// Links that were deleted or have expired before, as far as the node still has their history, their events, or their
    /// texts in the search index.
    Ended {
        /// The links that are asked for.
        selector: EndedSelector,
        /// The place at which the search continues.
        from: EndedPlace,
        /// The task that waits for the answer.
        ticket: Ticket<EndedAnswer>,
    },
    /// Visits of the links of apps and domains.
    Groups {
        /// The apps and domains.
        groups: Vec<VisitGroup>,
        /// The hours of the visits, counted from 1970 UTC; `None` for all visits, also those from before an import, which
        /// have no hour.
        hours: Option<Range<u32>>,
        /// The task that waits for the answer.
        ticket: Ticket<GroupsAnswer>,
    },
}

impl ListRequest {
    /// True if only a node that stores all links can answer. Referring hosts are counted apart from links.
    pub fn needs_all_links(&self) -> bool {
        !matches!(self, ListRequest::Referrers { .. })
    }

    /// True for a list in an order without an index, which may take seconds.
    pub fn is_unindexed(&self) -> bool {
        matches!(self, ListRequest::Links(query, _) if query.is_unindexed())
    }

    /// True if the request may read links one by one.
    pub fn may_take_long(&self) -> bool {
        match self {
            ListRequest::Links(query, _) => !query.is_by_index(),
            ListRequest::Tags(query, _) => query.with_visits || query.field.is_by_visits(),
            ListRequest::Crawlable(..) => false,
            ListRequest::Counts(..)
            | ListRequest::Top { .. }
            | ListRequest::Referrers { .. }
            | ListRequest::Domains(_)
            | ListRequest::Ended { .. }
            | ListRequest::Groups { .. } => true,
        }
    }
}

/// The queues to the threads that answer list queries, shared by all cores.
#[derive(Clone, Debug)]
pub struct ListQueues {
    /// Queue for queries that are answered at once.
    pub pages: SyncSender<ListRequest>,
    /// Queue for queries that may take long.
    pub searches: SyncSender<ListRequest>,
    /// Queue for lists in an order without an index, with the instant of each request.
    pub orders: SyncSender<(Instant, ListRequest)>,
    /// Queue to the thread that lists single visits; `None` without a visit log.
    pub visits: Option<VisitLogQueue>,
    /// Queue to the thread that reads the event log; `None` without one.
    pub events: Option<EventQueue>,
}
