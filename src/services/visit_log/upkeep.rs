//! The thread that answers queries, and removes visits from the disk between them. It removes old visits by whole
//! segments. It removes deleted visits, and those of deleted links, by rewriting a segment at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::purges::{self, VisitPurges};
use super::query::{self, LinkVerdicts};
use super::segment::{SealedSegment, each_record, sealed};
use super::sharing::LogSharing;
use super::{VisitLogState, locked, statistics};
use crate::bridge::Mailboxes;
use crate::bridge::visit_log::{
    VisitDeletion, VisitFilter, VisitLogAnswer, VisitLogRequest, VisitPage, VisitPurge, VisitQuery, VisitSelection,
    VisitStatistics, VisitStatisticsAnswer,
};
use crate::services::whole_file::write_whole;
use carom_model::visits::record::VisitRecord;
use carom_model::visits::shared_log::LogSpan;
use carom_telemetry::clock::unix_ms;

/// Interval between two steps of the upkeep.
const STEP_EVERY: Duration = Duration::from_millis(500);

/// Time from the start of a node to its first pass. A deletion of visits begins a pass at once.
const FIRST_PASS_AFTER: Duration = Duration::from_secs(3_600);

/// Time between two passes, unless a deletion of visits begins one.
const PASS_EVERY: Duration = Duration::from_secs(24 * 3_600);

/// Age below which a visit is kept even if no link has its code, in milliseconds.
const YOUNG_MS: u64 = 60_000;

/// The age of [`YOUNG_MS`] in a fleet, in milliseconds. A node that was away may have the visits of other nodes long
/// before it has compared all links.
const YOUNG_IN_FLEET_MS: u64 = 24 * 3_600_000;

/// The reason why a purge leaves visits on disk.
const UNCLEANED: &str =
    "a segment is damaged or cannot be rewritten (alarm visit_log_damaged); stop the node and delete the file";

/// A pass over the segments of one instant.
#[derive(Debug)]
struct Pass {
    /// The number of the last segment that it has seen.
    behind: u64,
    /// True once the active segment of the beginning is sealed.
    is_sealed: bool,
}

/// The thread's state.
pub(super) struct Upkeep {
    shared: Arc<VisitLogState>,
    mailboxes: Mailboxes,
    next_pass: Instant,
    pass: Option<Pass>,
    /// The revision of the deletions that have begun a pass.
    seen: u64,
    /// The purges that wait for a pass.
    purges: VisitPurges,
}

impl Upkeep {
    pub(super) fn new(shared: Arc<VisitLogState>, mailboxes: Mailboxes) -> Upkeep {
        let next_pass = Instant::now() + FIRST_PASS_AFTER;
        Upkeep { shared, mailboxes, next_pass, pass: None, seen: 0, purges: VisitPurges::default() }
    }

