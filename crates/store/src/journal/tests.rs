//! Tests of journals after crashes and damage.

use super::mark::{JournalPosition, SyncedMark};
use super::repair::{LINKS_KEYSPACE, links_keyspace, push_batch, read_sparse, recover_items, repair_all};
use super::*;
use carom_limits::TORN_WRITES_KEPT;
use carom_model::link::record;
use carom_shards::Code;
use proptest::prelude::*;

fn an_item(key: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    record::encode_tombstone(key, &carom_model::testing::tombstone(), &mut value);
    item_of(key, &value)
}

fn item_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![TAG_ITEM, KIND_VALUE, UNCOMPRESSED];
    out.extend_from_slice(&LINKS_KEYSPACE.to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    out
}

/// Returns a journal of three batches with two items each, then zeros.
fn journal() -> Vec<u8> {
    let mut out = Vec::new();
    for batch in 0..3u64 {
        let items: Vec<_> = (0..2).map(|n| an_item(format!("key{batch}{n}").as_bytes())).collect();
        push_batch(&mut out, &items, 10 + 2 * batch);
    }
    out.resize(out.len() + 5_000, 0);
    out
}

fn keys(bytes: &[u8]) -> usize {
    recover_items(bytes, &(0..bytes.len()), LINKS_KEYSPACE).whole.len()
}

#[test]
fn filled_bytes_end_behind_the_last_one() {
    for len in [0, 1, 4_095, 4_096, 4_097, 12_300_usize] {
        for last in [None, Some(0), Some(len / 2), len.checked_sub(1)] {
            let mut bytes = vec![0; len];
            let last = last.filter(|last| *last < len);
            if let Some(last) = last {
                bytes[last] = 1;
            }
            assert_eq!(filled_len(&bytes), last.map_or(0, |last| last + 1), "{last:?} of {len}");
        }
    }
}

#[test]
fn sparse_file_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.jnl");
    let file = File::create(&path).unwrap();
    for len in [0, 1, 300_000, 1 << 20] {
        file.set_len(len).unwrap();
        assert_eq!(read_sparse(&path).unwrap(), vec![0; len as usize]);
    }
    for at in [0, (1 << 18) - 1, 1 << 18, 700_000, (1 << 20) - 1] {
        file.write_all_at(b"x", at).unwrap();
        assert!(read_sparse(&path).unwrap() == fs::read(&path).unwrap(), "with a byte at {at}");
    }
}

/// Returns the number of bytes that this thread has read.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn holes_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.jnl");
    let file = File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    for at in [0, 32 << 20] {
        file.write_all_at(b"x", at).unwrap();
    }
    let before = bytes_read();
    assert_eq!(read_sparse(&path).unwrap().len(), 64 << 20);
    let read = bytes_read() - before;
    assert!(read < 2 << 20, "{read} bytes");
}

proptest! {
    #[test]
    fn walking_is_total(bytes in proptest::collection::vec(0u8..5, 0..300)) {
        let walk = walk(&bytes, 0);
        prop_assert!(walk.broken.iter().all(|range| range.end <= bytes.len()));
    }

    #[test]
    fn a_flipped_byte_costs_at_most_its_own_record(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.jnl");
        let mut bytes = journal();
        let at = at.index(written_len(&bytes));
        bytes[at] ^= flip;
        fs::write(&path, &bytes).unwrap();
        let repairs = repair_all(dir.path()).unwrap();
        let repaired = fs::read(&path).unwrap();
        // A wrong sequence number that still increases is harmless; any other wrong byte is noticed.
        prop_assert!(repairs.len() == 1 || keys(&repaired) == 6);
        prop_assert!(keys(&repaired) >= 5, "{} of 6 at {}", keys(&repaired), at);
        prop_assert!(walk(&repaired, 0).broken.is_empty());
        let numbers: Vec<u64> = walk(&repaired, 0).batches.iter().map(|batch| batch.seqno).collect();
        prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{:?}", numbers);
        prop_assert!(repair_all(dir.path()).unwrap().is_empty());
    }
}

