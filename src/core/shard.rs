//! The links of one core, and how changes and loads reach them.

use std::sync::Arc;

use carom_shards::{CachedLinks, Code, CodeHash, CodeHasher, CoreCount, CoreId, MapEntry, owner};

use super::all_links::Placed;
use super::link_memory::{LinkMemory, MemoryBudget};
use super::ruled_links::{MARKER, RuledCodes, RuledLinks};
use crate::bridge::{LinkChange, LoadBatch, LoadedPage, MEMORY_LIMIT_LOW, StoredCodes};
use carom_model::link::Link;
use carom_model::link::record::{self, DamagedRange, RecordRef};
use carom_model::redirect::{BorrowedLookup, Lookup};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{CoreStats, NodeStats};

/// Links that are loaded together: enough for their cache misses to overlap, few enough to stay in the first-level
/// cache.
const LOAD_GROUP: usize = 32;

/// Links that a core has taken out of its memory. It may take long to free them.
pub(super) type ForgottenLinks = (Option<CachedLinks>, RuledLinks);

/// A record that was read from the store at start.
struct LoadedRecord<'a> {
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
    links: LinkMemory,
    /// The links with redirect rules.
    ruled: RuledLinks,
    /// True if the core has no filter of codes and awaits none, so that the alarm `memory_limit_low` was raised.
    lacks_filter: bool,
    /// Key ranges that could not be read at start; nearly always empty.
    damaged: Arc<[DamagedRange]>,
    pub(super) stats: Arc<CoreStats>,
    node: Arc<NodeStats>,
}

impl Shard {
    pub(super) fn new(
        me: CoreId,
        cores: CoreCount,
        hasher: CodeHasher,
        memory_budget: MemoryBudget,
        stats: Arc<CoreStats>,
        node: Arc<NodeStats>,
    ) -> Shard {
        Shard {
            me,
            cores,
            hasher,
            links: LinkMemory::new(hasher, memory_budget),
            ruled: RuledLinks::default(),
            lacks_filter: false,
            damaged: Arc::default(),
            stats,
            node,
        }
    }

    /// Returns the hasher of codes.
    pub(super) fn hasher(&self) -> CodeHasher {
        self.hasher
    }

    /// Returns the hash of a code and the core that owns it.
    #[inline]
    pub(super) fn resolve(&self, code: &Code) -> (CodeHash, CoreId) {
        let hash = self.hasher.hash(code);
        (hash, owner(hash, self.cores))
    }

    /// Prefetches what the look-ups of these hashes read, so that they do not wait for memory one by one.
    #[inline]
    pub(super) fn prefetch(&self, hashes: impl Iterator<Item = CodeHash> + Clone) {
        self.links.prefetch(hashes);
    }

