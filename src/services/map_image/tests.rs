//! Tests of images against the store that they were made from.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use carom_shards::map::sealed::index_order;
use carom_shards::{Policy, owner};
use proptest::prelude::*;

use super::*;
use crate::bridge::{LoadedPage, ToCore};
use crate::services::derived::sealed_file::Unusable;
use crate::services::loader::{self, LoadPace, LoadReport};
use crate::services::testing::TestNode;
use carom_limits::IMAGE_PART_BYTES;
use carom_model::link::{Link, Origin};
use carom_model::testing::link;
use carom_store::journal::{journals, mark, written_len};

type Targets = BTreeMap<String, String>;

fn put(node: &TestNode, slug: &str, target: &str) {
    put_all(node, std::iter::once((slug.to_owned(), target.to_owned())));
}

fn put_all(node: &TestNode, links: impl Iterator<Item = (String, String)>) {
    let (mut batch, mut record) = (node.links.batch(), Vec::new());
    for (slug, target) in links {
        let mut link = Link { target, ..link(&slug, Origin::Custom) };
        link.labels.title = Some(format!("title of {slug}"));
        record.clear();
        record::encode_link(slug.as_bytes(), &link, &mut record);
        batch.put(&link.code, &record);
    }
    node.links.commit(batch).unwrap();
}

fn remove(node: &TestNode, slug: &str, leaves_tombstone: bool) {
    let (mut batch, code) = (node.links.batch(), Code::parse(slug.as_bytes()).unwrap());
    if leaves_tombstone {
        let mut record = Vec::new();
        record::encode_tombstone(slug.as_bytes(), &carom_model::testing::tombstone(), &mut record);
        batch.put(&code, &record);
    } else {
        batch.remove(&code);
    }
    node.links.commit(batch).unwrap();
}

fn maker(node: &TestNode, dir: &Path) -> Maker {
    Maker {
        links: node.links.clone(),
        hasher: node.hasher,
        cores: node.cores,
        path: dir.join(FILE_NAME),
        disk: DiskGuard::new(dir.to_owned()),
        made_at: None,
        pauses: true,
        stop: Arc::default(),
        hold: Arc::default(),
    }
}

fn make(node: &TestNode, dir: &Path) -> u64 {
    maker(node, dir).make().unwrap_or_else(|_| panic!("the image was not made")).0
}

/// Returns the destinations in the store.
fn stored(node: &TestNode) -> Targets {
    let mut targets = Targets::new();
    for part in key_ranges() {
        let unread = node.links.scan(part, |key, value| {
            if let Ok(RecordRef::Link(link)) = record::decode(key, value) {
                targets.insert(String::from_utf8(key.to_vec()).unwrap(), link.target.to_owned());
            }
            true
        });
        assert!(unread.unwrap().is_empty());
    }
    targets
}

/// Runs a start and returns the links that the cores receive. After an unusable image, a record may come twice with the
/// same destination.
fn loaded(node: &TestNode, dir: &Path) -> (LoadReport, Targets) {
    let report =
        loader::load(&node.links, &node.mailboxes, node.hasher, node.cores, &node.stats, (dir, LoadPace::Full))
            .unwrap();
    let targets = RefCell::new(Targets::new());
    let add = |code: Code, target: &str| {
        let before = targets.borrow_mut().insert(code.to_string(), target.to_owned());
        assert!(before.is_none_or(|before| before == target), "{code} has two destinations");
    };
    for (core, mail) in node.mail.iter().enumerate() {
        let is_own = |code: &Code| owner(node.hasher.hash(code), node.cores).index() == core;
        let add_page = |loaded: &LoadedPage, is_shared: bool| {
            for (code, entry) in loaded.page.records() {
                assert!(is_shared || is_own(&code));
                let MapEntry::Link { target, .. } = entry else { continue };
                if is_own(&code) && !loaded.changed.has(&code, node.hasher.hash(&code)) {
                    add(code, std::str::from_utf8(target).unwrap());
                }
            }
        };
        for message in mail.try_iter() {
            match message {
                ToCore::LoadPage(loaded) => add_page(&loaded, false),
                ToCore::LoadShared(loaded) => add_page(&loaded, true),
                ToCore::Load(batch) => {
                    for (key, value) in batch.iter() {
                        let code = Code::from_key(key).unwrap();
                        assert!(is_own(&code));
                        let Ok(RecordRef::Link(link)) = record::decode(key, value) else { panic!("{code}") };
                        add(code, link.target);
                    }
                }
                _ => {}
            }
        }
    }
    (report, targets.into_inner())
}