#[test]
fn a_number_that_falls_among_earlier_ones_costs_nothing() {
    let bytes = journal();
    let third = walk(&bytes, 0).batches[2].bytes.start;
    // The batches have the numbers 10, 12 and 14.
    for number in 0..=20u64 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.jnl");
        let mut bytes = bytes.clone();
        bytes[third + 5..third + START_LEN].copy_from_slice(&number.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        repair_all(dir.path()).unwrap();
        let repaired = fs::read(&path).unwrap();
        assert_eq!(keys(&repaired), 6, "{number}");
        let numbers: Vec<u64> = walk(&repaired, 0).batches.iter().map(|batch| batch.seqno).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{number}: {numbers:?}");
    }
}

#[test]
fn what_cannot_be_read_is_kept_under_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.jnl");
    let mut bytes = journal();
    let key = place_of(&bytes, "key11");
    damage(&mut bytes, "key11");
    fs::write(&path, &bytes).unwrap();
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert_eq!((repair.recovered, repair.unreadable.len(), repair.is_damage), (1, 1, true));
    let repaired = fs::read(&path).unwrap();
    assert!(walk(&repaired, 0).broken.is_empty());
    let kept = repaired.windows(5).position(|window| window == b"key11").unwrap();
    let value = &bytes[key + 5..][..an_item(b"key11").len() - ITEM_HEAD_LEN - 5];
    assert!(repaired[kept + 5..].starts_with(value), "what is left of it is there");
    assert!(record::decode(b"key11", value).is_err());
    // An inconsistent head of an otherwise whole item is corrected: its kind, a length, the keyspace, or the
    // compression.
    for at in [1, 2, 3, 13] {
        let mut bytes = journal();
        let key = bytes.windows(5).position(|window| window == b"key11").unwrap();
        bytes[key - ITEM_HEAD_LEN + at] ^= 0x40;
        // The checksum is a second wrong part, so that the batch cannot be corrected as a whole.
        let end = walk(&journal(), 0).batches[1].bytes.end;
        bytes[end - 6] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(repair_all(dir.path()).unwrap()[0].recovered, 2);
        let repaired = fs::read(&path).unwrap();
        assert!(repaired.windows(an_item(b"key11").len()).any(|window| window == an_item(b"key11")), "byte {at}");
    }
    // The same damage after the last whole batch is what a crash leaves.
    let mut bytes = journal();
    damage(&mut bytes, "key21");
    fs::write(&path, &bytes).unwrap();
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert_eq!((repair.recovered, repair.unreadable.len(), repair.is_damage), (1, 0, false));
    assert_eq!(repair.dropped, [Code::parse(b"key21").unwrap()]);
}

#[test]
fn records_of_a_later_version_are_recovered() {
    let mut value = Vec::new();
    record::encode_tombstone(b"key01", &carom_model::testing::tombstone(), &mut value);
    record::make_newer(b"key01", &mut value);
    let mut bytes = Vec::new();
    push_batch(&mut bytes, &[an_item(b"key00"), item_of(b"key01", &value)], 10);
    assert_eq!(keys(&bytes), 2, "a later version can read what this one cannot");
}

#[test]
fn a_whole_journal_is_left_alone_and_a_torn_end_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.jnl");
    let whole = journal();
    fs::write(&path, &whole).unwrap();
    assert_eq!(repair_all(dir.path()).unwrap(), []);
    assert_eq!(fs::read(&path).unwrap(), whole);
    let torn = &whole[..written_len(&whole) - 1];
    fs::write(&path, torn).unwrap();
    let repairs = repair_all(dir.path()).unwrap();
    assert!(!repairs[0].is_damage);
    let kept = fs::read(repairs[0].kept_file.as_ref().unwrap()).unwrap();
    assert_eq!(kept, torn[walk(torn, 0).broken[0].clone()], "the cut bytes are kept");
    assert_eq!(repairs[0].recovered, 2);
    assert_eq!(keys(&fs::read(&path).unwrap()), 6);
}

/// Creates a store's directory with one journal. Returns the end of each of its batches, too.
fn a_store(bytes: &[u8]) -> (tempfile::TempDir, PathBuf, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.jnl");
    fs::write(&path, bytes).unwrap();
    let ends = walk(bytes, 0).batches.iter().map(|batch| batch.bytes.end).collect();
    (dir, path, ends)
}

fn place_of(bytes: &[u8], key: &str) -> usize {
    bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap()
}

