//! The links of one core, and how changes reach them.

use std::sync::Arc;

use carom_shards::{Code, CodeHash, CodeHasher, CoreCount, CoreId, Entry, MapFull, Phase, owner};

use super::residents::{Resident, Residents, Share};
use crate::alarms::Alarm;
use crate::link::Link;
use crate::mail::{Change, LoadBatch};
use crate::record::{self, DamagedRange, RecordRef};
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
    links: Residents,
    /// Whether it has been said that not all codes are known.
    in_doubt: bool,
    /// What could not be read back at start; nearly always nothing.
    damaged: Arc<[DamagedRange]>,
    stats: Arc<CoreStats>,
    node: Arc<NodeStats>,
}

impl Shard {
    pub(super) fn new(
        me: CoreId,
        cores: CoreCount,
        hasher: CodeHasher,
        share: Share,
        stats: Arc<CoreStats>,
        node: Arc<NodeStats>,
    ) -> Shard {
        Shard {
            me,
            cores,
            hasher,
            links: Residents::new(hasher, share),
            in_doubt: false,
            damaged: Arc::default(),
            stats,
            node,
        }
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
        self.links.foresee(hashes);
    }

    /// What there is for a code of this core at the instant `now_ms`.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, hash: CodeHash, now_ms: u64) -> Found<'_> {
        let entry = match self.links.get(code, hash) {
            Resident::Entry(entry) => entry,
            Resident::Nothing if self.damaged.iter().any(|range| range.may_hold(code)) => return Found::Damaged,
            Resident::Nothing => return Found::Missing,
            Resident::Elsewhere => return Found::Elsewhere,
        };
        match entry {
            Entry::Link { policy, target } => match policy.phase(now_ms) {
                Phase::Live => Found::Link { policy, target },
                Phase::Early => Found::Early,
                Phase::Over => Found::Gone,
            },
            Entry::Damaged => Found::Damaged,
        }
    }

    /// Makes a change visible here that is durable with the commit of that number. Returns the hash of the code, and
    /// whether it had a link before, of which others may hold copies.
    ///
    /// # Errors
    /// [`MapFull`] when there is no memory for a link; nothing has changed.
    pub(super) fn apply(&mut self, change: &Change, commit: u64) -> Result<(CodeHash, bool), MapFull> {
        let (hash, replaced) = match change {
            Change::Put(link) => {
                let entry = Entry::Link { policy: link.policy, target: link.target.as_bytes() };
                let hash = self.hasher.hash(&link.code);
                (hash, self.put(&link.code, hash, entry, commit)?)
            }
            Change::Remove(code) => {
                let hash = self.hasher.hash(code);
                (hash, self.links.remove(code, hash, commit))
            }
        };
        self.count();
        Ok((hash, replaced))
    }

    /// Prepares for about so many links to be read back at start.
    pub(super) fn begin_load(&mut self, links: usize) {
        self.links.expect(links);
    }

    /// Takes links that were read back at start.
    pub(super) fn load(&mut self, batch: &LoadBatch) {
        let hasher = self.hasher;
        let mut records = batch.iter().filter_map(|(key, value)| {
            let code = Code::from_key(key).ok()?;
            Some(Loaded { code, hash: hasher.hash(&code), key, value })
        });
        let mut group = Vec::with_capacity(LOAD_GROUP);
        loop {
            group.extend(records.by_ref().take(LOAD_GROUP));
            if group.is_empty() {
                break;
            }
            group.retain(|loaded| self.links.announce(loaded.hash));
            for Loaded { code, hash, key, value } in group.drain(..) {
                match record::decode(key, value) {
                    Ok(RecordRef::Link(link)) => {
                        let entry = Entry::Link { policy: link.policy, target: link.target.as_bytes() };
                        // The alarm says it; the rest is served.
                        let _ = self.put(&code, hash, entry, 0);
                    }
                    Ok(RecordRef::Tombstone(_)) => {}
                    Err(error) => {
                        self.node.report_damaged(key, &error);
                        let _ = self.put(&code, hash, Entry::Damaged, 0);
                    }
                }
            }
        }
        self.count();
    }

    /// These records could not be read back: of a code without a link there it cannot be said that it has none.
    pub(super) fn doubt(&mut self, ranges: Arc<[DamagedRange]>) {
        self.damaged = ranges;
    }

    /// All links have been read back.
    pub(super) fn end_load(&mut self) {
        self.links.fit();
        self.count();
    }

    /// Keeps a link that was read from the store when so many commits had ended, if not all are kept anyway. Without a link
    /// its record is damaged.
    pub(super) fn keep(&mut self, code: &Code, link: Option<&Link>, as_of: u64) {
        let entry = match link {
            Some(link) => Entry::Link { policy: link.policy, target: link.target.as_bytes() },
            None => Entry::Damaged,
        };
        self.links.keep(code, self.hasher.hash(code), entry, as_of);
        self.count();
    }

    /// Evicts a link, if not all are kept.
    #[cfg(test)]
    pub(super) fn evict(&mut self, code: &Code) {
        if let Residents::Hot(hot) = &mut self.links {
            hot.evict(code, self.hasher.hash(code));
        }
    }

    /// Puts an entry into memory, or raises the alarm that there is no memory for it.
    fn put(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>, commit: u64) -> Result<bool, MapFull> {
        assert_eq!(owner(hash, self.cores), self.me, "a change goes to the owner of its code");
        self.links.put(code, hash, entry, commit).inspect_err(|_| {
            let text = format!(
                "core {} holds as many bytes of links as it can address; run the node with more cores",
                self.me
            );
            self.node.alarms.raise(Alarm::MemoryFull, text);
        })
    }

    fn count(&mut self) {
        if !self.links.knows_codes() && !std::mem::replace(&mut self.in_doubt, true) {
            let text = "links.memory_limit is too low for this many links: unknown codes are looked for on disk";
            self.node.alarms.raise(Alarm::MemoryLimitLow, text.to_owned());
        }
        self.stats.links.set(self.links.len() as u64);
        self.stats.link_bytes.set(self.links.link_bytes());
        self.stats.map_bytes.set(self.links.memory_bytes());
    }
}
