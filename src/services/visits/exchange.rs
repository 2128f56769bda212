//! The exchange of visit counts in a fleet: one thread publishes the batches of this node in Redis, and applies those of
//! all other nodes. So each node has the counts of all.
//!
//! It appends new batches to the stream of this node as soon as they are synced. Every second it reads how far each
//! origin has come, and reads the streams of those that have come further than its own counts. Redis keeps a bounded
//! window of each stream. A node that misses a batch asks for a snapshot (`snapshots`).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::aggregator::fleet::Application;
use super::fleet_counts::VisitBatch;
use super::reader::VisitReader;
use super::snapshots::{Snapshots, random};
use super::unfinished::Unfinished;
use crate::services::replication::redis::{Redis, RedisError, VisitNotes};
use carom_limits::{VISITS_ENTRY_BYTES, VISITS_STREAM_BYTES, VISITS_UNSENT_BYTES};
use carom_model::visits::origins::OriginId;
use carom_model::visits::tally::{push_number, take_bytes, take_number};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{NodeStats, VisitOriginStats};

/// Interval between two turns.
const EVERY: Duration = Duration::from_secs(1);

/// Interval between two turns while a snapshot is on its way.
const EVERY_WHILE_COPYING: Duration = Duration::from_millis(50);

/// Timeout of one request.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Timeout of Redis at the start, for which the first batch of the process waits.
const START_TIME: Duration = Duration::from_secs(2);

/// Number of entries read from one stream at once.
const READ_COUNT: usize = 16;

/// Longest time of one turn for the batches of one origin.
const APPLY_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for which a batch may be missing before a snapshot is asked for. A node whose stream Redis has lost publishes it
/// again within that time.
const GAP_TIME: Duration = Duration::from_secs(3);

/// Time for which batches of an origin may be missing before the alarm: a snapshot takes seconds.
const MISSING_TIME: Duration = Duration::from_secs(60);

/// Time after news of an origin for which its stream is read, even if Redis names no later batch: the node may have been
/// killed before it named its last ones.
const READ_TIME: Duration = Duration::from_secs(10);

/// Time after which a node tells Redis the number of another origin. Those that are alive do so themselves.
const LAG_TIME: Duration = Duration::from_secs(5);

/// A node's connection to the visit counts of its fleet.
pub struct FleetVisits {
    /// The connection, used by this thread alone.
    pub redis: Redis,
    /// The name of this node.
    pub node: String,
}

/// The state of the thread.
struct Exchange {
    redis: Redis,
    node: String,
    visits: VisitReader,
    stats: Arc<NodeStats>,
    /// Batches of this node: those that Redis has, so that they can be published again, then those that it lacks.
    window: VecDeque<VisitBatch>,
    window_bytes: usize,
    /// The number of the last batch that Redis has.
    published: u64,
    /// True if Redis may have more batches than that.
    is_unsure: bool,
    /// Since when each origin lacks a batch.
    gaps: HashMap<OriginId, Instant>,
    /// The last known number of each origin in Redis.
    known: HashMap<OriginId, u64>,
    /// The last time when the number of each origin was a new one.
    news: HashMap<OriginId, Instant>,
    /// The number of this node that Redis was last told.
    noted: u64,
    /// Since when Redis has a lower number of an origin than counts here.
    lagging: HashMap<OriginId, Instant>,
    snapshots: Snapshots,
}

/// Gives the node its identity, and starts the thread, which first checks the identity against Redis. It then drops
/// `checked`: the first batch must wait for that. The thread ends after `until`, with a last turn.
///
/// # Errors
/// If the store fails, or the operating system cannot start a thread.
pub(super) fn start(
    fleet: FleetVisits,
    visits: VisitReader,
    stats: &Arc<NodeStats>,
    until: Arc<AtomicBool>,
    checked: Sender<()>,
) -> io::Result<JoinHandle<()>> {
    let id = OriginId(random().map_err(io::Error::other)?);
    visits.aggregator().identify(id, &fleet.node).map_err(io::Error::other)?;
    let exchange = Exchange {
        redis: fleet.redis,
        node: fleet.node,
        visits,
        stats: Arc::clone(stats),
        window: VecDeque::new(),
        window_bytes: 0,
        published: 0,
        is_unsure: true,
        gaps: HashMap::new(),
        known: HashMap::new(),
        news: HashMap::new(),
        noted: 0,
        lagging: HashMap::new(),
        snapshots: Snapshots::default(),
    };
    std::thread::Builder::new().name("redis-visits".to_owned()).spawn(move || exchange.run(&until, checked))
}