/// Flips a bit in two bytes of the value under a key.
fn damage(bytes: &mut [u8], key: &str) {
    let value = place_of(bytes, key) + key.len();
    bytes[value + 12] ^= 1;
    bytes[value + 14] ^= 1;
}

fn set_mark(dir: &Path, journal: u64, len: usize, seqno: u64) {
    mark::write(dir, JournalPosition { journal, len: len as u64, seqno }).unwrap();
}

#[test]
fn below_the_mark_a_broken_last_batch_is_damage() {
    let mut bytes = journal();
    damage(&mut bytes, "key21");
    let (dir, path, _) = a_store(&bytes);
    set_mark(dir.path(), 0, written_len(&journal()), 14);
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert!(repair.is_damage);
    assert_eq!((repair.recovered, &repair.unreadable[..]), (1, &[Code::parse(b"key21").unwrap()][..]));
    let kept = repair.kept_file.clone().unwrap();
    assert_eq!(fs::read(&kept).unwrap(), bytes, "the damaged journal");
    let text = repair.to_string();
    for part in [&path.display().to_string(), "(key21)", &format!("is kept as {}", kept.display())] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let repaired = fs::read(&path).unwrap();
    let numbers: Vec<u64> = walk(&repaired, 0).batches.iter().map(|batch| batch.seqno).collect();
    assert_eq!(numbers, [10, 12, 14], "what was saved takes the number of its batch");
    // The mark describes the new file, and nothing is reported twice.
    let mark = mark::read(dir.path()).unwrap().unwrap();
    assert_eq!(mark, JournalPosition { journal: 0, len: repaired.len() as u64, seqno: 14 });
    assert_eq!(repair_all(dir.path()).unwrap(), []);
}

#[test]
fn below_the_mark_zeros_and_missing_bytes_are_damage() {
    let bytes = journal();
    let end = written_len(&bytes);
    let last = walk(&bytes, 0).batches[2].bytes.len();
    for cut in [1, END_LEN, last, 200] {
        let mut zeros = bytes.clone();
        zeros[end - cut..].fill(0);
        for (left, missing) in [(zeros, 0), (bytes[..end - cut].to_vec(), cut as u64)] {
            let (dir, _, _) = a_store(&left);
            set_mark(dir.path(), 0, end, 14);
            let repair = repair_all(dir.path()).unwrap().remove(0);
            assert_eq!((repair.is_damage, repair.missing), (true, missing));
            assert_eq!(repair_all(dir.path()).unwrap(), []);
        }
    }
    // Whole batches are missing, and the rest is intact.
    let (dir, _, ends) = a_store(&bytes);
    fs::write(dir.path().join("0.jnl"), &bytes[..ends[1]]).unwrap();
    set_mark(dir.path(), 0, end, 14);
    assert!(repair_all(dir.path()).unwrap()[0].is_damage);
    // The journal itself is missing.
    let (dir, path, _) = a_store(&bytes);
    set_mark(dir.path(), 1, 50, 14);
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert_eq!((repair.path, repair.missing), (dir.path().join("1.jnl"), 50));
    assert_eq!(repair_all(dir.path()).unwrap(), []);
    assert_eq!(fs::read(path).unwrap(), bytes);
}

#[test]
fn above_the_mark_a_torn_batch_hides_no_older_record() {
    // Power failed before a sync of the last two batches: the disk has the last one, but not all of the one before.
    let mut bytes = journal();
    damage(&mut bytes, "key11");
    let (dir, path, _) = a_store(&bytes);
    set_mark(dir.path(), 0, walk(&journal(), 0).batches[0].bytes.end, 10);
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert!(!repair.is_damage);
    assert_eq!((&repair.unreadable[..], repair.dropped), (&[][..], vec![Code::parse(b"key11").unwrap()]));
    let repaired = fs::read(&path).unwrap();
    assert!(!repaired.windows(5).any(|window| window == b"key11"));
    assert_eq!(keys(&repaired), 5, "what is whole is kept");
}

