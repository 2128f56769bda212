//! Tests of the filters of codes against the store that they were made from.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use carom_shards::{Code, CodeFilter, CodeHash, owner};
use proptest::prelude::*;

use super::file::FilterFile;
use super::*;
use crate::services::testing::TestNode;
use carom_limits::{CODES_SENT_TOGETHER, FILTER_PAGE_BYTES};
use carom_model::link::{Origin, record};
use carom_model::testing::{link, rules};

fn code(name: &str) -> Code {
    Code::parse(name.as_bytes()).unwrap()
}

fn put_all(node: &TestNode, names: impl Iterator<Item = String>) {
    let (mut batch, mut bytes) = (node.links.batch(), Vec::new());
    for name in names {
        let mut link = link(&name, Origin::Custom);
        if name.starts_with("ruled") {
            link.labels.rules = rules("https://ios.test/", "device", "ios");
        }
        bytes.clear();
        record::encode_link(name.as_bytes(), &link, &mut bytes);
        batch.put(&link.code, &bytes);
    }
    node.links.commit(batch).unwrap();
}

fn put(node: &TestNode, name: &str) {
    put_all(node, std::iter::once(name.to_owned()));
}

fn remove(node: &TestNode, name: &str, leaves_tombstone: bool) {
    let mut batch = node.links.batch();
    if leaves_tombstone {
        let mut bytes = Vec::new();
        record::encode_tombstone(name.as_bytes(), &carom_model::testing::tombstone(), &mut bytes);
        batch.put(&code(name), &bytes);
    } else {
        batch.remove(&code(name));
    }
    node.links.commit(batch).unwrap();
}

fn filled(dir: &Path, links: usize) -> TestNode {
    let node = TestNode::new(dir, 2);
    put_all(&node, (0..links).map(|number| format!("c{number}")));
    node
}

fn filter_node(node: &TestNode, dir: &Path) -> FilterNode {
    FilterNode {
        links: node.links.clone(),
        mailboxes: node.mailboxes.clone(),
        hasher: node.hasher,
        cores: node.cores,
        stats: Arc::clone(&node.stats),
        data_dir: dir.to_owned(),
    }
}

fn setup(node: &TestNode, dir: &Path, origin: FilterOrigin) -> CodeFilterSetup {
    let core_stats = (0..node.cores.get()).map(|_| Arc::default()).collect();
    CodeFilterSetup { node: filter_node(node, dir), core_stats, origin, changes: node.links.changes() }
}

fn keeper(node: &TestNode, dir: &Path, origin: FilterOrigin) -> Keeper {
    Keeper::new(setup(node, dir, origin), Arc::default())
}

/// Writes the file, as the thread does when it is due.
fn seal(node: &TestNode, dir: &Path) {
    let mut keeper = keeper(node, dir, FilterOrigin::Scan);
    let links = node.links.approximate_len();
    assert!(keeper.bring_up_to_date(links, true).unwrap());
}

/// The filters that the cores have after the messages so far, and what they know of redirect rules.
struct Cores {
    filters: Vec<Option<CodeFilter>>,
    next: Vec<Option<CodeFilter>>,
    ruled: Option<Arc<RuledBits>>,
    loaded: usize,
}

impl Cores {
    fn new(node: &TestNode) -> Cores {
        let none = || node.cores.cores().map(|_| None).collect();
        Cores { filters: none(), next: none(), ruled: None, loaded: 0 }
    }

    /// Takes all mail, as `core::known_codes` does.
    fn take_mail(&mut self, node: &TestNode) {
        for (core, mail) in node.mail.iter().take(node.cores.get()).enumerate() {
            for message in mail.try_iter() {
                match message {
                    ToCore::StoredCodes(codes) => self.take(core, codes),
                    ToCore::LoadDone => self.loaded += 1,
                    _ => {}
                }
            }
        }
    }

    fn take(&mut self, core: usize, codes: StoredCodes) {
        match codes {
            StoredCodes::Await { codes } => {
                (self.filters[core], self.next[core]) = (None, Some(CodeFilter::with_capacity(codes)));
            }
            StoredCodes::Blocks(blocks) => {
                self.next[core].as_mut().unwrap().merge(blocks.first, &blocks.bytes, blocks.codes);
            }
            StoredCodes::Begin => _ = self.next[core].get_or_insert_with(|| CodeFilter::with_capacity(0)),
            StoredCodes::Some { hashes, .. } => {
                hashes.iter().for_each(|&hash| self.next[core].as_mut().unwrap().insert(hash));
            }
            StoredCodes::End { is_whole: true } => self.filters[core] = self.next[core].take(),
            StoredCodes::End { .. } => self.next[core] = None,
            StoredCodes::Ruled(bits) => {
                assert_eq!(core, 0);
                self.ruled = bits;
            }
        }
    }