impl Exchange {
    fn run(mut self, until: &AtomicBool, checked: Sender<()>) {
        // Before the first batch of this process, whose number another directory may have used.
        let done = self.compare_with_redis(START_TIME);
        self.note(done);
        drop(checked);
        let mut turned = Instant::now();
        while !until.load(Ordering::Acquire) {
            if self.may_share() {
                let published = self.publish();
                self.note(published);
                if turned.elapsed() >= EVERY {
                    turned = Instant::now();
                    let done = self.turn();
                    self.note(done);
                }
                let done = self.snapshots.turn(&mut self.redis, &self.visits);
                self.note(done);
            }
            let is_copying = self.snapshots.is_busy();
            let rest = EVERY.saturating_sub(turned.elapsed());
            // The thread that syncs batches wakes this one.
            std::thread::park_timeout(if is_copying { EVERY_WHILE_COPYING } else { rest });
        }
        if self.may_share() {
            // The last batches, and their number: after a quiet time, nobody reads a stream without a new number.
            let own = self.visits.aggregator().own_origin().0;
            let done = self.publish().and_then(|()| self.read_notes(own)).map(drop);
            self.note(done);
        }
    }

    fn may_share(&self) -> bool {
        self.stats.fleet.same_key.load(Ordering::Acquire)
    }

    fn note(&self, done: Result<(), Unfinished>) {
        match done {
            Ok(()) => {}
            Err(Unfinished::Redis(error)) => {
                self.stats.fleet.errors.add_shared(1);
                tracing::debug!(%error, "visits cannot be exchanged with other nodes");
            }
            Err(Unfinished::Store(error)) => {
                self.stats.store_errors.add_shared(1);
                tracing::error!(%error, "the visits of other nodes cannot be stored");
            }
        }
    }

    fn turn(&mut self) -> Result<(), Unfinished> {
        let own = self.visits.aggregator().own_origin().0;
        let notes = self.read_notes(own)?;
        let followed = self.follow(own, &notes);
        self.snapshots.answer_wanted(own, &notes, &mut self.redis, &self.visits);
        self.show();
        followed
    }

    /// Finds out what Redis has of this node. If that is more than this node has published, the identity belongs to
    /// another directory, or this one is an older copy of it: it gets another identity.
    fn compare_with_redis(&mut self, within: Duration) -> Result<(), Unfinished> {
        let (own, synced) = self.visits.aggregator().own_origin();
        let last = self.redis.last_visits(own, within)?;
        let notes = self.redis.visit_notes(within)?;
        let noted = notes.origins.iter().find(|(id, _)| *id == own).map_or(0, |(_, about)| number_of(about));
        let synced = synced.max(self.window.back().map_or(0, |batch| batch.number));
        if last.max(noted) > synced {
            tracing::warn!(
                "the fleet has newer visits of this data directory than the directory itself; it continues as a new origin of visits"
            );
            let id = OriginId(random()?);
            self.visits.aggregator().renew(id, &self.node)?;
            self.window.clear();
            (self.window_bytes, self.published, self.noted) = (0, 0, 0);
        } else {
            self.published = last;
        }
        self.is_unsure = false;
        Ok(())
    }

    /// Appends the batches of this node that Redis lacks to its stream.
    fn publish(&mut self) -> Result<(), Unfinished> {
        let (own, ready) = {
            let mut aggregator = self.visits.aggregator();
            let ready = aggregator.take_ready();
            (aggregator.own_origin().0, ready)
        };
        for batch in ready {
            self.window_bytes += batch.content.len();
            self.window.push_back(batch);
        }
        self.bound_window();
        let is_compared = self.is_unsure;
        if self.is_unsure {
            self.compare_with_redis(ANSWER_TIME)?;
        }
        while self.window.back().is_some_and(|batch| batch.number > self.published) {
            let first = self.window.partition_point(|batch| batch.number <= self.published);
            let (mut entry, mut last) = (Vec::new(), self.published);
            for batch in self.window.range(first..) {
                if !entry.is_empty() && entry.len() + batch.content.len() > VISITS_ENTRY_BYTES {
                    break;
                }
                push_batch(batch, &mut entry);
                last = batch.number;
            }
            let oldest = self.window.front().map_or(last, |batch| batch.number);
            match self.redis.publish_visits(own, last, &entry, oldest, ANSWER_TIME) {
                // The stream has had this entry and lost it. Nodes that miss it get a snapshot.
                Err(RedisError::Refused(what)) if is_compared && what.contains("equal or smaller") => {}
                // The entry may be there, or be one that Redis has already.
                Err(error) => {
                    self.is_unsure = true;
                    return Err(error.into());
                }
                Ok(()) => {}
            }
            self.published = last;
            self.bound_window();
        }
        Ok(())
    }