#[test]
fn a_journal_that_has_a_successor_was_synced_whole() {
    let mut bytes = journal();
    damage(&mut bytes, "key21");
    let (dir, _, _) = a_store(&bytes);
    fs::write(dir.path().join("1.jnl"), b"").unwrap();
    for mark in [None, Some((0, 0)), Some((1, 0))] {
        fs::write(dir.path().join("0.jnl"), &bytes).unwrap();
        mark.into_iter().for_each(|(journal, len)| set_mark(dir.path(), journal, len, 0));
        assert!(repair_all(dir.path()).unwrap()[0].is_damage, "{mark:?}");
    }
}

#[test]
fn a_record_in_the_only_batch_of_a_journal_keeps_its_number() {
    let mut bytes = Vec::new();
    push_batch(&mut bytes, &[an_item(b"key0"), an_item(b"key1")], 5_000);
    let end = bytes.len();
    let before = bytes.clone();
    damage(&mut bytes, "key1");
    let (dir, path, _) = a_store(&bytes);
    set_mark(dir.path(), 0, end, 5_000);
    let repair = repair_all(dir.path()).unwrap().remove(0);
    assert_eq!((repair.recovered, repair.unreadable.len()), (1, 1), "although no whole batch shows the keyspace");
    assert_eq!(walk(&fs::read(&path).unwrap(), 0).batches[0].seqno, 5_000);
    // The same holds if the head of the batch is damaged.
    bytes = before;
    bytes[..2].copy_from_slice(b"xy");
    fs::write(&path, &bytes).unwrap();
    set_mark(dir.path(), 0, end, 5_000);
    repair_all(dir.path()).unwrap();
    assert_eq!(walk(&fs::read(&path).unwrap(), 0).batches[0].seqno, 5_000);
}

#[test]
fn one_wrong_byte_below_the_mark_is_put_right() {
    let whole = journal();
    let (dir, path, ends) = a_store(&whole);
    let of_last = ends[1]..ends[2];
    for at in of_last.step_by(3).filter(|at| !(ends[1] + 5..ends[1] + START_LEN).contains(at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        fs::write(&path, &bytes).unwrap();
        set_mark(dir.path(), 0, ends[2], 14);
        let repair = repair_all(dir.path()).unwrap().remove(0);
        assert_eq!((repair.is_damage, repair.corrected, repair.recovered), (true, 1, 0), "byte {at}");
        assert_eq!(fs::read(&path).unwrap(), whole[..ends[2]], "byte {at}");
    }
}

#[test]
fn bytes_of_torn_writes_are_kept_up_to_a_bound() {
    let (dir, path, _) = a_store(&journal());
    for _ in 0..TORN_WRITES_KEPT + 3 {
        let mut torn = journal();
        torn.truncate(written_len(&torn) - 1);
        fs::write(&path, torn).unwrap();
        assert!(repair_all(dir.path()).unwrap()[0].kept_file.as_ref().unwrap().exists());
    }
    let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(entries.filter(|name| name.contains("torn-")).count(), TORN_WRITES_KEPT);
}

#[test]
fn the_keyspace_of_records_is_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = crate::links::Links::open(dir.path(), "key").unwrap();
    let mut record = Vec::new();
    record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record);
    let mut batch = store.batch();
    batch.put(&Code::parse(b"gone").unwrap(), &record);
    store.commit(batch).unwrap();
    let bytes = fs::read(journals(dir.path()).unwrap().pop().unwrap()).unwrap();
    assert_eq!(links_keyspace(&bytes, &walk(&bytes, 0).batches), Some(LINKS_KEYSPACE));
}

#[test]
fn a_mark_that_cannot_be_read_is_none() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(mark::read(dir.path()).unwrap(), None);
    set_mark(dir.path(), 7, 1_234, 99);
    assert_eq!(mark::read(dir.path()).unwrap(), Some(JournalPosition { journal: 7, len: 1_234, seqno: 99 }));
    let path = dir.path().join("synced.mark");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(mark::read(dir.path()).unwrap(), None);
        fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(mark::read(dir.path()).unwrap(), None);
    }
}

/// Appends a batch with this many items to a journal, as the store does.
fn append(path: &Path, seqno: u64, items: usize) {
    let items: Vec<_> = (0..items).map(|n| an_item(format!("key{seqno}-{n}").as_bytes())).collect();
    let mut bytes = Vec::new();
    push_batch(&mut bytes, &items, seqno);
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    let end = written_len(&fs::read(path).unwrap());
    file.write_all_at(&bytes, end as u64).unwrap();
}

