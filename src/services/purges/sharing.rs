//! The exchange of purges with the other nodes of a fleet, once a second.
//!
//! A hash in Redis has the number of each purge, and for each node that has carried it out the number with the name of the
//! node. A list of links has a key of its own. A node that was away finds the purge when it returns, for 30 days. Redis is
//! one more copy: nodes put back what it has lost.
//!
//! Once all nodes of the fleet have carried a purge out, each of them folds its count log, which may have batches of other
//! nodes from before, and removes the entries that the streams of visits in Redis had by then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::book::{PurgeBook, PurgeStage, locked};
use crate::services::replication::redis::{Redis, RedisError, VisitStreamEnd};
use crate::services::visits::VisitReader;
use carom_limits::PURGES_KEPT;
use carom_model::purge::{PurgeId, PurgeList};
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Timeout of a request to Redis.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Time after which all nodes have read the entries that streams of visits had before: they read them once a second.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The reason why an exchange was not finished.
#[derive(Debug)]
enum NotShared {
    Redis(RedisError),
    Other(String),
}

impl From<RedisError> for NotShared {
    fn from(error: RedisError) -> NotShared {
        NotShared::Redis(error)
    }
}

impl From<std::io::Error> for NotShared {
    fn from(error: std::io::Error) -> NotShared {
        NotShared::Other(error.to_string())
    }
}

impl From<StoreError> for NotShared {
    fn from(error: StoreError) -> NotShared {
        NotShared::Other(error.to_string())
    }
}

/// The content of the hash of purges.
#[derive(Debug, Default, PartialEq, Eq)]
struct SharedPurges {
    /// The instants of the purges, in milliseconds since 1970 UTC.
    at_ms: BTreeMap<PurgeId, u64>,
    /// The nodes that have carried out each purge.
    done: BTreeMap<PurgeId, BTreeSet<String>>,
}

/// The exchange of a node.
pub(super) struct PurgeSharing {
    node: String,
    redis: Redis,
    links: Links,
    stats: Arc<NodeStats>,
    visits: VisitReader,
    /// The purges that all nodes have carried out.
    trimming: HashMap<PurgeId, Trimming>,
}

/// The end of a purge that all nodes have carried out.
struct Trimming {
    /// The time at which this node has heard of that.
    since: Instant,
    /// The ends of the streams at that time.
    ends: Vec<VisitStreamEnd>,
    /// The number of the count log to fold; `None` until all nodes have read the streams up to these ends.
    log: Option<u32>,
}

impl SharedPurges {
    /// Reads the fields of the hash. Ignores unknown ones, which a later version may write.
    fn of(fields: &[(String, String)]) -> SharedPurges {
        let mut shared = SharedPurges::default();
        for (field, value) in fields {
            match field.split_once('/') {
                None => {
                    if let (Some(id), Ok(at_ms)) = (PurgeId::parse(field), value.parse()) {
                        shared.at_ms.insert(id, at_ms);
                    }
                }
                Some((id, node)) => {
                    if let Some(id) = PurgeId::parse(id) {
                        shared.done.entry(id).or_default().insert(node.to_owned());
                    }
                }
            }
        }
        shared
    }

    /// Returns the fields of purges that are older than [`PURGES_KEPT`].
    fn old_fields(&self, now_ms: u64) -> Vec<String> {
        let since_ms = now_ms.saturating_sub(PURGES_KEPT.as_millis() as u64);
        let old = self.at_ms.iter().filter(|(_, at_ms)| **at_ms < since_ms).map(|(id, _)| *id);
        let old: BTreeSet<PurgeId> = old.collect();
        let done = self.done.iter().filter(|(id, _)| old.contains(*id));
        let done = done.flat_map(|(id, nodes)| nodes.iter().map(move |node| format!("{id}/{node}")));
        old.iter().map(PurgeId::to_string).chain(done).collect()
    }
}

impl PurgeSharing {
    pub(super) fn new(
        node: String,
        redis: Redis,
        links: Links,
        stats: Arc<NodeStats>,
        visits: VisitReader,
    ) -> PurgeSharing {
        PurgeSharing { node, redis, links, stats, visits, trimming: HashMap::new() }
    }

    /// True if Redis answered the last heartbeat of this node, as the Redis of its fleet.
    pub(super) fn is_connected(&self) -> bool {
        self.stats.fleet.connected.load(Ordering::Acquire)
    }

