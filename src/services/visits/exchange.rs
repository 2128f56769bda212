//! The exchange of visit counts in a fleet: one thread publishes the batches of this node in Redis, and applies those of
//! all other nodes. So each node has the counts of all.
//!
//! It appends new batches to the stream of this node as soon as they are synced. Every second it reads how far each
//! origin has come, and reads the streams of those that have come further than its own counts. Redis keeps a bounded
//! window of each stream. A node that misses a batch asks for a snapshot (`snapshots`).
//!
//! [`carom_model::visits::exchange`] decides, and this asks Redis.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::aggregator::fleet::Application;
use super::reader::VisitReader;
use super::snapshots::{Snapshots, random};
use super::unfinished::Unfinished;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{Redis, RedisError, VisitNotes};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::visits::exchange::{OtherOrigins, OwnStream, batches_of};
use carom_model::visits::origins::OriginId;
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

/// Time for which batches of an origin may be missing before the alarm: a snapshot takes seconds.
const MISSING_TIME: Duration = Duration::from_secs(60);

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
    /// The batches of this node on their way to Redis.
    own: OwnStream,
    others: OtherOrigins,
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
    let own = visits.aggregator().own_origin().0;
    let exchange = Exchange {
        redis: fleet.redis,
        node: fleet.node,
        visits,
        stats: Arc::clone(stats),
        own: OwnStream::default(),
        others: OtherOrigins::default(),
        snapshots: Snapshots::new(own),
    };
    threads::start(Priority::Locking, "redis-visits", move || exchange.run(&until, checked))
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
        self.stats.fleet.same_code_secret.load(Ordering::Acquire)
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
        let taken_back = self.snapshots.take_back(&mut self.redis);
        self.show();
        followed.and(taken_back)
    }

    /// Finds out what Redis has of this node. If that is more than this node has published, the identity belongs to
    /// another directory, or this one is an older copy of it: it gets another identity.
    fn compare_with_redis(&mut self, within: Duration) -> Result<(), Unfinished> {
        let (own, synced) = self.visits.aggregator().own_origin();
        let last = self.redis.last_visits(own, within)?;
        let notes = self.redis.visit_notes(within)?;
        let noted = notes.origins.iter().find(|(id, _)| *id == own).map_or(0, |(_, about)| number_of(about));
        if !self.own.compare(synced, last, noted) {
            tracing::warn!(
                "the fleet has newer visits of this data directory than the directory itself; it continues as a new origin of visits"
            );
            let id = OriginId(random()?);
            self.visits.aggregator().renew(id, &self.node)?;
        }
        Ok(())
    }

    /// Appends the batches of this node that Redis lacks to its stream.
    fn publish(&mut self) -> Result<(), Unfinished> {
        let (own, ready) = {
            let mut aggregator = self.visits.aggregator();
            let ready = aggregator.take_ready();
            (aggregator.own_origin().0, ready)
        };
        self.own.add(ready);
        let is_compared = self.own.is_unsure();
        if is_compared {
            self.compare_with_redis(ANSWER_TIME)?;
        }
        while let Some(entry) = self.own.next_entry() {
            match self.redis.publish_visits(own, entry.last, &entry.bytes, entry.oldest, ANSWER_TIME) {
                // The stream has had this entry and lost it. Nodes that miss it get a snapshot.
                Err(RedisError::Refused(what)) if is_compared && what.contains("equal or smaller") => {}
                Err(error) => {
                    self.own.doubt();
                    return Err(error.into());
                }
                Ok(()) => {}
            }
            self.own.sent(entry.last);
        }
        Ok(())
    }

    /// Reads how far each origin has come, and tells Redis what it does not know or has lost.
    fn read_notes(&mut self, own: OriginId) -> Result<VisitNotes, Unfinished> {
        let notes = self.redis.visit_notes(ANSWER_TIME)?;
        self.others.hear(notes.origins.iter().map(|(id, about)| (*id, number_of(about))), since_boot());
        if self.own.hear(self.others.known_of(own)) {
            self.publish()?;
        }
        let mut set = self.lagging_notes(own);
        let synced = self.visits.aggregator().own_origin().1;
        if let Some(number) = self.own.number_to_note(synced, self.others.known_of(own)) {
            set.push((own, about(number, &self.node)));
        }
        self.redis.note_visits(&set, ANSWER_TIME)?;
        Ok(notes)
    }

    /// Returns the descriptions of other origins that Redis has lost, and that the origins do not restore themselves.
    fn lagging_notes(&mut self, own: OriginId) -> Vec<(OriginId, String)> {
        let mut known = self.visits.aggregator().known_origins();
        let now = since_boot();
        known.retain(|origin| origin.id != own && self.others.must_note(origin.id, origin.counted, now));
        known.into_iter().map(|origin| (origin.id, about(origin.counted, &origin.node))).collect()
    }

    /// Applies the batches of all other origins, and asks for a snapshot of the first one that has lacked a batch for long.
    fn follow(&mut self, own: OriginId, notes: &VisitNotes) -> Result<(), Unfinished> {
        let mut origins: Vec<&(OriginId, String)> = notes.origins.iter().filter(|(id, _)| *id != own).collect();
        // Neither a snapshot that no node can send nor a stream whose server is away may keep the others waiting.
        origins.sort_by_key(|(id, _)| self.others.tried(*id));
        for (id, text) in origins {
            if self.snapshots.is_receiving(*id) {
                continue;
            }
            let (number, node) = (number_of(text), node_of(text));
            let is_read = self.others.is_read(*id, self.counted(*id), since_boot());
            let is_whole = !is_read
                || self.follow_one((*id, node), number).inspect_err(|_| self.others.note_tried(*id, since_boot()))?;
            if is_whole {
                self.others.is_whole(*id);
            } else if self.others.is_late(*id, since_boot()) && self.snapshots.ask(*id, node)? {
                self.others.note_tried(*id, since_boot());
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
                published: self.others.known_of(origin.id).max(origin.counted),
                missing_since: self.others.gaps().get(&origin.id).and_then(|since| instant_of(*since)),
                origin: origin.id.to_string(),
                node: origin.node,
                counted: origin.counted,
            })
            .collect();
        for (id, since) in self.others.gaps().iter().map(|(id, since)| (id.to_string(), *since)) {
            if origins.iter().all(|of| of.origin != id) {
                let missing_since = instant_of(since);
                origins.push(VisitOriginStats { origin: id, missing_since, ..VisitOriginStats::default() });
            }
        }
        let late: Vec<String> = self
            .others
            .gaps()
            .iter()
            .filter(|(_, since)| since_boot().saturating_sub(**since) >= MISSING_TIME)
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

/// Returns the instant at a time since the boot of the machine; `None` if this process cannot name it.
fn instant_of(since: Duration) -> Option<Instant> {
    Instant::now().checked_sub(since_boot().saturating_sub(since))
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