#[test]
fn the_mark_covers_what_was_there_when_a_successful_sync_began() {
    let (dir, path, _) = a_store(&journal());
    let mark = SyncedMark::open(dir.path()).unwrap();
    let marked = || mark::read(dir.path()).unwrap().unwrap();
    let end = || written_len(&fs::read(&path).unwrap()) as u64;
    assert_eq!(marked(), JournalPosition::default());
    for (seqno, items) in [(20, 1), (21, 3), (22, 500), (23, 1), (24, 5_000), (25, 2)] {
        append(&path, seqno, items);
        let before = end();
        // Commits of other threads during the sync may stay above the mark.
        mark.run_sync(|| -> io::Result<()> {
            append(&path, seqno + 100, items);
            Ok(())
        })
        .unwrap();
        assert_eq!(marked(), JournalPosition { journal: 0, len: before, seqno });
        mark.run_sync(|| Err(io::Error::other("the disk failed"))).unwrap_err();
        assert_eq!(marked().len, before, "a sync that failed proves nothing");
    }
    // A batch that another thread is writing is not whole yet.
    mark.run_sync(|| io::Result::Ok(())).unwrap();
    let before = marked();
    let file = File::options().append(true).open(&path).unwrap();
    let mut half = journal();
    half.truncate(written_len(&half) / 2 - 10);
    file.write_all_at(&half[walk(&half, 0).batches.last().unwrap().bytes.end..], end()).unwrap();
    mark.run_sync(|| io::Result::Ok(())).unwrap();
    assert_eq!(marked(), before);
    mark.flush().unwrap();
}

#[test]
fn the_mark_follows_a_rotation() {
    let (dir, path, _) = a_store(&journal());
    let mark = SyncedMark::open(dir.path()).unwrap();
    let next = dir.path().join("1.jnl");
    mark.run_sync(|| {
        fs::write(&next, journal()).unwrap();
        io::Result::Ok(())
    })
    .unwrap();
    let marked = || mark::read(dir.path()).unwrap().unwrap();
    assert_eq!(marked().journal, 0);
    mark.run_sync(|| io::Result::Ok(())).unwrap();
    let end = written_len(&journal()) as u64;
    assert_eq!(marked(), JournalPosition { journal: 1, len: end, seqno: 14 });
    // The store removes journals whose data is in tables.
    fs::remove_file(&path).unwrap();
    assert_eq!(repair_all(dir.path()).unwrap(), []);
    drop(mark);
    // After a restart the mark continues from there, and never moves back.
    let mark = SyncedMark::open(dir.path()).unwrap();
    append(&next, 40, 1);
    mark.run_sync(|| io::Result::Ok(())).unwrap();
    assert!(marked().len > end);
}

proptest! {
    #[test]
    fn a_flipped_byte_below_the_mark_is_always_damage(at in any::<prop::sample::Index>(), flip in 1u8.., mark in 0usize..3) {
        let mut bytes = journal();
        let (dir, path, ends) = a_store(&bytes);
        set_mark(dir.path(), 0, ends[mark], 10 + 2 * mark as u64);
        let at = at.index(*ends.last().unwrap());
        bytes[at] ^= flip;
        fs::write(&path, &bytes).unwrap();
        let repairs = repair_all(dir.path()).unwrap();
        prop_assert!(repairs.iter().all(|repair| repair.is_damage == (at < ends[mark])), "{:?} {} {:?}", ends, at, repairs);
        prop_assert!(repair_all(dir.path()).unwrap().is_empty());
    }
}

#[test]
fn a_number_below_the_mark_that_is_the_next_batch_s_is_damage() {
    let mut bytes = journal();
    let (dir, path, ends) = a_store(&bytes);
    set_mark(dir.path(), 0, ends[0], 10);
    // The first batch says 12, as does the second, which is above the mark.
    bytes[5] ^= 10 ^ 12;
    fs::write(&path, &bytes).unwrap();
    let repairs = repair_all(dir.path()).unwrap();
    assert!(repairs.len() == 1, "{repairs:?}");
    assert!(repairs[0].is_damage, "{repairs:?}");
    assert_eq!(keys(&fs::read(&path).unwrap()), 6);
    assert!(repair_all(dir.path()).unwrap().is_empty());
}