    /// Drops the oldest batches: those that Redis has beyond its window, and others beyond the bound on memory.
    fn bound_window(&mut self) {
        while let Some(batch) = self.window.front() {
            let most = if batch.number <= self.published { VISITS_STREAM_BYTES } else { VISITS_UNSENT_BYTES };
            if self.window_bytes <= most {
                break;
            }
            self.window_bytes -= batch.content.len();
            self.window.pop_front();
        }
    }

    /// Reads how far each origin has come, and tells Redis what it does not know or has lost.
    fn read_notes(&mut self, own: OriginId) -> Result<VisitNotes, Unfinished> {
        let notes = self.redis.visit_notes(ANSWER_TIME)?;
        for (id, about) in &notes.origins {
            if self.known.get(id) != Some(&number_of(about)) {
                self.news.insert(*id, Instant::now());
            }
        }
        self.known = notes.origins.iter().map(|(id, about)| (*id, number_of(about))).collect();
        if self.known.get(&own).copied().unwrap_or(0) < self.noted {
            // Redis was emptied, or has lost writes.
            self.noted = 0;
            self.is_unsure = true;
            self.publish()?;
        }
        let mut set = self.lagging_notes(own);
        // Without batches of this process, those of earlier ones, which the stream may have, or only a snapshot.
        let synced = self.visits.aggregator().own_origin().1;
        let number = if self.window.is_empty() { synced } else { self.published };
        if number > self.known.get(&own).copied().unwrap_or(0) {
            set.push((own, about(number, &self.node)));
            self.noted = number;
        }
        self.redis.note_visits(&set, ANSWER_TIME)?;
        Ok(notes)
    }

    /// Returns the descriptions of other origins that Redis has lost, and that the origins do not restore themselves.
    fn lagging_notes(&mut self, own: OriginId) -> Vec<(OriginId, String)> {
        let mut set = Vec::new();
        for origin in self.visits.aggregator().known_origins() {
            if origin.id == own || origin.counted <= self.known.get(&origin.id).copied().unwrap_or(0) {
                self.lagging.remove(&origin.id);
            } else if self.lagging.entry(origin.id).or_insert_with(Instant::now).elapsed() >= LAG_TIME {
                self.lagging.remove(&origin.id);
                set.push((origin.id, about(origin.counted, &origin.node)));
            }
        }
        set
    }

    /// Applies the batches of all other origins.
    fn follow(&mut self, own: OriginId, notes: &VisitNotes) -> Result<(), Unfinished> {
        for (id, text) in notes.origins.iter().filter(|(id, _)| *id != own) {
            if self.snapshots.is_receiving(*id) {
                continue;
            }
            let (number, node) = (number_of(text), node_of(text));
            let has_news = self.news.get(id).is_some_and(|since| since.elapsed() < READ_TIME);
            let is_read = has_news || self.counted(*id) < number;
            if !is_read || self.follow_one((*id, node), number)? {
                self.gaps.remove(id);
                continue;
            }
            let since = *self.gaps.entry(*id).or_insert_with(Instant::now);
            if since.elapsed() >= GAP_TIME {
                self.snapshots.ask(*id, node)?;
            }
        }
        Ok(())
    }

    /// Returns the number of the last batch of an origin that counts here.
    fn counted(&self, id: OriginId) -> u64 {
        self.visits.aggregator().counted_of(id)
    }

