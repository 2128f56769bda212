//! Admission control for links with `maxVisits`: one thread decides whether such a link may be visited once more.
//!
//! Cores send every redirect of such a link to this thread and wait for its answer, so no two cores can grant the same
//! visit. The thread grants visits from a share ([`carom_model::visits::allowance`]), and stores and syncs each share
//! before it grants the first visit of it. In a fleet, Redis hands out the shares with one script for each link, and a
//! node uses only the shares that Redis confirmed. So without Redis, or while the disk accepts no writes, these links
//! become unavailable once their share is used up. All other links stay available. A Redis that may have lost grants hands
//! out no shares until all nodes have reported theirs (`reports`).
//!
//! A thread that changes a link tells this thread before it acknowledges the change, so that the cached link and share
//! are dropped.

mod handover;
mod report_progress;
mod reports;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use self::report_progress::GrantReports;
use super::readers::record_readers::{self, RecordRead};
use super::visits::VisitReader;
use crate::bridge::{Absence, AllowanceOrder, AllowanceQueue, Mailboxes, ToCore, VisitRequest};
use crate::services::replication::note_error;
use crate::services::replication::redis::{Allowance, GrantAnswer, GrantAsker, Redis};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{ALLOWANCE_BATCH, FETCH_TIME_MAX};
use carom_model::link::earlier_visits::EarlierVisits;
use carom_model::link::{Link, LinkIdentity, Origin};
use carom_model::redirect::Lookup;
use carom_model::replication::Partition;
use carom_model::replication::round_trips::RedisTimeout;
use carom_model::visits::allowance::{Share, StoredAllowance, VisitGrant};
use carom_store::links::{Links, StoreError};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Idle time after which the share of a link is stored and dropped from memory.
const IDLE: Duration = Duration::from_secs(10);

/// Interval between two searches for idle links.
const FIND_IDLE_EVERY: Duration = Duration::from_secs(1);

/// Interval between two attempts to read a link that the writer has not stored yet.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// Largest number of visits that wait for the writer to store their link. They wait in the first moment of a link.
const EARLY_MAX: usize = 1_024;

/// Time for which an empty answer of Redis is cached. A higher maximum takes effect at once nevertheless.
const SPENT_FOR: Duration = Duration::from_secs(1);

/// The connection to the Redis that shares visits among nodes.
pub struct SharedVisits {
    /// The connection, used by this thread alone.
    pub redis: Redis,
    /// The name of this node.
    pub node: String,
    /// Timeout of one request.
    pub answer_time: RedisTimeout,
}

/// Inputs of the thread.
pub struct AllowanceSetup {
    /// The store of links and of what is left of their visits.
    pub links: Links,
    /// The mailboxes of the cores, which receive the answers.
    pub mailboxes: Mailboxes,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The counts of visits so far.
    pub visits: VisitReader,
    /// The source of shares in a fleet; `None` for a single node, which grants all visits itself.
    pub shared: Option<SharedVisits>,
}

/// Starts the thread. It ends when all senders are gone, and then stores what is left of its shares.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: AllowanceSetup) -> io::Result<(AllowanceQueue, JoinHandle<()>)> {
    let (queue, receiver) = AllowanceQueue::new();
    let (limited, early) = (HashMap::new(), Vec::new());
    let reports = GrantReports::read(&setup.links, &setup.stats, Instant::now());
    let (has_left, failed, queue_len) = (false, false, queue.waiting());
    let allowances = Allowances { setup, queue_len, limited, early, reports, has_left, failed };
    let thread = threads::start(Priority::Urgent, "allowances", move || allowances.run(&receiver))?;
    Ok((queue, thread))
}

/// A link with `maxVisits` that was visited within the last [`IDLE`].
struct Limited {
    link: Arc<Link>,
    share: Share,
    waiting: Vec<VisitRequest>,
    used: Instant,
    /// The end of the time for which Redis counts as having no visits left.
    spent_until: Option<Instant>,
}

impl Limited {
    fn identity(&self) -> LinkIdentity {
        self.link.identity()
    }
}

/// The result of loading a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoadOutcome {
    /// The link and its share are in memory.
    InMemory,
    /// Redis has it, and the writer has not stored it yet.
    NotStored,
}