    /// True if a request for a code gets 404 without a look into the store.
    fn deny(&self, node: &TestNode, name: &str) -> bool {
        let hash = node.hasher.hash(&code(name));
        let filter = &self.filters[owner(hash, node.cores).index()];
        filter.as_ref().is_some_and(|filter| !filter.may_hold(hash))
    }

    fn are_known(&self) -> bool {
        self.filters.iter().all(Option::is_some)
    }
}

/// Runs a start, and what the thread does first.
fn started(node: &TestNode, dir: &Path) -> (FilterOrigin, Cores) {
    let mut cores = Cores::new(node);
    let origin = load(&filter_node(node, dir)).unwrap();
    cores.take_mail(node);
    assert_eq!(cores.loaded, node.cores.get(), "the node serves");
    keeper(node, dir, origin).keep_file();
    cores.take_mail(node);
    (origin, cores)
}

fn assert_right(node: &TestNode, cores: &Cores, live: impl Iterator<Item = usize>) {
    assert!(cores.are_known());
    for number in live {
        assert!(!cores.deny(node, &format!("c{number}")), "c{number} exists");
    }
    let denied = (0..1_000).filter(|number| cores.deny(node, &format!("missing{number}"))).count();
    assert!(denied > 950, "{denied}");
}

#[test]
fn a_start_takes_filters_from_the_file_and_later_codes_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 5_000);
    seal(&node, dir.path());
    put(&node, "c5000");
    remove(&node, "c1", false);
    remove(&node, "c2", true);
    let (origin, cores) = started(&node, dir.path());
    assert_eq!(origin, FilterOrigin::File { changed: 3 });
    assert_right(&node, &cores, (0..1).chain(3..5_001));
}

#[test]
fn a_start_without_a_file_builds_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 5_000);
    put(&node, "ruled");
    let mut cores = Cores::new(&node);
    let origin = load(&filter_node(&node, dir.path())).unwrap();
    cores.take_mail(&node);
    assert!(!cores.are_known());
    assert!(cores.ruled.is_none());
    assert!(!cores.deny(&node, "missing"), "any code may exist");
    keeper(&node, dir.path(), origin).keep_file();
    cores.take_mail(&node);
    assert!(matches!(origin, FilterOrigin::Awaited { .. }));
    assert_right(&node, &cores, 0..5_000);
    assert!(cores.ruled.is_some());
    assert_eq!(started(&node, dir.path()).0, FilterOrigin::File { changed: 0 });
}

#[test]
fn any_changed_byte_is_noticed_and_the_file_is_built_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 3_000);
    seal(&node, dir.path());
    let path = filter_node(&node, dir.path()).path();
    let whole = std::fs::read(&path).unwrap();
    let strides = (0..whole.len()).step_by(whole.len() / 40);
    for at in (0..72).chain(4_088..4_120).chain(strides) {
        std::fs::write(&path, &whole).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[whole[at] ^ 4], at as u64).unwrap();
        let (_, cores) = started(&node, dir.path());
        assert_right(&node, &cores, 0..3_000);
        assert!(FilterFile::open(&path).unwrap().is_some(), "byte {at}");
    }
    for unusable in [&whole[..whole.len() - 1], &whole[..4_096], &[]] {
        std::fs::write(&path, unusable).unwrap();
        let (origin, cores) = started(&node, dir.path());
        assert!(matches!(origin, FilterOrigin::Awaited { .. }));
        assert_right(&node, &cores, 0..3_000);
    }
}

#[test]
fn pages_of_two_files_make_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 3_000);
    seal(&node, dir.path());
    let path = filter_node(&node, dir.path()).path();
    let before = std::fs::read(&path).unwrap();
    put(&node, "later");
    seal(&node, dir.path());
    let after = std::fs::read(&path).unwrap();
    let page = 4_096 + FILTER_PAGE_BYTES..4_096 + 2 * FILTER_PAGE_BYTES;
    let mixed = [&after[..page.start], &before[page.clone()], &after[page.end..]].concat();
    std::fs::write(&path, mixed).unwrap();
    let (origin, cores) = started(&node, dir.path());
    assert!(matches!(origin, FilterOrigin::Awaited { .. }));
    assert_right(&node, &cores, 0..3_000);
    assert!(!cores.deny(&node, "later"));
}