fn filled(dir: &Path, links: usize) -> TestNode {
    let node = TestNode::new(dir, 2);
    put_all(&node, (0..links).map(|number| (format!("c{number}"), format!("https://example.org/{number:0>120}"))));
    node
}

#[test]
fn links_come_from_the_image_and_changes_since_from_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 5_000);
    remove(&node, "c9", true);
    assert_eq!(make(&node, dir.path()), 4_999);
    put(&node, "c1", "https://example.org/new");
    put(&node, "later", "https://example.org/later");
    remove(&node, "c2", false);
    remove(&node, "c3", true);
    let (report, targets) = loaded(&node, dir.path());
    // The image has three changed links as they were before; two of them come from the store as they are now.
    assert_eq!((report.replayed, report.records), (Some(4), 4_999 + 2));
    assert_eq!(targets, stored(&node));
    assert_eq!(targets["c1"], "https://example.org/new");
}

#[test]
fn any_changed_byte_is_noticed_and_all_links_come_from_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 5_000);
    make(&node, dir.path());
    let (path, whole) = (dir.path().join(FILE_NAME), std::fs::read(dir.path().join(FILE_NAME)).unwrap());
    let expected = stored(&node);
    let strides = (0..whole.len()).step_by(whole.len() / 60);
    for at in (0..48).chain(4_080..4_140).chain(strides) {
        std::fs::write(&path, &whole).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[whole[at] ^ 4], at as u64).unwrap();
        let (report, targets) = loaded(&node, dir.path());
        assert_eq!((report.replayed, report.records), (None, 5_000), "byte {at}");
        assert_eq!(targets, expected, "byte {at}");
        assert!(!path.exists(), "byte {at}: a damaged image is removed");
    }
}

#[test]
fn an_image_that_is_cut_off_or_put_together_of_two_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 5_000);
    let path = dir.path().join(FILE_NAME);
    make(&node, dir.path());
    let before = std::fs::read(&path).unwrap();
    put(&node, "c1", "https://example.org/new");
    make(&node, dir.path());
    let after = std::fs::read(&path).unwrap();
    assert_eq!(before.len(), after.len());
    let block = 4_096..4_096 + carom_shards::map::sealed::PAGE_BYTES;
    let mixed = [&after[..block.start], &before[block.clone()], &after[block.end..]].concat();
    let swapped = {
        let mut blocks = after.clone();
        let (first, second) = blocks[block.start..].split_at_mut(block.len());
        first.swap_with_slice(&mut second[..block.len()]);
        blocks
    };
    let longer = [&after[..], &[0]].concat();
    for unusable in [mixed, swapped, longer, after[..after.len() - 1].to_vec(), after[..4_096].to_vec(), Vec::new()] {
        std::fs::write(&path, unusable).unwrap();
        let (report, targets) = loaded(&node, dir.path());
        assert_eq!(report.replayed, None);
        assert_eq!(targets, stored(&node));
    }
}

#[test]
fn a_page_of_an_image_of_other_owners_is_damaged() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut node = filled(dir.path(), 5_000);
    make(&node, dir.path());
    node.cores = CoreCount::new(1).unwrap();
    make(&node, other.path());
    node.cores = CoreCount::new(2).unwrap();
    let page = 4_096..4_096 + carom_shards::map::sealed::PAGE_BYTES;
    let foreign = std::fs::read(other.path().join(FILE_NAME)).unwrap();
    let mut image = std::fs::read(dir.path().join(FILE_NAME)).unwrap();
    image[page.clone()].copy_from_slice(&foreign[page]);
    std::fs::write(dir.path().join(FILE_NAME), image).unwrap();
    let (report, targets) = loaded(&node, dir.path());
    assert_eq!((report.replayed, targets), (None, stored(&node)));
}

#[test]
fn a_header_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    make(&node, dir.path());
    let path = dir.path().join(FILE_NAME);
    let whole = std::fs::read(&path).unwrap();
    // Numbers of records, pages and cores.
    for (at, number) in [(24, u64::MAX), (24, 100_000), (32, u64::MAX), (32, 1 << 45), (48, 0), (48, u64::MAX)] {
        let mut image = whole.clone();
        image[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&image[..4_088], 0);
        image[4_088..4_096].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, image).unwrap();
        assert!(matches!(Image::open(&path), Err(Unusable::Damaged(_))), "{number} at {at}");
    }
}

