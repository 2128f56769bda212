//! The exchange of purges with the other site of the fleet, on the node that is the relay. It is a thread of its own, so that
//! round trips between the sites delay no request about a purge.
//!
//! Each site has a hash of purges in its own Redis. The relay adds the purges of the other site to that of its own
//! site, whose nodes then carry them out. It first waits until its Redis has every change that the other site had made
//! before. A purged link that reached a node only after the purge would leave traces there. A site whose nodes have all
//! carried a purge out notes that in its hash, and the relay of the other site copies the note.
//!
//! Each site measures the age of a purge by the clock of its own Redis. So the relay gives a purge the date that it has by this
//! clock, and clocks that are weeks apart keep no purge back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::reader::{PurgeReader, SharedList, SharedPurges};
use crate::services::replication::redis::{PurgeNote, Redis, RedisError};
use carom_limits::PURGES_KEPT;
use carom_model::purge::PurgeId;
use carom_telemetry::stats::NodeStats;

/// Interval between two exchanges.
const EVERY: Duration = Duration::from_secs(1);

/// Timeout of the Redis of this site.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the Redis of the other site.
const OTHER_TIME: Duration = Duration::from_secs(3);

/// Difference from which two clocks count as apart. It is longer than the requests between two readings of them.
const APART: Duration = Duration::from_secs(60);

/// Rest of [`PURGES_KEPT`] within which no purge crosses. A site that has just forgotten a purge would take it again if the
/// difference of the clocks is measured a little differently.
const REST_MIN: Duration = Duration::from_secs(3_600);

/// Purges that cross at once: each takes a round trip between the sites.
const PURGES_AT_ONCE: usize = 50;

/// Notes of the other site that are copied at once: each takes a round trip within this site.
const NOTES_AT_ONCE: usize = 1_000;

/// The two sites of a fleet, with the connections of the thread.
pub struct PurgeSites {
    /// The name of the site of this node.
    pub name: String,
    /// The name of the other site.
    pub other_name: String,
    /// The Redis of this site.
    pub own: Redis,
    /// The Redis of the other site.
    pub other: Redis,
}

/// The state of the thread.
pub(super) struct SiteExchange {
    redis: PurgeSites,
    stats: Arc<NodeStats>,
    stop: Arc<AtomicBool>,
    /// The purges in the Redis of this site.
    ours: PurgeReader,
    /// The purges in the Redis of the other site.
    theirs: PurgeReader,
    /// The purges that this site lacks.
    seen: HashMap<PurgeId, SeenPurge>,
}

/// A purge of the other site that this one lacks.
#[derive(Clone, Copy, Debug)]
struct SeenPurge {
    /// The instant at which the other site was known to have it.
    since: Instant,
    /// The instant of the last request for its list; `None` before the first one.
    asked: Option<Instant>,
}

/// The present times of the clocks of both Redis servers, in milliseconds since 1970 UTC.
#[derive(Clone, Copy, Debug)]
struct SiteClocks {
    ours_ms: u64,
    theirs_ms: u64,
}

impl SiteClocks {
    /// Returns a time of the other clock, in milliseconds since 1970 UTC, by that of this site. Times stay if the clocks are
    /// not [`APART`].
    fn ours_of(self, theirs_ms: u64) -> u64 {
        if self.ours_ms.abs_diff(self.theirs_ms) < APART.as_millis() as u64 {
            return theirs_ms;
        }
        theirs_ms.saturating_add(self.ours_ms).saturating_sub(self.theirs_ms)
    }
}

impl SiteExchange {
    pub(super) fn new(redis: PurgeSites, stats: Arc<NodeStats>, stop: Arc<AtomicBool>) -> SiteExchange {
        let (ours, theirs) = (PurgeReader::default(), PurgeReader::default());
        SiteExchange { redis, stats, stop, ours, theirs, seen: HashMap::new() }
    }