    /// Returns the link or its absence for a code of this core at the instant `now_ms`, in milliseconds since 1970 UTC.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, hash: CodeHash, now_ms: u64) -> BorrowedLookup<'_> {
        debug_assert_eq!(owner(hash, self.cores), self.me, "this core would answer 404 for the link of another");
        match self.links.get(code, hash) {
            Lookup::Live(destination) => destination.at(now_ms),
            Lookup::Missing if self.damaged.iter().any(|range| range.may_hold(code)) => Lookup::Damaged,
            // For a link with rules, the map has a marker that reads as damaged ([`MARKER`]). A map that keeps only the
            // links in use may have evicted the marker, while the link itself is still here.
            Lookup::Damaged | Lookup::NotResident if self.ruled.get(code).is_some() => Lookup::Ruled,
            other => other,
        }
    }

    /// Returns the link that a look-up has found to be [`Lookup::Ruled`].
    pub(super) fn ruled(&self, code: &Code) -> Option<&Arc<Link>> {
        self.ruled.get(code)
    }

    /// Shares the filter of links with redirect rules with all cores.
    pub(super) fn share_ruled_codes(&mut self, codes: &Arc<RuledCodes>) {
        self.ruled.share(codes);
    }

    /// Returns the filter of the codes, of all cores, whose links may have redirect rules.
    #[inline]
    pub(super) fn ruled_codes(&self) -> &RuledCodes {
        self.ruled.codes()
    }

    /// Keeps a link with redirect rules, whose marker has just been put into the map.
    fn keep_ruled(&mut self, link: &Arc<Link>, hash: CodeHash) {
        for code in self.ruled.insert(link, hash, self.links.ruled_bytes_max()) {
            self.links.drop_marker(&code, self.hasher.hash(&code));
        }
        self.links.set_ruled_bytes(self.ruled.bytes());
    }

    /// Makes a change visible that is durable with commit number `commit`. Returns the hash of the code, whether it may
    /// have had a link of which others hold copies, and whether redirects find the new one.
    pub(super) fn apply(&mut self, change: &LinkChange, commit: u64) -> (CodeHash, Placed) {
        let code = change.code();
        let hash = self.hasher.hash(code);
        assert_eq!(owner(hash, self.cores), self.me, "a change goes to the owner of its code");
        let had_rules = self.ruled.remove(code);
        let placed = match change {
            LinkChange::Put(link) if link.has_rules() => {
                let placed = self.links.put(code, hash, MARKER, commit);
                if placed.is_served {
                    self.keep_ruled(link, hash);
                }
                placed
            }
            LinkChange::Put(link) => {
                let entry = MapEntry::Link { policy: link.policy, target: link.target.as_bytes() };
                self.links.put(code, hash, entry, commit)
            }
            LinkChange::Remove(_) => Placed { replaced: self.links.remove(code, hash, commit), is_served: true },
        };
        if had_rules {
            self.links.set_ruled_bytes(self.ruled.bytes());
        }
        if !placed.is_served {
            self.report_no_room();
        }
        self.update_stats();
        (hash, placed)
    }

    /// Prepares for about `links` links to be loaded at start.
    pub(super) fn begin_load(&mut self, links: usize) {
        self.links.reserve(links);
    }

    /// Takes links that were read from the store at start, except those that were changed since.
    pub(super) fn load(&mut self, batch: &LoadBatch) {
        let hasher = self.hasher;
        let mut records = batch.iter().filter_map(|(key, value)| {
            let code = Code::from_key(key).ok()?;
            Some(LoadedRecord { code, hash: hasher.hash(&code), key, value })
        });
        let mut group = Vec::with_capacity(LOAD_GROUP);
        loop {
            group.extend(records.by_ref().take(LOAD_GROUP));
            if group.is_empty() {
                break;
            }
            group.retain(|loaded| {
                if record::may_have_rules(loaded.value) {
                    self.ruled.codes().mark(loaded.hash);
                }
                self.links.register(loaded.hash)
            });
            for loaded in group.drain(..) {
                if self.links.is_current(&loaded.code, loaded.hash, batch.as_of) {
                    self.load_one(&loaded);
                }
            }
        }
        self.update_stats();
    }

    fn load_one(&mut self, loaded: &LoadedRecord<'_>) {
        let LoadedRecord { code, hash, key, value } = *loaded;
        assert_eq!(owner(hash, self.cores), self.me, "a record goes to the owner of its code");
        let mut with_rules = None;
        let entry = match record::decode(key, value) {
            Ok(RecordRef::Link(link)) if !link.rules.is_empty() => {
                with_rules = Some(Arc::new(link.to_link(code)));
                MARKER
            }
            Ok(RecordRef::Link(link)) => MapEntry::Link { policy: link.policy, target: link.target.as_bytes() },
            Ok(RecordRef::Tombstone(_)) => return,
            Err(error) if error.is_newer() => {
                self.node.report_newer(key, &error);
                return self.links.withhold(&code);
            }
            Err(error) => {
                self.node.report_damaged(key, &error);
                MapEntry::Damaged
            }
        };
        if self.links.load(&code, hash, entry).is_err() {
            // The remaining links are served.
            self.report_no_room();
        } else if let Some(link) = with_rules {
            self.keep_ruled(&link, hash);
        }
    }

    /// Takes the links of a page of the map's image, except those that were changed since. This core owns all of them. A
    /// core that keeps the links in use copies them: its node has an image only if it kept all of its many links before.
    pub(super) fn load_page(&mut self, loaded: LoadedPage) {
        let LinkMemory::All(all) = &mut self.links else { return self.load_own(&loaded) };
        let (me, cores) = (self.me, self.cores);
        let LoadedPage { page, changed, credit, .. } = loaded;
        let has_room = all.adopt(page, |code, hash| {
            assert_eq!(owner(hash, cores), me, "a record goes to the owner of its code");
            !changed.has(code, hash)
        });
        drop(credit);
        if !has_room {
            self.report_no_room();
        }
        self.update_stats();
    }

    /// Takes this core's links in a page of the map's image, except those that were changed since.
    pub(super) fn load_own(&mut self, loaded: &LoadedPage) {
        for (code, entry) in loaded.page.records() {
            let (hash, owner) = self.resolve(&code);
            if owner != self.me || entry == MapEntry::Damaged || loaded.changed.has(&code, hash) {
                continue;
            }
            let has_room = self.links.register(hash);
            if has_room
                && self.links.is_current(&code, hash, loaded.as_of)
                && self.links.load(&code, hash, entry).is_err()
            {
                self.report_no_room();
            }
        }
        self.update_stats();
    }

    /// Sets the key ranges of the store that could not be read. A code in them may have a link that the map lacks, so
    /// it is found [`Lookup::Damaged`] instead of missing.
    pub(super) fn set_unreadable_ranges(&mut self, ranges: Arc<[DamagedRange]>) {
        self.damaged = ranges;
    }

    /// Ends the load: all links have been loaded.
    pub(super) fn end_load(&mut self) {
        self.links.end_load();
        self.update_stats();
    }

    /// Keeps a link that was read from the store when `as_of` commits had ended, unless all are kept anyway. `None`
    /// means that its record is damaged.
    pub(super) fn keep(&mut self, code: &Code, link: Option<&Arc<Link>>, as_of: u64) {
        let hash = self.hasher.hash(code);
        let entry = match link {
            Some(link) if link.has_rules() => {
                if self.links.may_keep(code, hash, as_of) {
                    self.links.keep(code, hash, MARKER, as_of);
                    self.keep_ruled(link, hash);
                }
                return self.update_stats();
            }
            Some(link) => MapEntry::Link { policy: link.policy, target: link.target.as_bytes() },
            None => MapEntry::Damaged,
        };
        self.links.keep(code, hash, entry, as_of);
        self.update_stats();
    }

    /// Takes all links out of memory. Links that were read before commit number `commit` and arrive later are not kept.
    pub(super) fn forget_all(&mut self, commit: u64) -> ForgottenLinks {
        let forgotten = (self.links.forget_all(commit), self.ruled.take_all());
        self.update_stats();
        forgotten
    }

    /// Takes codes of the store, for a filter of them.
    pub(super) fn take_codes(&mut self, codes: StoredCodes) {
        match codes {
            StoredCodes::Await { codes } => self.links.await_filter(codes),
            StoredCodes::Blocks(blocks) => self.links.add_filter_blocks(blocks.first, &blocks.bytes, blocks.codes),
            StoredCodes::Ruled(None) => self.ruled.codes().add_all(),
            StoredCodes::Ruled(Some(bits)) => self.ruled.codes().restrict_to(&bits),
            StoredCodes::Begin => self.links.begin_filter(),
            StoredCodes::Some { hashes, credit } => {
                self.links.add_to_filter(&hashes);
                drop(credit);
            }
            StoredCodes::End { is_whole } => self.links.end_filter(is_whole),
        }
        self.update_stats();
    }

    /// Evicts a link, unless all are kept.
    #[cfg(test)]
    pub(super) fn evict(&mut self, code: &Code) {
        if let LinkMemory::Hot(hot) = &mut self.links {
            hot.evict(code, self.hasher.hash(code));
        }
    }

    fn report_no_room(&self) {
        let text = format!(
            "core {} has reached its limit of link data; further links are stored but return 503; run the node with more cores",
            self.me
        );
        self.node.alarms.raise(Alarm::MemoryFull, text);
    }

    fn update_stats(&mut self) {
        let wants_codes = self.links.wants_codes();
        let lacks_filter = !self.links.knows_codes() && !wants_codes && !self.links.awaits_codes();
        // Before the alarm, which the thread that sees no core in doubt clears.
        self.stats.lacks_filter.set(u64::from(lacks_filter));
        if lacks_filter && !self.lacks_filter {
            self.node.alarms.raise(Alarm::MemoryLimitLow, MEMORY_LIMIT_LOW.to_owned());
        }
        self.lacks_filter = lacks_filter;
        self.stats.wants_codes.set(u64::from(wants_codes));
        self.stats.links.set(self.links.len() as u64);
        self.stats.link_bytes.set(self.links.link_bytes());
        self.stats.map_bytes.set(self.links.memory_bytes() + self.ruled.bytes());
        self.stats.removed_while_loading.set(self.links.removed_len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use carom_shards::map::sealed;
    use carom_shards::{PageBuffer, Policy};
    use proptest::prelude::*;

    use super::*;
    use crate::bridge::{ChangedCodes, LoadCredit};
    use carom_model::link::labels::LinkLabels;
    use carom_model::link::rules::RedirectRules;
    use carom_model::link::{Origin, Version};
    use carom_model::redirect::Destination;

    const CODES: usize = 12;

    /// The store's record of a code.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Stored {
        Nothing,
        /// A link whose target has this number, with so many characters behind it.
        Link(u64, usize),
        Damaged,
    }

    #[derive(Clone, Debug)]
    enum LoadStep {
        /// A client changes a code: the commit ends, and its Apply is on its way to the owner.
        Change { code: usize, to: Stored },
        /// The owner takes the oldest Apply.
        Apply,
        /// The loader reads the next codes into a batch.
        Scan { count: usize },
        /// The loader reads the next codes from an image, which is out of date for the first of them.
        ReadPage { count: usize },
        /// The owner takes a batch.
        Load { at: usize },
        /// A fetcher reads a code.
        Fetch { code: usize },
        /// The owner takes a fetcher's result.
        Keep { at: usize },
        /// The owner needs the memory of a link.
        Evict { code: usize },
    }

    fn any_stored() -> impl Strategy<Value = Stored> {
        prop_oneof![
            2 => Just(Stored::Nothing),
            // Targets of two lengths: a record of the same size is written in place, another one is moved.
            3 => (any::<u64>(), prop_oneof![Just(0), Just(40)]).prop_map(|(number, more)| Stored::Link(number, more)),
        ]
    }

    fn any_step() -> impl Strategy<Value = LoadStep> {
        prop_oneof![
            4 => (0..CODES, any_stored()).prop_map(|(code, to)| LoadStep::Change { code, to }),
            4 => Just(LoadStep::Apply),
            3 => (1..4usize).prop_map(|count| LoadStep::Scan { count }),
            2 => (1..4usize).prop_map(|count| LoadStep::ReadPage { count }),
            2 => (0..4usize).prop_map(|at| LoadStep::Load { at }),
            1 => (0..CODES).prop_map(|code| LoadStep::Fetch { code }),
            1 => (0..4usize).prop_map(|at| LoadStep::Keep { at }),
            1 => (0..CODES).prop_map(|code| LoadStep::Evict { code }),
        ]
    }

    fn code(number: usize) -> Code {
        Code::parse(format!("c{number}").as_bytes()).unwrap()
    }

    fn target(number: u64, more: usize) -> String {
        format!("https://example.org/{number}/{}", "x".repeat(more))
    }

    fn link(number: usize, stored: Stored) -> Option<Link> {
        let Stored::Link(version, more) = stored else { return None };
        let rules = carom_model::testing::rules("https://ios.test/", "device", "ios");
        let rules = if version % 4 == 1 { rules } else { RedirectRules::default() };
        Some(Link {
            code: code(number),
            policy: Policy::default(),
            target: target(version, more),
            created_ms: 0,
            origin: Origin::Custom,
            version: Version::default(),
            labels: LinkLabels { rules, ..LinkLabels::default() },
        })
    }

    /// Links on their way from the loader.
    enum Sent {
        Batch(LoadBatch),
        Page(LoadedPage),
    }

    /// A shard that is loaded while links change, the store, and the messages between them.
    struct World {
        shard: Shard,
        stored: [Stored; CODES],
        commits: u64,
        /// Changes whose owner has no message yet: code, new record, number of the commit.
        untold: std::collections::VecDeque<(usize, Stored, u64)>,
        /// The next code that the loader reads.
        next: usize,
        sent: Vec<Sent>,
        fetched: Vec<(usize, Stored, u64)>,
    }

    impl World {
        fn new(memory_budget: MemoryBudget, stored: &[Stored; CODES]) -> World {
            let (cores, hasher) = (CoreCount::new(1).unwrap(), CodeHasher::new(5));
            let mut shard = Shard::new(CoreId(0), cores, hasher, memory_budget, Arc::default(), Arc::default());
            shard.begin_load(CODES);
            let untold = std::collections::VecDeque::new();
            World { shard, stored: *stored, commits: 0, untold, next: 0, sent: Vec::new(), fetched: Vec::new() }
        }

        fn take(&mut self, step: &LoadStep) {
            match *step {
                LoadStep::Change { code, to } if to != Stored::Nothing || self.stored[code] != Stored::Nothing => {
                    self.commits += 1;
                    self.stored[code] = to;
                    self.untold.push_back((code, to, self.commits));
                }
                LoadStep::Change { .. } => {}
                LoadStep::Apply => self.apply(),
                LoadStep::Scan { count } => self.scan(count),
                LoadStep::ReadPage { count } => self.read_page(count),
                LoadStep::Load { at } if at < self.sent.len() => match self.sent.remove(at) {
                    Sent::Batch(batch) => self.shard.load(&batch),
                    Sent::Page(page) => self.shard.load_page(page),
                },
                LoadStep::Fetch { code } => self.fetched.push((code, self.stored[code], self.commits)),
                LoadStep::Keep { at } if at < self.fetched.len() => {
                    let (number, stored, as_of) = self.fetched.remove(at);
                    if stored != Stored::Nothing {
                        self.shard.keep(&code(number), link(number, stored).map(Arc::new).as_ref(), as_of);
                    }
                }
                LoadStep::Load { .. } | LoadStep::Keep { .. } => {}
                LoadStep::Evict { code } => self.shard.evict(&self::code(code)),
            }
        }

        fn apply(&mut self) {
            let Some((number, to, commit)) = self.untold.pop_front() else { return };
            let change = match link(number, to) {
                Some(link) => LinkChange::Put(Arc::new(link)),
                None => LinkChange::Remove(code(number)),
            };
            self.shard.apply(&change, commit);
        }

        fn scan(&mut self, count: usize) {
            let mut batch = LoadBatch { as_of: self.commits, ..LoadBatch::default() };
            for number in (self.next..CODES).take(count) {
                self.push(&mut batch, number);
                self.next += 1;
            }
            self.sent.push(Sent::Batch(batch));
        }

        /// Adds the store's record of a code.
        fn push(&self, batch: &mut LoadBatch, number: usize) {
            let name = format!("c{number}");
            match self.stored[number] {
                Stored::Nothing => {}
                Stored::Damaged => batch.push(name.as_bytes(), b"no record at all"),
                link => {
                    let mut record = Vec::new();
                    record::encode_link(name.as_bytes(), &self::link(number, link).unwrap(), &mut record);
                    batch.push(name.as_bytes(), &record);
                }
            }
        }

        fn read_page(&mut self, count: usize) {
            let (as_of, first) = (self.commits, self.next);
            let (mut records, mut changed) = (Vec::new(), Vec::new());
            for number in (first..CODES).take(count) {
                let (code, stored) =
                    (code(number), if number == first { Stored::Link(99, 3) } else { self.stored[number] });
                let in_image = link(number, stored);
                let is_ruled = number != first && in_image.as_ref().is_some_and(Link::has_rules);
                match in_image {
                    Some(link) if link.has_rules() => sealed::append(&mut records, &code, &MapEntry::Damaged),
                    Some(Link { policy, target, .. }) => {
                        sealed::append(&mut records, &code, &MapEntry::Link { policy, target: target.as_bytes() });
                    }
                    None if stored == Stored::Damaged => sealed::append(&mut records, &code, &MapEntry::Damaged),
                    None => {}
                }
                let is_damaged = number != first && stored == Stored::Damaged;
                if number == first {
                    changed.push(code);
                }
                if number == first || is_damaged || is_ruled {
                    let mut replayed = LoadBatch { as_of, ..LoadBatch::default() };
                    self.push(&mut replayed, number);
                    self.sent.push(Sent::Batch(replayed));
                }
                self.next += 1;
            }
            let mut buffer = PageBuffer::new().unwrap();
            buffer.bytes_mut()[sealed::PAGE_HEAD_BYTES..][..records.len()].copy_from_slice(&records);
            let changed = Arc::new(ChangedCodes::new(changed, self.shard.hasher()));
            let credit = LoadCredit::take(&Arc::default(), 0);
            self.sent.push(Sent::Page(LoadedPage { page: buffer.seal().unwrap(), changed, as_of, credit }));
        }

        /// Delivers all messages, and compares memory with the store.
        fn end(mut self) {
            self.scan(CODES);
            while !self.sent.is_empty() {
                self.take(&LoadStep::Load { at: 0 });
            }
            self.shard.end_load();
            while !self.untold.is_empty() {
                self.apply();
            }
            while !self.fetched.is_empty() {
                self.take(&LoadStep::Keep { at: 0 });
            }
            let is_hot = matches!(self.shard.links, LinkMemory::Hot(_));
            for number in 0..CODES {
                let (code, stored) = (code(number), self.stored[number]);
                let hash = self.shard.hasher().hash(&code);
                if self.shard.find(&code, hash, 0) == Lookup::Ruled {
                    let found = self.shard.ruled(&code).map(|link| Link::clone(link));
                    assert_eq!(found, link(number, stored), "c{number}");
                    continue;
                }
                match (self.shard.find(&code, hash, 0), stored) {
                    // The store is asked.
                    (Lookup::NotResident, _) if is_hot => {}
                    (Lookup::Missing, Stored::Nothing) | (Lookup::Damaged, Stored::Damaged) => {}
                    (Lookup::Live(Destination { target: found, .. }), Stored::Link(version, more)) => {
                        assert_eq!(found, target(version, more).as_bytes(), "c{number}");
                    }
                    (found, stored) => panic!("c{number}: {found:?} in memory, {stored:?} in the store"),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_link_that_is_loaded_never_overwrites_a_change_made_since_it_was_read(
            stored in proptest::array::uniform12(prop_oneof![4 => any_stored(), 1 => Just(Stored::Damaged)]),
            steps in proptest::collection::vec(any_step(), 1..120),
        ) {
            for memory_budget in [MemoryBudget::All, MemoryBudget::Bytes(512 << 10)] {
                let mut world = World::new(memory_budget, &stored);
                steps.iter().for_each(|step| world.take(step));
                world.end();
            }
        }
    }
}