#[test]
fn what_an_image_has_is_durable_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 300);
    let store = dir.path().join("links");
    let journal = journals(&store).unwrap().pop().expect("a store has a journal");
    let synced = || mark::read(&store).unwrap().expect("a store has a mark").len;
    let written = written_len(&std::fs::read(journal).unwrap()) as u64;
    assert!(synced() < written, "nobody has synced the links yet");
    make(&node, dir.path());
    assert!(synced() >= written);
}

#[test]
fn an_image_of_another_store_or_of_the_future_is_not_used() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (filled(one.path(), 300), filled(other.path(), 200));
    make(&first, one.path());
    std::fs::copy(one.path().join(FILE_NAME), other.path().join(FILE_NAME)).unwrap();
    let (report, targets) = loaded(&second, other.path());
    assert_eq!((report.replayed, targets.len()), (None, 200));
}

#[test]
fn an_image_of_another_number_of_cores_comes_to_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = filled(dir.path(), 5_000);
    make(&node, dir.path());
    put(&node, "c1", "https://example.org/new");
    for cores in [1, 3] {
        drop(node);
        node = TestNode::new(dir.path(), cores);
        let (report, targets) = loaded(&node, dir.path());
        assert_eq!((report.replayed, report.records, report.is_of_other_cores), (Some(1), 5_001, true));
        assert_eq!(targets, stored(&node));
    }
}

#[test]
fn an_image_in_another_order_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = filled(dir.path(), 300);
    make(&node, dir.path());
    assert_eq!(hasher_of(dir.path()).unwrap().seed(), node.hasher.seed());
    node.hasher = CodeHasher::new(node.hasher.seed() + 1);
    let (report, targets) = loaded(&node, dir.path());
    assert_eq!((report.replayed, targets), (None, stored(&node)));
}

#[test]
fn parts_are_sorted_by_owner_and_index() {
    const LINKS: usize = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let (hasher, cores) = (CodeHasher::new(3), CoreCount::new(3).unwrap());
    let mut sorter = Sorter::new(&dir.path().join(FILE_NAME), hasher, cores, LINKS, 128).unwrap();
    let (mut codes, mut written) = (Vec::new(), 0);
    for number in 0..20_000 {
        let (code, target) =
            (Code::parse(format!("c{number}").as_bytes()).unwrap(), format!("https://x.org/{number:0>99}"));
        written +=
            sorter.push(&code, &MapEntry::Link { policy: Policy::default(), target: target.as_bytes() }).unwrap();
        codes.push(code);
    }
    assert!(written > 1_000_000, "most records have been in the file");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    let place = |code: &Code| {
        let hash = hasher.hash(code);
        (owner(hash, cores), index_order(hash, LINKS / 3))
    };
    let (mut sorted, mut begun) = (Vec::new(), 0);
    while let Some(part) = sorter.next_part().unwrap() {
        begun += usize::from(part.begins_core);
        sorted.extend(part.records().map(|record| record.code().unwrap()));
    }
    assert_eq!(begun, 3);
    assert!(sorted.is_sorted_by_key(place));
    sorted.sort_unstable();
    codes.sort_unstable();
    assert_eq!(sorted, codes);
}

#[test]
fn memory_for_sorting_is_bounded_for_long_links_too() {
    const LINKS: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 2);
    put_all(&node, (0..LINKS).map(|number| (format!("c{number}"), format!("https://x.org/{number:0>1990}"))));
    let mut sorter = maker(&node, dir.path()).sorter().unwrap_or_else(|_| panic!("there is no sorter"));
    for number in 0..LINKS {
        let code = Code::parse(format!("c{number}").as_bytes()).unwrap();
        let target = format!("https://x.org/{number:0>1990}");
        sorter.push(&code, &MapEntry::Link { policy: Policy::default(), target: target.as_bytes() }).unwrap();
    }
    let mut largest = 0;
    while let Some(part) = sorter.next_part().unwrap() {
        largest = largest.max(part.records().map(|record| record.bytes().len()).sum());
    }
    assert!(largest < 2 * IMAGE_PART_BYTES as usize, "{largest}");
}

#[test]
fn a_damaged_record_is_in_the_image_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 100);
    let mut batch = node.links.batch();
    batch.put(&Code::parse(b"broken").unwrap(), b"no record at all");
    node.links.commit(batch).unwrap();
    assert_eq!(make(&node, dir.path()), 101);
    let report =
        loader::load(&node.links, &node.mailboxes, node.hasher, node.cores, &node.stats, (dir.path(), LoadPace::Full))
            .unwrap();
    assert_eq!((report.replayed, report.records), (Some(0), 101));
}

