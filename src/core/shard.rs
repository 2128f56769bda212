//! The links of one core, and how changes reach them.

use std::sync::Arc;

use carom_shards::{Code, CodeHash, CodeHasher, CoreCount, CoreId, Entry, LinkMap, owner};

use crate::mail::{Change, LoadBatch};
use crate::stats::{CoreStats, NodeStats};
use crate::store::record::{self, RecordRef};
use crate::wire::answer::Found;

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

    /// The hash of a code and the core that owns it.
    #[inline]
    pub(super) fn locate(&self, code: &Code) -> (CodeHash, CoreId) {
        let hash = self.hasher.hash(code);
        (hash, owner(hash, self.cores))
    }

    /// Brings what the look-ups of these hashes read into the cache, so that they do not wait for memory one by one.
    #[inline]
    pub(super) fn foresee(&self, hashes: &[CodeHash]) {
        hashes.iter().for_each(|&hash| self.map.touch_index(hash));
        hashes.iter().for_each(|&hash| self.map.touch_record(hash));
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

    /// Makes a durable change visible.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(link) => {
                let entry = Entry::Link { policy: link.policy, target: link.target.as_bytes() };
                self.put(&link.code, entry);
            }
            Change::Remove(code) => {
                let (hash, _) = self.locate(code);
                self.map.remove(code, hash);
            }
        }
        self.count();
    }

    /// Takes links that were read back at start.
    pub(super) fn load(&mut self, batch: &LoadBatch) {
        for (key, value) in batch.iter() {
            let Ok(code) = Code::parse(key) else { continue };
            match record::decode(key, value) {
                Ok(RecordRef::Link(link)) => {
                    self.put(&code, Entry::Link { policy: link.policy, target: link.target.as_bytes() });
                }
                Ok(RecordRef::Tombstone { .. }) => {}
                Err(error) => {
                    self.node.report_damaged(key, &error);
                    self.put(&code, Entry::Damaged);
                }
            }
        }
        self.count();
    }

    fn put(&mut self, code: &Code, entry: Entry<'_>) {
        let (hash, owner) = self.locate(code);
        assert_eq!(owner, self.me, "a change goes to the owner of its code");
        if self.map.put(code, hash, entry).is_err() {
            self.node.alarms.raise(
                "memory-full",
                format!(
                    "core {} holds as many bytes of links as it can address; run the node with more cores",
                    self.me
                ),
            );
        }
    }

    fn count(&self) {
        self.stats.links.set(self.map.len() as u64);
        self.stats.link_bytes.set(self.map.link_bytes());
        self.stats.map_bytes.set(self.map.memory_bytes());
    }
}