#[test]
fn a_file_of_another_store_number_of_cores_or_seed_is_not_used() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, mut second) = (filled(one.path(), 300), filled(other.path(), 200));
    seal(&first, one.path());
    let path = filter_node(&second, other.path()).path();
    std::fs::copy(filter_node(&first, one.path()).path(), &path).unwrap();
    let is_built = |node: &TestNode| {
        let (origin, cores) = started(node, other.path());
        assert_right(node, &cores, 0..200);
        matches!(origin, FilterOrigin::Awaited { .. })
    };
    assert!(is_built(&second));
    assert!(!is_built(&second));
    second.cores = CoreCount::new(1).unwrap();
    assert!(is_built(&second));
    second.hasher = CodeHasher::new(second.hasher.seed() + 1);
    assert!(is_built(&second));
    assert_eq!(hasher_of(other.path()).unwrap().seed(), second.hasher.seed());
}

#[test]
fn an_import_makes_the_file_unusable() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    seal(&node, dir.path());
    let (mut bytes, imported) = (Vec::new(), link("imported", Origin::Custom));
    record::encode_link(b"imported", &imported, &mut bytes);
    node.links.ingest([(&b"imported"[..], &bytes[..])].into_iter()).unwrap();
    let (origin, cores) = started(&node, dir.path());
    assert!(matches!(origin, FilterOrigin::Awaited { .. }));
    assert!(!cores.deny(&node, "imported"));
    assert_right(&node, &cores, 0..300);
}

#[test]
fn links_with_rules_are_known_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    put(&node, "ruled1");
    seal(&node, dir.path());
    put(&node, "ruled2");
    let (_, cores) = started(&node, dir.path());
    let mut expected = RuledBits::default();
    for name in ["ruled1", "ruled2"] {
        expected.mark(node.hasher.hash(&code(name)));
    }
    assert_eq!(cores.ruled.as_deref(), Some(&expected));
    seal(&node, dir.path());
    let file = FilterFile::open(&filter_node(&node, dir.path()).path()).unwrap().unwrap();
    assert_eq!(file.ruled().unwrap(), expected);
    assert_eq!(file.head.key.position, node.links.log_position());
}

#[test]
fn a_file_of_mostly_removed_links_is_built_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 2_000);
    seal(&node, dir.path());
    let head = || FilterFile::open(&filter_node(&node, dir.path()).path()).unwrap().unwrap().head;
    assert_eq!((head().stale, head().codes > 1_950), (0, true));
    (0..1_500).for_each(|number| remove(&node, &format!("c{number}"), number % 2 == 0));
    seal(&node, dir.path());
    assert_eq!(head().stale, 1_500);
    seal(&node, dir.path());
    assert_eq!((head().stale, head().codes <= 500), (0, true));
    let (_, cores) = started(&node, dir.path());
    assert_right(&node, &cores, 1_500..2_000);
}

#[test]
fn what_the_file_has_is_durable_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    let store = dir.path().join("links");
    let journal = carom_store::journal::journals(&store).unwrap().pop().expect("a store has a journal");
    let synced = || carom_store::journal::mark::read(&store).unwrap().expect("a store has a mark").len;
    let written = carom_store::journal::written_len(&std::fs::read(journal).unwrap()) as u64;
    assert!(synced() < written, "the links are not synced yet");
    seal(&node, dir.path());
    assert!(synced() >= written);
}

#[test]
fn without_room_for_a_file_the_cores_get_codes_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    let origin = load(&filter_node(&node, dir.path())).unwrap();
    let mut cores = Cores::new(&node);
    cores.take_mail(&node);
    let mut keeper = keeper(&node, dir.path(), origin);
    // No file can be created there.
    keeper.path = dir.path().join("nowhere").join("links.filter");
    keeper.keep_file();
    cores.take_mail(&node);
    assert!(keeper.awaited.is_none());
    assert_right(&node, &cores, 0..300);
    assert_eq!(cores.ruled.as_deref(), Some(&RuledBits::default()), "no link has rules");
}

#[test]
fn unfinished_files_of_a_killed_process_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    let left = ["links.filter.new", "links.filter.sort"].map(|name| dir.path().join(name));
    left.iter().for_each(|path| std::fs::write(path, "half of a file").unwrap());
    start(setup(&node, dir.path(), FilterOrigin::Scan)).unwrap().stop();
    assert!(left.iter().all(|path| !path.exists()));
}

#[test]
fn a_full_disk_gets_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    seal(&node, dir.path());
    put(&node, "later");
    let mut keeper = keeper(&node, dir.path(), FilterOrigin::Scan);
    let before = std::fs::read(&keeper.path).unwrap();
    // This file system has no space at all.
    keeper.disk = DiskGuard::new("/proc".into());
    for is_worn in [false, true] {
        keeper.is_worn = is_worn;
        let links = node.links.approximate_len();
        assert!(matches!(keeper.bring_up_to_date(links, true), Err(NotWritten::Failed(_))), "{is_worn}");
        assert_eq!(std::fs::read(&keeper.path).unwrap(), before);
    }
}