    /// Exchanges purges. Returns true if there is a new one to carry out.
    pub(super) fn share(&mut self, book: &Mutex<PurgeBook>) -> bool {
        if !self.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            // It may be the Redis of another fleet.
            return false;
        }
        self.try_share(book).unwrap_or_else(|error| {
            match error {
                // An unreachable Redis has alarms of its own in the fleet's threads.
                NotShared::Redis(error) => tracing::debug!(%error, "purges cannot be exchanged with other nodes"),
                NotShared::Other(error) => tracing::warn!(%error, "purges cannot be exchanged with other nodes"),
            }
            false
        })
    }

    fn try_share(&mut self, book: &Mutex<PurgeBook>) -> Result<bool, NotShared> {
        let shared = SharedPurges::of(&self.redis.purges(ANSWER_TIME)?);
        let now_ms = unix_ms();
        let has_new = self.take_new(book, &shared, now_ms)?;
        self.put_own(book, &shared, now_ms)?;
        self.confirm(book, &shared)?;
        locked(book).hear(self.members(), &shared.done);
        self.complete(book)?;
        locked(book).forget_old(now_ms);
        self.redis.forget_purges(&shared.old_fields(now_ms), ANSWER_TIME)?;
        Ok(has_new)
    }

    /// Returns the names of the nodes of the fleet.
    fn members(&self) -> Vec<String> {
        let members = self.stats.fleet.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().map(|member| member.node.clone()).collect()
    }

    /// Takes the purges of other nodes.
    fn take_new(&mut self, book: &Mutex<PurgeBook>, shared: &SharedPurges, now_ms: u64) -> Result<bool, NotShared> {
        let since_ms = now_ms.saturating_sub(PURGES_KEPT.as_millis() as u64);
        let mut has_new = false;
        for (id, at_ms) in &shared.at_ms {
            if *at_ms < since_ms || locked(book).all().contains_key(id) {
                continue;
            }
            let text = self.redis.purge_list(*id, ANSWER_TIME)?.unwrap_or_default();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            let Some(list) = PurgeList::from_json(&json) else {
                tracing::debug!(%id, "the links of a purge are not in Redis; the node that began it puts them back");
                continue;
            };
            tracing::info!(%id, links = list.links.len(), "another node has begun a purge");
            locked(book).take(*id, list)?;
            has_new = true;
        }
        Ok(has_new)
    }

    /// Gives Redis the purges that it lacks, once it has the deletions of their links.
    fn put_own(&mut self, book: &Mutex<PurgeBook>, shared: &SharedPurges, now_ms: u64) -> Result<(), NotShared> {
        let lacking = locked(book).unshared(|id| shared.at_ms.contains_key(&id), now_ms);
        if lacking.is_empty() {
            return Ok(());
        }
        let unsynced: HashSet<Code> = self.links.outbox()?.into_iter().map(|delivery| delivery.code).collect();
        for (id, list) in lacking {
            if !list.links.iter().any(|link| unsynced.contains(&link.code)) {
                self.redis.put_purge(id, list.at_ms, &list.to_json().to_string(), ANSWER_TIME)?;
            }
        }
        Ok(())
    }

    /// Notes in Redis which purges this node has carried out.
    fn confirm(&mut self, book: &Mutex<PurgeBook>, shared: &SharedPurges) -> Result<(), NotShared> {
        let erased = locked(book).ids(|_, entry| entry.stage >= PurgeStage::Erased);
        for id in erased {
            let is_noted = shared.done.get(&id).is_some_and(|nodes| nodes.contains(&self.node));
            if !is_noted && shared.at_ms.contains_key(&id) {
                self.redis.note_purged(id, &self.node, ANSWER_TIME)?;
            }
        }
        Ok(())
    }

    /// Ends the purges that all nodes have carried out. Before that, after the time within which all nodes have read what the
    /// streams of visits had by then, folds the count log and removes these entries.
    fn complete(&mut self, book: &Mutex<PurgeBook>) -> Result<(), NotShared> {
        let erased = locked(book).ids(|_, entry| entry.stage == PurgeStage::Erased);
        for id in erased {
            if !locked(book).is_done_everywhere(id) {
                self.trimming.remove(&id);
                continue;
            }
            let Some(Trimming { since, ends, log }) = self.trimming.get_mut(&id) else {
                let ends = self.redis.visit_stream_ends(ANSWER_TIME)?;
                self.trimming.insert(id, Trimming { since: Instant::now(), ends, log: None });
                continue;
            };
            if since.elapsed() < READ_WITHIN {
                continue;
            }
            // A batch of another node may have come after the fold of the purge on this node.
            if !self.visits.is_folded(*log.get_or_insert_with(|| self.visits.ask_fold())) {
                continue;
            }
            self.redis.trim_visit_streams(ends, ANSWER_TIME)?;
            locked(book).advance(id, PurgeStage::Complete)?;
            self.trimming.remove(&id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn fields_name_purges_and_nodes() {
        let (first, second) = (PurgeId(1).to_string(), PurgeId(2).to_string());
        let (of_first, of_second) = (format!("{first}/node/a"), format!("{second}/b"));
        let read = SharedPurges::of(&fields(&[
            (first.as_str(), "7"),
            (second.as_str(), "soon"),
            (of_first.as_str(), "done"),
            (of_second.as_str(), "done"),
            ("later", "7"),
            ("later/a", "done"),
        ]));
        assert_eq!(read.at_ms, BTreeMap::from([(PurgeId(1), 7)]));
        assert_eq!(read.done[&PurgeId(1)], BTreeSet::from(["node/a".to_owned()]));
        assert_eq!(read.done[&PurgeId(2)], BTreeSet::from(["b".to_owned()]));
        assert_eq!(read.done.len(), 2);
    }

    #[test]
    fn fields_of_old_purges_are_removed() {
        let kept_ms = PURGES_KEPT.as_millis() as u64;
        let [old, fresh] = [1, 2].map(|number| PurgeId(number).to_string());
        let (of_old, of_fresh) = (format!("{old}/a"), format!("{fresh}/a"));
        let read = SharedPurges::of(&fields(&[
            (old.as_str(), "6"),
            (fresh.as_str(), "7"),
            (of_old.as_str(), "done"),
            (of_fresh.as_str(), "done"),
        ]));
        assert_eq!(read.old_fields(kept_ms + 7), [old, of_old]);
    }
}