#[test]
fn a_record_that_was_damaged_when_the_image_was_made_is_taken_from_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 100);
    // As a version of the program does that cannot read a record of a later one.
    let path = dir.path().join(FILE_NAME);
    let mut writer = ImageWriter::begin(&path, node.links.log_position(), node.hasher, node.cores).unwrap();
    let mut sorter = Sorter::new(&path, node.hasher, node.cores, 100, 128).unwrap();
    for number in 0..100 {
        let (code, target) =
            (Code::parse(format!("c{number}").as_bytes()).unwrap(), format!("https://example.org/{number:0>120}"));
        let link = MapEntry::Link { policy: Policy::default(), target: target.as_bytes() };
        sorter.push(&code, if number % 9 == 0 { &MapEntry::Damaged } else { &link }).unwrap();
    }
    while let Some(part) = sorter.next_part().unwrap() {
        if part.begins_core {
            writer.end_page().unwrap();
        }
        part.records().for_each(|record| _ = writer.push(record).unwrap());
    }
    writer.finish().unwrap();
    for cores in [2, 3] {
        let node = TestNode { links: node.links.clone(), ..TestNode::new(&dir.path().join("other"), cores) };
        let (report, targets) = loaded(&node, dir.path());
        assert_eq!((report.replayed, report.records), (Some(0), 100));
        assert_eq!(targets, stored(&node));
    }
}

#[test]
fn an_image_that_cannot_get_its_name_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(&dir.path().join("data"), 300);
    // A directory that is not empty is in the way.
    std::fs::create_dir_all(dir.path().join(FILE_NAME).join("something")).unwrap();
    assert!(maker(&node, dir.path()).make().is_err());
    assert!(!dir.path().join("links.image.new").exists());
}

#[test]
fn what_a_killed_process_left_behind_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(&dir.path().join("data"), 300);
    let left = ["links.image.new", "links.image.sort"].map(|name| dir.path().join(name));
    left.iter().for_each(|path| std::fs::write(path, "half of an image").unwrap());
    let setup = ImageSetup {
        links: node.links.clone(),
        hasher: node.hasher,
        cores: node.cores,
        data_dir: dir.path().to_owned(),
        replayed: None,
        changes: 0,
    };
    start(setup).unwrap().stop();
    assert!(left.iter().all(|path| !path.exists()));
}

#[test]
fn no_image_is_left_or_made_during_a_purge() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 100);
    make(&node, dir.path());
    let mut maker = maker(&node, dir.path());
    assert!(dir.path().join(FILE_NAME).exists());
    maker.hold.hold();
    assert!(!maker.hold.is_removed());
    assert!(!maker.look());
    assert!(maker.hold.is_removed());
    assert!(!dir.path().join(FILE_NAME).exists());
    assert!(matches!(maker.make(), Err(NotWritten::Stopped)));
    maker.hold.release();
    assert!(maker.make().is_ok());
    assert!(dir.path().join(FILE_NAME).exists());
}

#[test]
fn an_image_is_made_when_there_are_many_links_and_again_when_many_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    let node = filled(dir.path(), 1_000);
    let mut maker = maker(&node, dir.path());
    let made = || dir.path().join(FILE_NAME).metadata().and_then(|metadata| metadata.modified()).ok();
    maker.look();
    assert_eq!(made(), None, "so few links are loaded from the store as fast");
    let many = |from: usize, to: usize| {
        put_all(&node, (from..to).map(|number| (format!("m{number}"), "https://example.org/".to_owned())));
    };
    many(0, IMAGE_LINKS_MIN);
    maker.look();
    let first = made().expect("there are many links");
    many(0, 10);
    maker.look();
    assert_eq!(made(), Some(first));
    many(0, IMAGE_CHANGES_MIN as usize);
    maker.look();
    assert_ne!(made(), Some(first));
    assert!(!dir.path().join("links.image.new").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_start_loads_what_the_store_has(steps in proptest::collection::vec((0..30_u8, 0..16_u8), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let mut node = TestNode::new(dir.path(), 2);
        for (round, (number, step)) in steps.into_iter().enumerate() {
            let slug = format!("c{number}");
            match step {
                0 => {
                    drop(node);
                    node = TestNode::new(dir.path(), 2);
                }
                1 | 2 => _ = make(&node, dir.path()),
                3..=5 => remove(&node, &slug, step == 3),
                6..=8 => {
                    let (_, targets) = loaded(&node, dir.path());
                    prop_assert_eq!(targets, stored(&node));
                }
                _ => put(&node, &slug, &format!("https://example.org/{round}")),
            }
        }
        let (_, targets) = loaded(&node, dir.path());
        prop_assert_eq!(targets, stored(&node));
    }
}