    /// Answers requests until all senders are gone.
    pub(super) fn run(mut self, requests: &Receiver<VisitLogRequest>) {
        if locked(&self.shared.state).deletions.is_pending() {
            self.next_pass = Instant::now();
        }
        let mut stepped = Instant::now();
        loop {
            match requests.recv_timeout(STEP_EVERY) {
                Ok(VisitLogRequest::Query(query, ticket)) => {
                    let page = self.query(query);
                    self.mailboxes.answer(ticket, VisitLogAnswer(Ok(page)));
                }
                Ok(VisitLogRequest::Count(filter, ticket)) => {
                    let statistics = self.count(filter);
                    self.mailboxes.answer(ticket, VisitStatisticsAnswer(Box::new(statistics)));
                }
                Ok(VisitLogRequest::Delete(deletion, ticket)) => {
                    let deleted = self.delete(deletion);
                    self.mailboxes.answer(ticket, VisitLogAnswer(deleted));
                }
                Ok(VisitLogRequest::Purge(purge)) => self.purge(purge),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if stepped.elapsed() >= STEP_EVERY {
                stepped = Instant::now();
                self.step();
            }
        }
    }

    /// Runs a query on visits that are young enough.
    fn query(&self, query: VisitQuery) -> VisitPage {
        let query = VisitQuery { filter: self.young(query.filter), ..query };
        let page = query::run(&self.shared, &self.shared.contents(), &query);
        VisitPage { complete: page.complete && self.is_whole(&query.filter), ..page }
    }

    /// Counts visits that are young enough.
    fn count(&self, filter: VisitFilter) -> VisitStatistics {
        let oldest_ms = self.shared.oldest_ms();
        let filter = self.young(filter);
        let counted = statistics::run(&self.shared, &self.shared.contents(), &filter);
        let complete = counted.complete && self.is_whole(&filter);
        VisitStatistics { since_ms: counted.since_ms.map(|since_ms| since_ms.max(oldest_ms)), complete, ..counted }
    }

    /// True if the log has the visits of all nodes in the span of a filter.
    fn is_whole(&self, filter: &VisitFilter) -> bool {
        self.shared.is_whole(LogSpan { from_ms: filter.start_ms, to_ms: filter.end_ms })
    }

    /// Restricts a filter to visits that are young enough.
    fn young(&self, filter: VisitFilter) -> VisitFilter {
        VisitFilter { start_ms: filter.start_ms.max(self.shared.oldest_ms()), ..filter }
    }

    /// Deletes visits, and returns their number.
    fn delete(&mut self, deletion: VisitDeletion) -> Result<VisitPage, &'static str> {
        let selection = match deletion {
            VisitDeletion::Link(code) => VisitSelection::Link { code, since_ms: 0 },
            VisitDeletion::Orphans => VisitSelection::Orphans { kind: None, host: None },
        };
        let filter =
            VisitFilter { selection, start_ms: 0, end_ms: u64::MAX, without_bots: false, conditions: Vec::new() };
        let query = VisitQuery { filter, skip: 0, take: 0 };
        let page = self.query(query);
        match locked(&self.shared.state).deletions.add(deletion, unix_ms()) {
            Ok(true) => {}
            Ok(false) => return Err("too many deletions of visits wait for the disk; try again tomorrow"),
            Err(error) => {
                tracing::warn!(%error, "cannot store the deletion of visits");
                return Err("the deletion cannot be stored");
            }
        }
        Ok(page)
    }

    /// Begins a purge: notes its deletions, and makes a pass due.
    fn purge(&mut self, purge: VisitPurge) {
        // The records that are still in the rings belong to it, too.
        let _ = self.shared.contents();
        let noted = purges::note(&mut locked(&self.shared.state).deletions, &purge);
        match noted {
            Ok(()) => {
                self.next_pass = Instant::now();
                self.purges.add(purge);
            }
            Err(why) => purges::end(&purge, Err(why)),
        }
    }

    /// Makes a pass due for new deletions, also those of other nodes.
    fn note_deletions(&mut self) {
        let state = locked(&self.shared.state);
        let revision = state.deletions.revision();
        if state.deletions.is_pending() && std::mem::replace(&mut self.seen, revision) != revision {
            self.next_pass = Instant::now();
        }
    }

    fn step(&mut self) {
        self.remove_old();
        self.purges.end_all(|seq| locked(&self.shared.state).outgoing.has_up_to(seq));
        self.shared.drops_sent.store(self.purges.wait_for_files(), Ordering::Release);
        self.note_deletions();
        if self.pass.is_none() && Instant::now() >= self.next_pass {
            self.next_pass = Instant::now() + PASS_EVERY;
            locked(&self.shared.state).deletions.begin_pass();
            self.purges.begin_pass();
            self.shared.wants_seal.store(true, Ordering::Release);
            self.pass = Some(Pass { behind: 0, is_sealed: false });
            return;
        }
        let Some(pass) = &mut self.pass else { return };
        pass.is_sealed |= !self.shared.wants_seal.load(Ordering::Acquire);
        if !pass.is_sealed {
            return;
        }
        let next = locked(&self.shared.state).sealed.iter().find(|segment| segment.seq > pass.behind).cloned();
        let Some(segment) = next else {
            self.pass = None;
            let last = locked(&self.shared.state).active_seq.saturating_sub(1);
            self.purges.end_pass(last);
            let kept_since_ms = self.shared.deletions_since_ms();
            let mut state = locked(&self.shared.state);
            if !state.deletions.is_empty()
                && let Err(error) = state.deletions.end_pass(kept_since_ms)
            {
                tracing::warn!(%error, "cannot store the deletions of visits");
            }
            return;
        };
        pass.behind = segment.seq;
        match self.clean(&segment) {
            // Nobody knows whose visits a damaged segment has.
            Ok(()) if !segment.is_readable => self.purges.fail_pass(UNCLEANED),
            Ok(()) => {}
            Err(error) => {
                self.shared.note_damage(&segment, &error);
                self.purges.fail_pass(UNCLEANED);
            }
        }
    }

