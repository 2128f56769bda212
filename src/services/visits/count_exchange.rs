//! The exchange of visit counts in a fleet: one thread publishes the batches of this node in Redis, and applies those of
//! all other nodes. So each node has the counts of all.
//!
//! It appends new batches to the stream of this node as soon as they are synced. Every second it reads how far each
//! origin has come, and reads the streams of those that have come further than its own counts. Redis keeps a bounded
//! window of each stream. A node that misses a batch asks for a snapshot (`snapshots`).
//!
//! [`carom_model::visits::count_exchange`] decides, and this asks Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::aggregator::fleet::Application;
use super::following::{self, NotedOrigin, OtherStreams};
use super::reader::VisitReader;
use super::snapshots::{Snapshots, random};
use super::unfinished::Unfinished;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{Redis, RedisError, VisitNotes};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::visits::count_exchange::{CountsLack, OtherOrigins, OwnStream};
use carom_model::visits::entries::{NoBatches, batches_of};
use carom_model::visits::origins::OriginId;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{NodeStats, VisitOriginStats};

/// Interval between two turns.
const EVERY: Duration = Duration::from_secs(1);

/// Interval between two turns while a snapshot is on its way.
const EVERY_WHILE_COPYING: Duration = Duration::from_millis(50);

/// Timeout of one request.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// True if the identity of this node belongs to another directory, and no slot is free for another one. Then it publishes
    /// nothing: its batches have the numbers of others.
    needs_identity: bool,
    /// The instant since which Redis does not take the batches of this node.
    unsent: Option<Instant>,
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
    let is_identified = visits.aggregator().identify(id, &fleet.node).map_err(io::Error::other)?;
    let own = visits.aggregator().own_origin().0;
    let exchange = Exchange {
        redis: fleet.redis,
        node: fleet.node,
        visits,
        stats: Arc::clone(stats),
        own: OwnStream::default(),
        needs_identity: !is_identified,
        unsent: None,
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
                self.note_unsent();
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
        if !self.needs_identity {
            self.snapshots.answer_wanted(own, &notes, &mut self.redis, &self.visits);
        }
        let taken_back = self.snapshots.take_back(&mut self.redis);
        self.show(&notes);
        followed.and(taken_back)
    }

    /// Finds out what Redis has of this node. If that is more than this node has published, another directory has the
    /// same identity, or this directory is an older copy. Either way, the node gets another identity, as soon as a slot
    /// is free.
    fn compare_with_redis(&mut self, within: Duration) -> Result<(), Unfinished> {
        let (own, synced) = self.visits.aggregator().own_origin();
        let last = self.redis.last_visits(own, within)?;
        let notes = self.redis.visit_notes(within)?;
        let noted = notes.origins.iter().find(|(id, _)| *id == own).map_or(0, |(_, about)| number_of(about));
        if !self.own.compare(synced, last, noted) || self.needs_identity {
            let id = OriginId(random()?);
            let is_renewed = self.visits.aggregator().renew(id, &self.node)?;
            if is_renewed {
                tracing::warn!(
                    "the fleet has newer visits of this data directory than the directory itself; it continues as a new origin of visits"
                );
            }
            self.needs_identity = !is_renewed;
            // Nothing of the present window is of the next identity.
            self.own = OwnStream::default();
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
            self.compare_with_redis(REDIS_TIMEOUT)?;
        }
        if self.needs_identity {
            return Ok(());
        }
        while let Some(entry) = self.own.next_entry() {
            match self.redis.publish_visits(own, entry.last, &entry.bytes, entry.oldest, REDIS_TIMEOUT) {
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

    /// Notes for how long other nodes have not got the counts of this one. The heartbeat says so.
    fn note_unsent(&mut self) {
        let is_behind = self.needs_identity || self.own.is_behind();
        self.unsent = is_behind.then(|| self.unsent.unwrap_or_else(Instant::now));
        let unlogged_ms = self.visits.aggregator().unlogged_ms();
        let unsent_ms = self.unsent.map_or(0, |since| (since.elapsed().as_millis() as u64).max(1));
        self.stats.fleet.visits_unsent_ms.set(unlogged_ms.max(unsent_ms));
    }

    /// Reads how far each origin has come, and tells Redis what it does not know or has lost.
    fn read_notes(&mut self, own: OriginId) -> Result<VisitNotes, Unfinished> {
        let notes = self.redis.visit_notes(REDIS_TIMEOUT)?;
        self.give_up(own, &notes.forgotten)?;
        self.others.hear(notes.origins.iter().map(|(id, about)| (*id, number_of(about))), since_boot());
        if self.own.hear(self.others.known_of(own)) {
            self.publish()?;
        }
        let mut set = self.lagging_notes(own);
        let synced = self.visits.aggregator().own_origin().1;
        if !self.needs_identity
            && let Some(number) = self.own.number_to_note(synced, self.others.known_of(own))
        {
            set.push((own, about(number, &self.node)));
        }
        self.redis.note_visits(&set, REDIS_TIMEOUT)?;
        Ok(notes)
    }

    /// Gives up the counts of the origins that an operator has named in Redis, so that others get their slots. A node keeps its
    /// own counts.
    fn give_up(&mut self, own: OriginId, forgotten: &[OriginId]) -> Result<(), Unfinished> {
        for id in forgotten {
            if *id == own {
                tracing::warn!(origin = %id, "the visits of this node were to be given up; it keeps them");
                self.redis.keep_visits(own, REDIS_TIMEOUT)?;
                continue;
            }
            self.others.is_whole(*id);
            if !self.snapshots.is_receiving(*id) && self.visits.aggregator().give_up_origin(*id)? {
                tracing::info!(origin = %id, "gave up the visits of a data directory that is gone");
            }
        }
        Ok(())
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
        let origins = notes.origins.iter().filter(|(id, _)| *id != own);
        let origins = origins.map(|(id, text)| NotedOrigin { id: *id, number: number_of(text), node: node_of(text) });
        let mut streams = RedisStreams { redis: &mut self.redis, visits: &self.visits, snapshots: &mut self.snapshots };
        following::follow(&mut self.others, origins.collect(), &mut streams, since_boot)
    }

    /// Publishes the state for the status.
    fn show(&self, notes: &VisitNotes) {
        let known = self.visits.aggregator().known_origins();
        let mut origins: Vec<VisitOriginStats> = known
            .into_iter()
            .map(|origin| VisitOriginStats {
                published: self.others.known_of(origin.id).max(origin.counted),
                lack: None,
                origin: origin.id.to_string(),
                node: origin.node,
                counted: origin.counted,
            })
            .collect();
        let mut late = Vec::new();
        for (id, why, since) in self.others.lacks() {
            let origin = id.to_string();
            let at = origins.iter().position(|of| of.origin == origin).unwrap_or_else(|| {
                let noted = notes.origins.iter().find(|(of, _)| *of == id);
                let node = noted.map_or_else(String::new, |(_, about)| node_of(about).to_owned());
                let published = self.others.known_of(id);
                origins.push(VisitOriginStats { origin, node, published, ..VisitOriginStats::default() });
                origins.len() - 1
            });
            let of = &mut origins[at];
            of.lack = instant_of(since).map(|since| (why.as_str(), since));
            if since_boot().saturating_sub(since) >= MISSING_TIME {
                let name =
                    if of.node.is_empty() { format!("origin {id}") } else { format!("{} (origin {id})", of.node) };
                late.push((why, name));
            }
        }
        self.stats.fleet.visits_missing.set(late.len() as u64);
        match alarm_text(late, self.needs_identity) {
            Some(text) => self.stats.alarms.raise(Alarm::VisitsMissing, text),
            None => self.stats.alarms.clear(Alarm::VisitsMissing),
        }
        *self.stats.fleet.visits.lock().unwrap_or_else(PoisonError::into_inner) = origins;
    }
}

/// The streams of other origins in Redis.
struct RedisStreams<'e> {
    redis: &'e mut Redis,
    visits: &'e VisitReader,
    snapshots: &'e mut Snapshots,
}

impl OtherStreams for RedisStreams<'_> {
    fn counted(&self, id: OriginId) -> u64 {
        self.visits.aggregator().counted_of(id)
    }

    fn is_receiving(&self, id: OriginId) -> bool {
        self.snapshots.is_receiving(id)
    }

    fn read(&mut self, origin: NotedOrigin<'_>, is_held: bool) -> Result<Option<CountsLack>, Unfinished> {
        let begun = Instant::now();
        // Batches that wait are read again each turn, until the first of them is applied.
        let count = if is_held { 1 } else { READ_COUNT };
        while begun.elapsed() < APPLY_TIME_MAX {
            let counted = self.counted(origin.id);
            let entries = self.redis.visits_from(origin.id, counted + 1, count, REDIS_TIMEOUT)?;
            if entries.is_empty() {
                return Ok((counted < origin.number).then(|| self.missing(origin.id)));
            }
            for (last, entry) in entries {
                let lack = self.apply(origin, last, &entry)?;
                if lack.is_some() {
                    return Ok(lack);
                }
            }
        }
        Ok(None)
    }

    fn ask(&mut self, origin: NotedOrigin<'_>) -> Result<bool, Unfinished> {
        Ok(self.snapshots.ask(origin.id, origin.node)?)
    }
}