#[test]
fn links_with_rules_become_known_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    put(&node, "ruled");
    seal(&node, dir.path());
    let mut cores = Cores::new(&node);
    let origin = load(&filter_node(&node, dir.path())).unwrap();
    cores.take_mail(&node);
    assert_eq!(origin, FilterOrigin::File { changed: 0 });
    let mut keeper = keeper(&node, dir.path(), origin);
    // There is no file, and none can be created.
    keeper.path = dir.path().join("nowhere").join("links.filter");
    keeper.keep_file();
    cores.take_mail(&node);
    let mut expected = RuledBits::default();
    expected.mark(node.hasher.hash(&code("ruled")));
    assert_eq!(cores.ruled.as_deref(), Some(&expected));
    assert!(!keeper.owes_ruled);
    assert_right(&node, &cores, 0..300);
}

#[test]
fn codes_are_not_sent_twice_while_filters_are_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    let origin = load(&filter_node(&node, dir.path())).unwrap();
    Cores::new(&node).take_mail(&node);
    let mut keeper = keeper(&node, dir.path(), origin);
    keeper.core_stats[0].wants_codes.set(1);
    keeper.look();
    assert!(node.mail.iter().take(node.cores.get()).all(|mail| mail.try_recv().is_err()));
}

#[test]
fn every_code_of_a_link_comes_to_its_owner_and_those_of_tombstones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 3 * CODES_SENT_TOGETHER);
    remove(&node, "gone", true);
    let expected: HashSet<CodeHash> =
        (0..3 * CODES_SENT_TOGETHER).map(|number| node.hasher.hash(&code(&format!("c{number}")))).collect();
    let mut keeper = keeper(&node, dir.path(), FilterOrigin::Scan);
    let core_stats = Arc::clone(&keeper.core_stats);
    keeper.look();
    assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "no core wants them");
    core_stats[1].wants_codes.set(1);
    let sender = std::thread::spawn(move || {
        keeper.look();
        keeper
    });
    let mut seen = HashSet::new();
    for (core, mail) in node.mail.iter().take(2).enumerate() {
        assert!(matches!(mail.recv(), Ok(ToCore::StoredCodes(StoredCodes::Begin))));
        loop {
            match mail.recv().expect("an end") {
                ToCore::StoredCodes(StoredCodes::Some { hashes, .. }) => {
                    let is_owned = |hash: &CodeHash| owner(*hash, node.cores).index() == core;
                    assert!(hashes.iter().all(is_owned));
                    seen.extend(hashes);
                }
                ToCore::StoredCodes(StoredCodes::End { is_whole }) => break assert!(is_whole),
                other => panic!("{other:?}"),
            }
        }
    }
    let mut keeper = sender.join().unwrap();
    assert_eq!(seen, expected);
    // The alarm clears once no core is in doubt.
    node.stats.alarms.raise(Alarm::MemoryLimitLow, String::new());
    core_stats[0].lacks_filter.set(1);
    core_stats[1].wants_codes.set(0);
    keeper.look();
    assert!(node.stats.alarms.is_on(Alarm::MemoryLimitLow));
    core_stats[0].lacks_filter.set(0);
    keeper.look();
    assert!(!node.stats.alarms.is_on(Alarm::MemoryLimitLow));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Starts deny no code that exists, in any order of changes, files, damage, kills and starts.
    #[test]
    fn no_start_denies_a_code_that_exists(
        steps in proptest::collection::vec((0..16_usize, 0..20_u8, any::<u32>()), 1..50),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut node, mut live) = (TestNode::new(dir.path(), 2), BTreeSet::new());
        let path = filter_node(&node, dir.path()).path();
        for (number, step, place) in steps {
            match step {
                0 => {
                    drop(node);
                    node = TestNode::new(dir.path(), 2);
                }
                1..=3 => seal(&node, dir.path()),
                4 => {
                    if let Ok(file) = File::options().read(true).write(true).open(&path) {
                        let (mut byte, at) = ([0], u64::from(place) % file.metadata().unwrap().len());
                        file.read_exact_at(&mut byte, at).unwrap();
                        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                    }
                }
                5..=8 => {
                    remove(&node, &format!("c{number}"), step == 5);
                    live.remove(&number);
                }
                9..=11 => {
                    let (_, cores) = started(&node, dir.path());
                    assert_right(&node, &cores, live.iter().copied());
                }
                _ => {
                    put(&node, &format!("c{number}"));
                    live.insert(number);
                }
            }
        }
        let (_, cores) = started(&node, dir.path());
        assert_right(&node, &cores, live.iter().copied());
    }
}