    /// Removes segments that are too old, and the oldest ones while the log is too large.
    pub(super) fn remove_old(&self) {
        let oldest_ms = self.shared.oldest_ms();
        loop {
            let mut state = locked(&self.shared.state);
            let bytes: u64 = state.sealed.iter().map(|segment| segment.bytes).sum();
            let Some(first) = state.sealed.first().cloned() else { return };
            if first.max_ms >= oldest_ms && bytes <= self.shared.terms.keep_bytes {
                return;
            }
            if let Err(error) = std::fs::remove_file(&first.path) {
                return tracing::warn!(%error, path = %first.path.display(), "cannot remove old visits");
            }
            state.sealed.remove(0);
            drop(state);
            self.shared.count_bytes();
            if first.max_ms >= oldest_ms {
                self.note_too_large(first.max_ms);
            }
        }
    }

    /// Notes that visits were removed because there were too many. Other nodes may still have them: each removes whole
    /// segments, and theirs begin elsewhere.
    fn note_too_large(&self, last_ms: u64) {
        let noted = self.shared.change_shared_log(|shared_log| {
            shared_log.add_gap(LogSpan { from_ms: 0, to_ms: last_ms });
            true
        });
        noted.unwrap_or_else(|error| tracing::error!(%error, "cannot store that old visits were removed"));
    }

    /// Rewrites a segment without the visits that are deleted or whose link is gone, if it has any.
    fn clean(&self, segment: &SealedSegment) -> io::Result<()> {
        if !segment.is_readable {
            return Ok(());
        }
        let deletions = locked(&self.shared.state).deletions.clone();
        let mut blocks = Vec::new();
        segment.each_block(None, |raw| {
            blocks.push(raw);
            true
        })?;
        let mut verdicts = LinkVerdicts::new(&self.shared.links);
        // In a fleet, the link of a visit may arrive later than the visit.
        let is_alone = self.shared.sharing.mode() == LogSharing::Alone;
        let young_ms = unix_ms().saturating_sub(if is_alone { YOUNG_MS } else { YOUNG_IN_FLEET_MS });
        let mut keeps = |visit: &VisitRecord<'_>| {
            let has_link = |code| visit.at_ms > young_ms || verdicts.has(&code, visit.at_ms, true, |_| true);
            !deletions.has(visit) && visit.code.is_none_or(has_link)
        };
        let mut dead = 0_u64;
        for raw in &blocks {
            each_record(raw, |_, visit| dead += u64::from(!keeps(visit)));
        }
        if dead == 0 {
            return Ok(());
        }
        let content = sealed(blocks.iter().map(|raw| &raw[..]), keeps);
        // Only this thread reads segments, so no query has the old file open.
        let mut state = locked(&self.shared.state);
        let Some(place) = state.sealed.iter().position(|other| other.seq == segment.seq) else { return Ok(()) };
        match content {
            Some(content) => {
                write_whole(&segment.path, &content)?;
                state.sealed[place] = Arc::new(SealedSegment::open(&self.shared.dir, segment.seq)?);
            }
            None => {
                std::fs::remove_file(&segment.path)?;
                state.sealed.remove(place);
            }
        }
        drop(state);
        self.shared.count_bytes();
        Ok(())
    }
}