    /// Applies the batches of one origin, up to `number` at least. Returns false if one of them is missing.
    fn follow_one(&mut self, (id, node): (OriginId, &str), number: u64) -> Result<bool, Unfinished> {
        let begun = Instant::now();
        while begun.elapsed() < APPLY_TIME_MAX {
            let entries = self.redis.visits_from(id, self.counted(id) + 1, READ_COUNT, ANSWER_TIME)?;
            if entries.is_empty() {
                return Ok(self.counted(id) >= number);
            }
            for (last, entry) in entries {
                let Some(batches) = batches_of(&entry) else {
                    self.visits.aggregator().report_malformed(node, last);
                    return Ok(false);
                };
                for batch in batches {
                    // Each batch by itself, so that readers of counts need not wait for all of them.
                    let applied = self.visits.aggregator().apply((id, node), &batch)?;
                    match applied {
                        Application::Done => {}
                        Application::Gap => return Ok(false),
                        Application::Later => return Ok(true),
                        Application::Malformed => {
                            self.visits.aggregator().report_malformed(node, batch.number);
                            return Ok(false);
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    /// Publishes the state for the status.
    fn show(&self) {
        let known = self.visits.aggregator().known_origins();
        let mut origins: Vec<VisitOriginStats> = known
            .into_iter()
            .map(|origin| VisitOriginStats {
                published: self.known.get(&origin.id).copied().unwrap_or(0).max(origin.counted),
                missing_since: self.gaps.get(&origin.id).copied(),
                origin: origin.id.to_string(),
                node: origin.node,
                counted: origin.counted,
            })
            .collect();
        for (id, since) in self.gaps.iter().map(|(id, since)| (id.to_string(), *since)) {
            if origins.iter().all(|of| of.origin != id) {
                let missing_since = Some(since);
                origins.push(VisitOriginStats { origin: id, missing_since, ..VisitOriginStats::default() });
            }
        }
        let late: Vec<String> = self
            .gaps
            .iter()
            .filter(|(_, since)| since.elapsed() >= MISSING_TIME)
            .map(|(id, _)| {
                let id = id.to_string();
                let node = origins.iter().find(|of| of.origin == id).map_or("", |of| &of.node);
                if node.is_empty() { format!("origin {id}") } else { format!("{node} (origin {id})") }
            })
            .collect();
        self.stats.fleet.visits_missing.set(late.len() as u64);
        match missing_text(late) {
            Some(text) => self.stats.alarms.raise(Alarm::VisitsMissing, text),
            None => self.stats.alarms.clear(Alarm::VisitsMissing),
        }
        *self.stats.fleet.visits.lock().unwrap_or_else(PoisonError::into_inner) = origins;
    }
}

/// Returns the text of the alarm for origins whose batches are missing; `None` if there are none.
fn missing_text(mut late: Vec<String>) -> Option<String> {
    late.sort();
    (!late.is_empty()).then(|| {
        format!(
            "visit counts are missing here for more than {} s, so totals are too low; start a node that has them: {}",
            MISSING_TIME.as_secs(),
            late.join(", ")
        )
    })
}

/// Describes an origin: the number of its last batch and the name of its node.
fn about(number: u64, node: &str) -> String {
    format!("{number} {node}")
}

/// Returns the number in a description.
fn number_of(about: &str) -> u64 {
    about.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the name of the node in a description.
fn node_of(about: &str) -> &str {
    about.split_once(' ').map_or("", |(_, node)| node)
}

/// Appends a batch to an entry.
fn push_batch(batch: &VisitBatch, entry: &mut Vec<u8>) {
    push_number(batch.number, entry);
    push_number(u64::from(batch.hour), entry);
    push_number(batch.content.len() as u64, entry);
    entry.extend_from_slice(&batch.content);
}

/// Returns the batches of an entry; `None` if it is malformed.
fn batches_of(mut entry: &[u8]) -> Option<Vec<VisitBatch>> {
    let mut batches = Vec::new();
    while !entry.is_empty() {
        let number = take_number(&mut entry)?;
        let hour = u32::try_from(take_number(&mut entry)?).ok()?;
        batches.push(VisitBatch { number, hour, content: take_bytes(&mut entry)?.to_vec() });
    }
    Some(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_names_the_nodes_in_order() {
        assert_eq!(missing_text(Vec::new()), None);
        let text = missing_text(vec!["n2 (origin b)".to_owned(), "n1 (origin a)".to_owned()]).unwrap();
        assert!(text.ends_with("start a node that has them: n1 (origin a), n2 (origin b)"), "{text}");
    }
}