struct Allowances {
    setup: AllowanceSetup,
    queue_len: Arc<AtomicUsize>,
    limited: HashMap<Code, Limited>,
    /// Visits of links that the writer has not stored yet. Each waits at most [`FETCH_TIME_MAX`].
    early: Vec<VisitRequest>,
    /// The reports of granted visits, in a fleet.
    reports: GrantReports,
    /// True once this node has left its grants to the others, because it stops.
    has_left: bool,
    /// True once a write has failed: from then on it is unknown what is stored.
    failed: bool,
}

impl Allowances {
    fn run(mut self, receiver: &Receiver<AllowanceOrder>) {
        let (mut looked, mut retried) = (Instant::now(), Instant::now());
        loop {
            let wait = if self.early.is_empty() { FIND_IDLE_EVERY } else { RETRY_EVERY };
            let longest = self.setup.shared.as_ref().map(|_| self.reports.longest_wait(Instant::now()));
            match receiver.recv_timeout(longest.map_or(wait, |longest| wait.min(longest))) {
                Ok(first) => self.take_turn(std::iter::once(first).chain(receiver.try_iter().take(ALLOWANCE_BATCH))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.setup.shared.is_some() {
                self.continue_reports();
                self.take_over_left();
                self.leave_if_asked();
            }
            if retried.elapsed() >= RETRY_EVERY {
                retried = Instant::now();
                self.retry_early();
            }
            if looked.elapsed() >= FIND_IDLE_EVERY {
                looked = Instant::now();
                // While the disk is full the shares stay in memory: they cannot be stored, so dropping them would lose
                // visits.
                if !self.setup.stats.writes_refused.load(Ordering::Acquire) {
                    self.park(|limited| limited.used.elapsed() >= IDLE);
                }
            }
        }
        self.park(|_| true);
    }

    fn take_turn(&mut self, orders: impl Iterator<Item = AllowanceOrder>) {
        let mut touched = Vec::new();
        for order in orders {
            match order {
                AllowanceOrder::Ask(visit) => {
                    let waiting = self.queue_len.fetch_sub(1, Ordering::Relaxed);
                    assert!(waiting > 0, "the queue would count as full forever");
                    touched.extend(self.ask(visit));
                }
                AllowanceOrder::Changed(codes) => {
                    self.grant_all(&mut touched);
                    let (ended, changed): (Vec<_>, Vec<_>) = codes.into_iter().partition(|(_, ended)| *ended);
                    ended.iter().for_each(|(code, _)| self.drop_link(code));
                    if self.setup.shared.is_some() {
                        // The maximum may be lower now, and other nodes may have used what this node has left. Its
                        // share is dropped, so that the next visit asks Redis again.
                        changed.iter().for_each(|(code, _)| self.drop_link(code));
                    }
                    self.put_away_these(changed.iter().map(|(code, _)| code));
                }
            }
        }
        self.grant_all(&mut touched);
    }

    /// Drops a link and its share from memory, and stores nothing of it.
    fn drop_link(&mut self, code: &Code) {
        let limited = self.limited.remove(code);
        assert!(limited.is_none_or(|limited| limited.waiting.is_empty()), "a visit would wait forever");
    }

    /// Asks again for the visits whose links the writer had not stored.
    fn retry_early(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        early.sort_by_key(|visit| visit.code);
        let mut touched = Vec::new();
        for of_code in early.chunk_by(|a, b| a.code == b.code) {
            // One read tells for all.
            let loaded = self.load(&of_code[0].code);
            for visit in of_code {
                if is_late(visit) {
                    self.reply(visit, Lookup::Unconfirmed);
                } else {
                    touched.extend(self.ask_loaded(*visit, loaded.clone()));
                }
            }
        }
        self.grant_all(&mut touched);
    }

    /// Answers a visit, or queues it and returns its code.
    fn ask(&mut self, visit: VisitRequest) -> Option<Code> {
        if is_late(&visit) {
            self.reply(&visit, Lookup::NotResident);
            return None;
        }
        let loaded = self.load(&visit.code);
        self.ask_loaded(visit, loaded)
    }

    /// Answers a visit, or queues it and returns its code. `loaded` is the result of [`Allowances::load`].
    fn ask_loaded(&mut self, visit: VisitRequest, loaded: Result<LoadOutcome, Lookup<Arc<Link>>>) -> Option<Code> {
        match loaded {
            Err(found) => {
                self.reply(&visit, found);
                return None;
            }
            Ok(LoadOutcome::NotStored) => {
                let may_come = !self.failed && !self.setup.stats.writes_refused.load(Ordering::Acquire);
                if may_come && self.early.len() < EARLY_MAX {
                    self.early.push(visit);
                } else {
                    self.reply(&visit, Lookup::Unconfirmed);
                }
                return None;
            }
            Ok(LoadOutcome::InMemory) => {}
        }
        let limited = self.limited.get_mut(&visit.code).expect("it was loaded");
        limited.used = Instant::now();
        if limited.waiting.is_empty() && limited.share.take_one() {
            let found = Lookup::Live(Arc::clone(&limited.link));
            self.reply(&visit, found);
            return None;
        }
        let code = visit.code;
        limited.waiting.push(visit);
        Some(code)
    }

    /// Loads a link with its share, unless it is in memory.
    ///
    /// # Errors
    /// The answer for the client, if the link is missing, unreadable or without a maximum.
    fn load(&mut self, code: &Code) -> Result<LoadOutcome, Lookup<Arc<Link>>> {
        if !self.limited.contains_key(code) {
            let Some(limited) = self.read(code)? else { return Ok(LoadOutcome::NotStored) };
            self.limited.insert(*code, limited);
        }
        Ok(LoadOutcome::InMemory)
    }

    /// Reads a link and its stored share. Returns `None` if only Redis may have the link so far.
    fn read(&self, code: &Code) -> Result<Option<Limited>, Lookup<Arc<Link>>> {
        let AllowanceSetup { links, stats, visits, shared, .. } = &self.setup;
        let unreadable = |error: StoreError| {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "the number of visits of a link cannot be read");
            Lookup::NotResident
        };
        // The share is read before the link: if a delete comes in between, too few visits are left, never too many.
        let stored = links.allowance(code).map_err(unreadable)?;
        let link = match record_readers::read(links, stats, code) {
            RecordRead::Link(link) => link,
            // A look-up has found a link in Redis, and the writer has not stored it yet.
            RecordRead::Nothing | RecordRead::Deleted(Origin::Custom) if shared.is_some() => return Ok(None),
            RecordRead::Nothing | RecordRead::Deleted(_) => return Err(Lookup::Missing),
            RecordRead::Damaged(_) => return Err(Lookup::Damaged),
            RecordRead::Unreadable => return Err(Lookup::NotResident),
            RecordRead::Newer(_) => return Err(Lookup::Unconfirmed),
        };
        // The link was changed since the core looked it up, and now has no maximum.
        let Some(max) = link.policy.max_visits else { return Err(Lookup::Live(link)) };
        // All nodes of a fleet know the visits from before an import, so each takes them off the maximum.
        let earlier = link.labels.earlier_visits.map_or(0, EarlierVisits::total);
        let max = u64::from(max.get()).saturating_sub(earlier);
        let of = link.identity();
        let stored =
            stored.filter(|stored| stored.of == of).unwrap_or(StoredAllowance { of, ..StoredAllowance::default() });
        // Only those of this node: Redis knows the others, and counts of another node may still be those of an earlier
        // link with this code.
        let followed = visits.own_counts(*code).map_err(unreadable)?.total;
        let share = Share::resume(max, stored, followed, shared.is_some());
        Ok(Some(Limited { link, share, waiting: Vec::new(), used: Instant::now(), spent_until: None }))
    }

    /// Finds more visits for these links until no request waits.
    fn grant_all(&mut self, touched: &mut Vec<Code>) {
        touched.sort_unstable();
        touched.dedup();
        while !touched.is_empty() {
            let mut grants = self.find_and_keep(touched);
            if self.report_now() {
                let open = touched.iter().zip(&grants).filter(|(_, grant)| grant.is_none());
                let open: Vec<Code> = open.map(|(code, _)| *code).collect();
                let found = self.find_and_keep(&open);
                grants.iter_mut().filter(|grant| grant.is_none()).zip(found).for_each(|(grant, found)| *grant = found);
            }
            let mut still = Vec::new();
            for (code, grant) in touched.drain(..).zip(grants) {
                if self.serve(&code, grant) {
                    still.push(code);
                }
            }
            *touched = still;
        }
    }

    /// Returns the next grant of each link after it is stored, or `None` if it is unknown.
    fn find_and_keep(&mut self, codes: &[Code]) -> Vec<Option<VisitGrant>> {
        let may_write = !self.failed && !self.setup.stats.writes_refused.load(Ordering::Acquire);
        let grants = if may_write { self.find_more(codes) } else { vec![None; codes.len()] };
        self.keep(codes, grants)
    }

    /// Returns the next grant of each link, or `None` if it is unknown. Parked visits of the share come first.
    fn find_more(&mut self, codes: &[Code]) -> Vec<Option<VisitGrant>> {
        let now = Instant::now();
        let here = |limited: &Limited| {
            let taken = limited.share.taken();
            if limited.share.has_parked() || limited.spent_until.is_some_and(|until| now < until) {
                return Some(VisitGrant { given: 0, taken });
            }
            let wanted = limited.share.wanted(limited.waiting.len());
            let grant = VisitGrant { given: wanted, taken: taken + wanted };
            (wanted == 0 || self.setup.shared.is_none()).then_some(grant)
        };
        let mut grants: Vec<Option<VisitGrant>> = codes.iter().map(|code| here(&self.limited[code])).collect();
        // A grant to one of two processes with the name of this node would be missing in the report of the other one.
        // Before its introduction, nobody might wait for the report of this node.
        let fleet = &self.setup.stats.fleet;
        let is_introduced = fleet.grants.is_introduced.load(Ordering::Acquire);
        let may_get = fleet.same_code_secret.load(Ordering::Acquire) && self.is_alone() && is_introduced;
        if self.setup.shared.is_none() || !may_get || self.has_left {
            return grants;
        }
        let Some((others, heard)) = self.other_holders() else { return grants };
        let open: Vec<usize> = (0..codes.len()).filter(|&at| grants[at].is_none()).collect();
        let asked: Vec<Allowance> = open
            .iter()
            .map(|&at| {
                let limited = &self.limited[&codes[at]];
                Allowance {
                    code: codes[at],
                    claim: limited.identity().claim,
                    max: limited.share.max(),
                    taken: limited.share.taken(),
                    waiting: limited.waiting.len() as u64,
                    epoch: self.reports.epoch(Partition::of(&codes[at])),
                    is_settled: self.reports.is_settled(Partition::of(&codes[at]), heard),
                }
            })
            .collect();
        for (at, grant) in open.into_iter().zip(self.ask_redis(&asked, &others)) {
            grants[at] = grant;
        }
        grants
    }

    /// Requests visits from Redis. `others` are the other nodes that may hold grants. Returns the grant of each link, or
    /// `None` without one.
    fn ask_redis(&mut self, asked: &[Allowance], others: &[String]) -> Vec<Option<VisitGrant>> {
        let nonce = self.reports.next_nonce();
        let stats = &self.setup.stats;
        let Some(SharedVisits { redis, node, answer_time }) = &mut self.setup.shared else {
            return vec![None; asked.len()];
        };
        let within = answer_time.at(Duration::from_micros(stats.fleet.round_trip_us.get()));
        let answers = redis.allow(asked, &GrantAsker { node: node.as_str(), nonce, others }, within);
        let reports = &mut self.reports;
        let grant = |answer| match answer {
            Ok(GrantAnswer::Granted(grant)) => Some(grant),
            Ok(GrantAnswer::Missing(missing)) if missing == *node => {
                reports.note_needed();
                None
            }
            Ok(GrantAnswer::Missing(missing)) => {
                reports.note_waiting(&missing, Instant::now());
                None
            }
            Err(error) => {
                note_error(stats, &error);
                None
            }
        };
        answers.into_iter().map(grant).collect()
    }

    /// Stores and syncs the grants before any visit of them is made. Returns the grants that may be used.
    fn keep(&mut self, codes: &[Code], grants: Vec<Option<VisitGrant>>) -> Vec<Option<VisitGrant>> {
        let mut batch = self.setup.links.batch();
        for (code, grant) in codes.iter().zip(&grants) {
            let limited = &self.limited[code];
            if let Some(VisitGrant { given, taken }) = *grant
                && (given > 0 || limited.share.has_parked())
            {
                batch.set_allowance(code, &StoredAllowance { taken, ..limited.share.stored(limited.identity()) });
            }
        }
        assert_eq!(grants.len(), codes.len(), "the share of one link would be granted to another");
        if batch.is_empty() {
            return grants;
        }
        let stored = self.setup.links.commit(batch).and_then(|()| self.setup.links.sync());
        if let Err(error) = stored {
            self.fail(&error);
            return vec![None; codes.len()];
        }
        grants
    }

    /// Answers the requests that wait for a link, as far as visits are left. Returns true if some still wait.
    fn serve(&mut self, code: &Code, grant: Option<VisitGrant>) -> bool {
        let Some(limited) = self.limited.get_mut(code) else { return false };
        let (mut replies, asked) = (Vec::new(), limited.waiting.len());
        // Redis or a sync may have taken that long.
        let late = limited.waiting.extract_if(.., |visit| is_late(visit));
        replies.extend(late.map(|visit| (visit, Lookup::NotResident)));
        match grant {
            None => replies.extend(limited.waiting.drain(..).map(|visit| (visit, Lookup::NotResident))),
            Some(grant) => {
                let was_parked = limited.share.has_parked();
                limited.share.unpark();
                limited.share.give(grant);
                let mut waiting = std::mem::take(&mut limited.waiting).into_iter();
                while waiting.len() > 0 && limited.share.take_one() {
                    let allowed = Lookup::Live(Arc::clone(&limited.link));
                    replies.extend(waiting.next().map(|visit| (visit, allowed)));
                }
                if grant.given == 0 && !was_parked {
                    limited.spent_until = Some(Instant::now() + SPENT_FOR);
                    replies.extend(waiting.by_ref().map(|visit| (visit, Lookup::Expired)));
                }
                limited.waiting = waiting.collect();
            }
        }
        assert_eq!(replies.len() + limited.waiting.len(), asked, "a visit would get no answer");
        let still_wait = !limited.waiting.is_empty();
        replies.into_iter().for_each(|(visit, found)| self.reply(&visit, found));
        still_wait
    }

    fn reply(&self, visit: &VisitRequest, found: Lookup<Arc<Link>>) {
        let VisitRequest { code, core, token, .. } = *visit;
        let (is_allowance, absence) = (true, Absence::Unknown);
        self.setup.mailboxes.to(core).post(ToCore::LookupDone { code, token, found, is_allowance, absence });
    }

    /// Stores what is left of the shares of some links, and drops these links from memory. No request may wait for any
    /// of them.
    fn park(&mut self, which: impl Fn(&Limited) -> bool) {
        let codes: Vec<Code> =
            self.limited.iter().filter(|(_, limited)| which(limited)).map(|(code, _)| *code).collect();
        self.put_away_these(codes.iter());
    }

    fn put_away_these<'c>(&mut self, codes: impl Iterator<Item = &'c Code>) {
        let may_write = !self.failed && !self.setup.stats.writes_refused.load(Ordering::Acquire);
        let mut batch = self.setup.links.batch();
        for code in codes {
            let Some(limited) = self.limited.remove(code) else { continue };
            assert!(limited.waiting.is_empty(), "a visit would wait forever");
            if let Some(left) = limited.share.parked(limited.identity())
                && may_write
            {
                batch.set_allowance(code, &left);
            }
        }
        if !batch.is_empty()
            && let Err(error) = self.setup.links.commit(batch)
        {
            self.fail(&error);
        }
    }

    /// Handles a failed write: from now on it is unknown what is stored.
    fn fail(&mut self, error: &StoreError) {
        self.failed = true;
        self.setup.stats.store_errors.add_shared(1);
        let text = format!(
            "visits of links with maxVisits cannot be stored ({error}); these links return 503; check the disk, then restart"
        );
        self.setup.stats.alarms.raise(Alarm::VisitsFailed, text);
    }
}

/// True if the client has got an answer already (timeout), so that the visit must not be used up.
fn is_late(visit: &VisitRequest) -> bool {
    visit.since.elapsed() >= FETCH_TIME_MAX
}

#[cfg(test)]
mod tests;