impl RedisStreams<'_> {
    /// Returns the reason for a missing batch of an origin: the snapshot that would replace it needs a slot, too.
    fn missing(&self, id: OriginId) -> CountsLack {
        if self.visits.aggregator().has_slot_for(id) { CountsLack::Missing } else { CountsLack::NoSlot }
    }

    /// Applies the batches of the entry whose last batch has the number `last`. Returns the reason if one of them does not
    /// count.
    fn apply(
        &mut self,
        NotedOrigin { id, node, .. }: NotedOrigin<'_>,
        last: u64,
        entry: &[u8],
    ) -> Result<Option<CountsLack>, Unfinished> {
        let batches = match batches_of(entry, last) {
            Ok(batches) => batches,
            Err(NoBatches::Newer) => return Ok(Some(CountsLack::Newer)),
            Err(NoBatches::Damaged) => {
                self.visits.aggregator().report_malformed(node, last);
                return Ok(Some(CountsLack::Missing));
            }
        };
        for batch in batches {
            // Each batch by itself, so that readers of counts need not wait for all of them.
            let applied = self.visits.aggregator().apply((id, node), &batch)?;
            match applied {
                Application::Done => {}
                Application::Gap => return Ok(Some(self.missing(id))),
                Application::Later(why) => return Ok(Some(why)),
                Application::Malformed => {
                    self.visits.aggregator().report_malformed(node, batch.number);
                    return Ok(Some(CountsLack::Missing));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the instant at a time since the boot of the machine; `None` if this process cannot name it.
fn instant_of(since: Duration) -> Option<Instant> {
    Instant::now().checked_sub(since_boot().saturating_sub(since))
}

/// Returns the remedy for a reason, as it stands in the alarm before the names of the origins.
const fn remedy(why: CountsLack) -> &'static str {
    match why {
        CountsLack::Missing => "start a node that has them",
        CountsLack::Unstored => "free space on the disk of this node, which cannot store them",
        CountsLack::NoSlot => "this node keeps the visits of 4,095 data directories, and has no slot for",
        CountsLack::Newer => "upgrade this node, which cannot read them",
        CountsLack::Silent => "start the nodes that send no heartbeats",
        CountsLack::Unsent => "see why other nodes cannot send them",
    }
}

/// Returns the text of the alarm; `None` if no counts are missing, here or on other nodes.
fn alarm_text(late: Vec<(CountsLack, String)>, needs_identity: bool) -> Option<String> {
    let unsent = needs_identity.then(|| {
        "this data directory is an older copy or has another name, and no slot is free for another identity, so other nodes do not get the visits of this node".to_owned()
    });
    let texts: Vec<String> = missing_text(late).into_iter().chain(unsent).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the part of that text on origins whose counts are missing here, each with the reason and its name.
fn missing_text(late: Vec<(CountsLack, String)>) -> Option<String> {
    let mut by_reason: BTreeMap<CountsLack, BTreeSet<String>> = BTreeMap::new();
    for (why, name) in late {
        by_reason.entry(why).or_default().insert(name);
    }
    let part = |(why, names): (CountsLack, BTreeSet<String>)| {
        format!("{}: {}", remedy(why), names.into_iter().collect::<Vec<_>>().join(", "))
    };
    let parts: Vec<String> = by_reason.into_iter().map(part).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "visit counts are missing here for more than {} s, so totals are too low; {}",
            MISSING_TIME.as_secs(),
            parts.join("; ")
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
        assert_eq!(alarm_text(Vec::new(), false), None);
        let no_slot = vec![(CountsLack::NoSlot, "n1 (origin a)".to_owned())];
        let text = alarm_text(no_slot, true).unwrap();
        assert!(text.contains("has no slot for: n1 (origin a); this data directory"), "{text}");
        assert!(text.ends_with("other nodes do not get the visits of this node"), "{text}");
        let late = [
            (CountsLack::Missing, "n2 (origin b)"),
            (CountsLack::Unstored, "n3 (origin c)"),
            (CountsLack::Missing, "n1 (origin a)"),
        ];
        let text = missing_text(late.map(|(why, name)| (why, name.to_owned())).to_vec()).unwrap();
        assert!(text.contains("start a node that has them: n1 (origin a), n2 (origin b); free space"), "{text}");
        assert!(text.ends_with("which cannot store them: n3 (origin c)"), "{text}");
    }

    #[test]
    fn any_reason_raises_the_alarm() {
        for why in CountsLack::ALL {
            let text = alarm_text(vec![(why, "n1 (origin a)".to_owned())], false);
            assert!(text.is_some_and(|text| text.ends_with(&format!("{}: n1 (origin a)", remedy(why)))), "{why:?}");
        }
    }
}
