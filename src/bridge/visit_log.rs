//! The visit log between cores and its service: visits in a ring of bytes, and queries with their answers.
//!
//! The form of a visit in the ring is in [`carom_model::visits::raw`]. The service is `services::visit_log`. If
//! `visits.log` is off, cores have no ring and queries no recipient.

use std::sync::mpsc::SyncSender;

use super::byte_ring::{FrameReceiver, FrameSender, byte_ring};
use super::ticket::Ticket;
use carom_limits::VISIT_LOG_RING_LEN;
use carom_model::access::Scope;
use carom_model::visits::breakdown::{VisitBreakdown, VisitCondition};
use carom_model::visits::raw::{RAW_LEN_MAX, RawVisit, encode_request};
use carom_model::visits::record::{LoggedKind, RequestPart, VisitRecord};
use carom_model::visits::tally::VisitCounts;
use carom_shards::Code;

/// The request part of a visit whose response is not known yet.
#[derive(Debug)]
pub struct PendingVisit(Box<[u8]>);

/// A request that may be logged as a visit.
#[derive(Clone, Copy, Debug)]
pub struct LoggedRequest<'a> {
    /// The instant of the response, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// True if the connection is encrypted.
    pub is_secure: bool,
    /// True if the user agent is a bot's.
    pub is_bot: bool,
    /// The properties of the request.
    pub part: LoggedPart<'a>,
}

/// The properties of a request that may be logged as a visit.
#[derive(Clone, Copy, Debug)]
pub enum LoggedPart<'a> {
    /// The request is answered while its head is in memory.
    Present(RequestPart<'a>),
    /// The request has waited, and its properties were noted when it came.
    Noted(&'a PendingVisit),
}

/// A core's end of its ring.
pub struct VisitLogSender {
    ring: FrameSender,
    /// True if the log needs addresses, to store them, even shortened, or to locate them.
    pub wants_addresses: bool,
}

/// The service thread's end of a ring.
pub struct VisitLogReceiver(FrameReceiver);

impl std::fmt::Debug for VisitLogSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitLogSender")
    }
}

impl std::fmt::Debug for VisitLogReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitLogReceiver")
    }
}

/// Creates the ring of a core.
pub fn ring(wants_addresses: bool) -> (VisitLogSender, VisitLogReceiver) {
    let (ring, receiver) = byte_ring(VISIT_LOG_RING_LEN);
    (VisitLogSender { ring, wants_addresses }, VisitLogReceiver(receiver))
}

impl PendingVisit {
    /// Copies the request part of a visit.
    pub fn new(request: &RequestPart<'_>) -> PendingVisit {
        PendingVisit(encode_request(request))
    }
}

impl VisitLogSender {
    /// Adds a visit to the ring. Returns false if the ring is full.
    pub fn send(&mut self, visit: &RawVisit<'_>, part: &LoggedPart<'_>) -> bool {
        match part {
            LoggedPart::Present(request) => visit.encode(request, |parts| self.ring.push_parts(parts)),
            LoggedPart::Noted(noted) => visit.encode_noted(&noted.0, |parts| self.ring.push_parts(parts)),
        }
    }
}

impl VisitLogReceiver {
    /// Passes the visits of the ring to `take`, and returns their bytes.
    pub fn drain(&mut self, mut take: impl FnMut(&VisitRecord<'_>)) -> usize {
        let mut buffer = [0; RAW_LEN_MAX];
        self.0.drain(&mut buffer, |frame| RawVisit::decode(frame).iter().for_each(&mut take))
    }
}

/// The visits that a query selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VisitSelection {
    /// The visits of one link.
    Link {
        /// The code of the link.
        code: Code,
        /// The creation of the link, in milliseconds since 1970 UTC. Earlier visits belong to another link.
        since_ms: u64,
    },
    /// The visits of all links that exist, are in this scope, and have this tag.
    Links {
        /// The links that the caller may see, narrowed to the domains that it asked for.
        scope: Scope,
        /// The tag; `None` for links with any tags.
        tag: Option<String>,
    },
    /// Orphan visits.
    Orphans {
        /// The kind; `None` for all kinds.
        kind: Option<LoggedKind>,
        /// The host that was asked, in lower case and without its port; `None` for all hosts.
        host: Option<Box<str>>,
    },
}