    /// Exchanges purges until the node stops.
    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let fleet = &self.stats.fleet;
            if fleet.site.is_linked.load(Ordering::Acquire) && fleet.same_code_secret.load(Ordering::Acquire) {
                if let Err(error) = self.exchange() {
                    // An unreachable Redis has alarms of its own in the fleet's threads.
                    tracing::debug!(%error, "purges cannot be exchanged with the other site");
                    self.ours.restart();
                    self.theirs.restart();
                }
            } else {
                // Another node may change what this one has read.
                (self.ours, self.theirs) = (PurgeReader::default(), PurgeReader::default());
                self.seen.clear();
            }
            std::thread::park_timeout(EVERY);
        }
    }

    fn exchange(&mut self) -> Result<(), RedisError> {
        let ours_ms = self.ours.read_on(&mut self.redis.own, REDIS_TIMEOUT)?;
        let theirs_ms = self.theirs.read_on(&mut self.redis.other, OTHER_TIME)?;
        if !self.ours.was_read() || !self.theirs.was_read() {
            return Ok(());
        }
        self.take_purges(SiteClocks { ours_ms, theirs_ms })?;
        let other = &self.redis.other_name;
        for (id, note) in unnoted(&self.theirs.shared, &self.ours.shared, other).into_iter().take(NOTES_AT_ONCE) {
            self.redis.own.note_purged_at(id, (note, other.as_str()), REDIS_TIMEOUT)?;
            self.ours.shared.note(id, note, other);
        }
        Ok(())
    }

    /// Gives the nodes of this site the purges of the other one.
    fn take_purges(&mut self, clocks: SiteClocks) -> Result<(), RedisError> {
        let (theirs, ours, now) = (&self.theirs.shared, &self.ours.shared, Instant::now());
        self.seen.retain(|id, _| theirs.at_ms.contains_key(id) && !ours.at_ms.contains_key(id));
        let due = in_turn(lacking(theirs, ours, clocks), &self.seen);
        for (id, at_ms) in due.into_iter().take(PURGES_AT_ONCE) {
            if self.stop.load(Ordering::Acquire) {
                // The round trips of the others would delay the shutdown.
                return Ok(());
            }
            let since = self.seen.entry(id).or_insert(SeenPurge { since: now, asked: None }).since;
            if !self.has_changes_until(since) {
                continue;
            }
            self.seen.insert(id, SeenPurge { since, asked: Some(Instant::now()) });
            // A node of that site puts a lost list back.
            let list = SharedList::ask(&mut self.redis.other, id, OTHER_TIME)?;
            let SharedList::Readable(list, text) = list else { continue };
            let text = if list.at_ms == at_ms { text } else { dated(&text, at_ms) };
            tracing::info!(%id, site = self.redis.other_name, "the other site has begun a purge");
            self.redis.own.put_purge(id, at_ms, &text, REDIS_TIMEOUT)?;
            self.ours.shared.at_ms.insert(id, at_ms);
        }
        Ok(())
    }

    /// True if the Redis of this site has every change that the other site had made by an instant.
    fn has_changes_until(&self, at: Instant) -> bool {
        // Measured before the lag is read, which grows meanwhile.
        let elapsed = at.elapsed();
        self.stats.fleet.site.lag().is_some_and(|lag| lag < elapsed)
    }
}

/// Returns the purges of the other site that this one lacks, each with its instant by the clock of this site, in milliseconds
/// since 1970 UTC. Leaves out those that the nodes of this site would soon remove again.
fn lacking(theirs: &SharedPurges, ours: &SharedPurges, clocks: SiteClocks) -> Vec<(PurgeId, u64)> {
    let since_ms = clocks.ours_ms.saturating_sub((PURGES_KEPT - REST_MIN).as_millis() as u64);
    let dated = theirs.at_ms.iter().map(|(id, at_ms)| (*id, clocks.ours_of(*at_ms)));
    dated.filter(|(id, at_ms)| *at_ms >= since_ms && !ours.at_ms.contains_key(id)).collect()
}

/// Returns a list of links with another instant of the request, in milliseconds since 1970 UTC. Keeps fields that only a later
/// version knows.
fn dated(list: &str, at_ms: u64) -> String {
    let mut json: Value = serde_json::from_str(list).unwrap_or_default();
    json["at"] = json!(at_ms);
    json.to_string()
}

/// Returns purges in the order in which their lists are asked for: those whose last request is longest ago come first. So lists
/// that are not in the other Redis keep no purge waiting.
fn in_turn(mut purges: Vec<(PurgeId, u64)>, seen: &HashMap<PurgeId, SeenPurge>) -> Vec<(PurgeId, u64)> {
    purges.sort_by_key(|(id, _)| seen.get(id).and_then(|seen| seen.asked));
    purges
}

