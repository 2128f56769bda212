//! The links of one core, and how changes reach them.

use std::sync::Arc;

use carom_shards::{Code, CodeHash, CodeHasher, CoreCount, CoreId, Entry, LinkMap, MapFull, Put, owner};

use crate::mail::{Change, LoadBatch};
use crate::record::{self, RecordRef};
use crate::stats::{CoreStats, NodeStats};
use crate::wire::answer::Found;

/// Links that are read back together: enough for their cache misses to overlap, few enough to stay in the first cache.
const LOAD_GROUP: usize = 32;

/// A record that was read back.
struct Loaded<'a> {
    code: Code,
    hash: CodeHash,
    key: &'a [u8],
    value: &'a [u8],
}

/// The links that a core owns.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) me: CoreId,
    cores: CoreCount,
    hasher: CodeHasher,
    map: LinkMap,
    stats: Arc<CoreStats>,
    node: Arc<NodeStats>,
}

impl Shard {
    pub(super) fn new(
        me: CoreId,
        cores: CoreCount,
        hasher: CodeHasher,
        stats: Arc<CoreStats>,
        node: Arc<NodeStats>,
    ) -> Shard {
        Shard { me, cores, hasher, map: LinkMap::new(hasher), stats, node }
    }

    /// The same with memory for hardly any links.
    #[cfg(test)]
    pub(super) fn with_little_room(self) -> Shard {
        Shard { map: LinkMap::with_room(self.hasher, 1), ..self }
    }

    /// How codes are hashed.
    pub(super) fn hasher(&self) -> CodeHasher {
        self.hasher
    }

    /// The hash of a code and the core that owns it.
    #[inline]
    pub(super) fn locate(&self, code: &Code) -> (CodeHash, CoreId) {
        let hash = self.hasher.hash(code);
        (hash, owner(hash, self.cores))
    }

    /// Brings what the look-ups of these hashes read into the cache, so that they do not wait for memory one by one.
    #[inline]
    pub(super) fn foresee(&self, hashes: impl Iterator<Item = CodeHash> + Clone) {
        hashes.clone().for_each(|hash| self.map.touch_index(hash));
        hashes.for_each(|hash| self.map.touch_record(hash));
    }

    /// What there is for a code of this core at the instant `now_ms`.
    #[inline]
    pub(super) fn find(&self, code: &Code, hash: CodeHash, now_ms: u64) -> Found<'_> {
        match self.map.get(code, hash) {
            Some(Entry::Link { policy, .. }) if policy.valid_until_ms.is_some_and(|until| until <= now_ms) => {
                Found::Gone
            }
            Some(Entry::Link { policy, target }) => Found::Link { policy, target },
            Some(Entry::Damaged) => Found::Damaged,
            None => Found::Missing,
        }
    }

    /// Makes a durable change visible here. Returns the hash of the code, and whether it had a link before, of which others
    /// may hold copies.
    ///
    /// # Errors
    /// [`MapFull`] when there is no memory for a link; nothing has changed.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(CodeHash, bool), MapFull> {
        let (hash, replaced) = match change {
            Change::Put(link) => {
                let entry = Entry::Link { policy: link.policy, target: link.target.as_bytes() };
                let hash = self.hasher.hash(&link.code);
                (hash, self.put(&link.code, hash, entry)? == Put::Replaced)
            }
            Change::Remove(code) => {
                let hash = self.hasher.hash(code);
                (hash, self.map.remove(code, hash))
            }
        };
        self.count();
        Ok((hash, replaced))
    }

    /// Prepares for about so many links to be read back at start.
    pub(super) fn begin_load(&mut self, links: usize) {
        self.map.expect(links);
    }

    /// Takes links that were read back at start.
    pub(super) fn load(&mut self, batch: &LoadBatch) {
        let hasher = self.hasher;
        let mut records = batch.iter().filter_map(|(key, value)| {
            let code = Code::parse(key).ok()?;
            Some(Loaded { code, hash: hasher.hash(&code), key, value })
        });
        let mut group = Vec::with_capacity(LOAD_GROUP);
        loop {
            group.extend(records.by_ref().take(LOAD_GROUP));
            if group.is_empty() {
                break;
            }
            group.iter().for_each(|loaded| self.map.touch_index(loaded.hash));
            for Loaded { code, hash, key, value } in group.drain(..) {
                match record::decode(key, value) {
                    Ok(RecordRef::Link(link)) => {
                        let entry = Entry::Link { policy: link.policy, target: link.target.as_bytes() };
                        // The alarm says it; the rest is served.
                        let _ = self.put(&code, hash, entry);
                    }
                    Ok(RecordRef::Tombstone(_)) => {}
                    Err(error) => {
                        self.node.report_damaged(key, &error);
                        let _ = self.put(&code, hash, Entry::Damaged);
                    }
                }
            }
        }
        self.count();
    }

    /// All links have been read back.
    pub(super) fn end_load(&mut self) {
        self.map.fit();
        self.count();
    }

    /// Puts an entry into the map, or raises the alarm that there is no memory for it.
    fn put(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>) -> Result<Put, MapFull> {
        assert_eq!(owner(hash, self.cores), self.me, "a change goes to the owner of its code");
        self.map.put(code, hash, entry).inspect_err(|_| {
            let text = format!(
                "core {} holds as many bytes of links as it can address; run the node with more cores",
                self.me
            );
            self.node.alarms.raise("memory_full", text);
        })
    }

    fn count(&self) {
        self.stats.links.set(self.map.len() as u64);
        self.stats.link_bytes.set(self.map.link_bytes());
        self.stats.map_bytes.set(self.map.memory_bytes());
    }
}