/// The visits that a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitFilter {
    /// The selected visits.
    pub selection: VisitSelection,
    /// The first instant, in milliseconds since 1970 UTC.
    pub start_ms: u64,
    /// The last instant, in milliseconds since 1970 UTC.
    pub end_ms: u64,
    /// True if visits of bots are left out.
    pub without_bots: bool,
    /// The conditions that all visits meet.
    pub conditions: Vec<VisitCondition>,
}

/// A query for a page of visits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitQuery {
    /// The visits.
    pub filter: VisitFilter,
    /// The number of newer visits to skip.
    pub skip: u64,
    /// The most visits to return.
    pub take: usize,
}

/// A page of visits, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisitPage {
    /// The encoded records.
    pub records: Vec<Box<[u8]>>,
    /// The number of visits that match the query.
    pub total: u64,
    /// True if the query examined every visit that may match.
    pub complete: bool,
}

/// The statistics of visits.
#[derive(Clone, Debug, Default)]
pub struct VisitStatistics {
    /// The counts by each property.
    pub breakdown: VisitBreakdown,
    /// The most visited links, at most [`carom_limits::VISIT_LINKS_SHOWN_MAX`], most visited first.
    pub top_links: Vec<(Code, VisitCounts)>,
    /// The instant of the oldest visit in the log, whatever the filter; `None` if the log is empty.
    pub since_ms: Option<u64>,
    /// True if the counts have every visit of the filter.
    pub complete: bool,
    /// False if no visits are logged.
    pub is_enabled: bool,
}

/// The visits that are deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VisitDeletion {
    /// The visits of one link.
    Link(Code),
    /// All orphan visits.
    Orphans,
}

/// A request to remove all visits of some links from the disk.
#[derive(Debug)]
pub struct VisitPurge {
    /// The codes of the links, each with the instant up to which its visits are removed, in milliseconds since 1970 UTC.
    pub codes: Vec<(Code, u64)>,
    /// The channel for the result: no file of the log has one of these visits, or the reason why they stay. It has room
    /// for one message.
    pub ended: SyncSender<Result<(), &'static str>>,
}

/// A request to the log.
#[derive(Debug)]
pub enum VisitLogRequest {
    /// Returns a page of visits.
    Query(VisitQuery, Ticket<VisitLogAnswer>),
    /// Counts visits by what they tell of their clients.
    Count(VisitFilter, Ticket<VisitStatisticsAnswer>),
    /// Deletes visits, and returns a page without records that has their number.
    Delete(VisitDeletion, Ticket<VisitLogAnswer>),
    /// Removes visits from the disk.
    Purge(VisitPurge),
}

/// The result of a request to the log, or the reason why it failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitLogAnswer(pub Result<VisitPage, &'static str>);

/// The statistics of visits, which always have a result.
#[derive(Clone, Debug)]
pub struct VisitStatisticsAnswer(pub Box<VisitStatistics>);

/// The queue to the thread that answers queries.
pub type VisitLogQueue = SyncSender<VisitLogRequest>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_request_is_logged_like_a_present_one() {
        let (mut sender, mut receiver) = ring(true);
        let request = RequestPart { agent: b"agent", language: b"de-CH, en", ..RequestPart::default() };
        let (kind, code, target) = (LoggedKind::BaseUrl, None, &b"https://example.org/"[..]);
        let visit = RawVisit { at_ms: 7, kind, is_secure: true, forwards: false, is_bot: false, code, target };
        let noted = PendingVisit::new(&request);
        for part in [LoggedPart::Present(request), LoggedPart::Noted(&noted)] {
            assert!(sender.send(&visit, &part));
        }
        let mut read = Vec::new();
        receiver.drain(|record| read.push((record.at_ms, record.request.language.to_vec(), record.target.len())));
        assert_eq!(read, [(7, b"de-CH".to_vec(), 20), (7, b"de-CH".to_vec(), 20)]);
    }
}