/// Returns the notes of the site `other` that its Redis has, but not yet that of this site.
fn unnoted(theirs: &SharedPurges, ours: &SharedPurges, other: &str) -> Vec<(PurgeId, PurgeNote)> {
    let of_both = PurgeNote::ALL.into_iter().flat_map(|note| ours.at_ms.keys().map(move |id| (*id, note)));
    of_both.filter(|(id, note)| theirs.is_noted(*id, *note, other) && !ours.is_noted(*id, *note, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn shared(all: &[(u64, u64)], done: &[(u64, &str)]) -> SharedPurges {
        let mut shared = SharedPurges::default();
        shared.at_ms.extend(all.iter().map(|(number, at_ms)| (PurgeId(*number), *at_ms)));
        for (number, site) in done {
            shared.sites.insert(PurgeId(*number), BTreeSet::from([(*site).to_owned()]));
        }
        shared
    }

    #[test]
    fn purges_that_this_site_lacks_are_taken_while_known() {
        let kept_ms = (PURGES_KEPT - REST_MIN).as_millis() as u64;
        let clocks = SiteClocks { ours_ms: 10 + kept_ms, theirs_ms: 11 + kept_ms };
        let (theirs, ours) = (shared(&[(1, 9), (2, 10), (3, 11)], &[]), shared(&[(3, 11), (4, 12)], &[]));
        assert_eq!(lacking(&theirs, &ours, clocks), [(PurgeId(2), 10)], "the first one is too old");
        assert_eq!(lacking(&ours, &theirs, clocks), [(PurgeId(4), 12)]);
    }

    #[test]
    fn purges_cross_between_clocks_that_are_weeks_apart() {
        let kept_ms = PURGES_KEPT.as_millis() as u64;
        let (at_ms, apart_ms, since_ms) = (5 * kept_ms, 2 * kept_ms, 7_000);
        let (theirs, ours) = (shared(&[(1, at_ms)], &[]), shared(&[], &[]));
        let theirs_ms = at_ms + since_ms;
        let ahead = SiteClocks { ours_ms: theirs_ms + apart_ms, theirs_ms };
        assert_eq!(lacking(&theirs, &ours, ahead), [(PurgeId(1), at_ms + apart_ms)], "nodes here would remove it");
        let behind = SiteClocks { ours_ms: theirs_ms - apart_ms, theirs_ms };
        assert_eq!(lacking(&theirs, &ours, behind), [(PurgeId(1), at_ms - apart_ms)]);
        let later = SiteClocks { ours_ms: ahead.ours_ms + kept_ms, theirs_ms: theirs_ms + kept_ms };
        assert!(lacking(&theirs, &ours, later).is_empty(), "it is as old by each clock");
    }

    #[test]
    fn list_gets_the_date_of_this_site() {
        let list: Value = serde_json::from_str(&dated(r#"{"at": 1, "links": ["5 a"], "later": [7]}"#, 9)).unwrap();
        assert_eq!(list, json!({"at": 9, "links": ["5 a"], "later": [7]}));
    }

    #[test]
    fn purges_without_a_list_keep_no_other_waiting() {
        let begun = Instant::now();
        let asked = |seconds| SeenPurge { since: begun, asked: Some(begun + Duration::from_secs(seconds)) };
        let new = SeenPurge { since: begun, asked: None };
        let seen = HashMap::from([(PurgeId(1), asked(2)), (PurgeId(2), asked(1)), (PurgeId(3), new)]);
        let purges = [1, 2, 3, 4].map(|number| (PurgeId(number), 9));
        let order: Vec<u64> = in_turn(purges.to_vec(), &seen).into_iter().map(|(id, _)| id.0).collect();
        assert_eq!(order, [3, 4, 2, 1]);
    }

    #[test]
    fn notes_of_the_other_site_are_copied_once() {
        let ours = shared(&[(1, 9), (2, 9), (3, 9)], &[(1, "berlin"), (2, "lisbon")]);
        let theirs = shared(&[(1, 9), (2, 9)], &[(1, "lisbon"), (2, "lisbon"), (4, "lisbon")]);
        assert_eq!(unnoted(&theirs, &ours, "lisbon"), [(PurgeId(1), PurgeNote::Purged)]);
        let mut theirs = shared(&[(3, 9)], &[(3, "berlin")]);
        assert!(unnoted(&theirs, &ours, "lisbon").is_empty(), "it is the note of this site");
        theirs.note(PurgeId(2), PurgeNote::Trimmed, "lisbon");
        assert_eq!(unnoted(&theirs, &ours, "lisbon"), [(PurgeId(2), PurgeNote::Trimmed)]);
    }
}
