//! Tests of the store: durability, and scans around damage.

use super::*;
use crate::journal;
use carom_model::link::record;
use std::fs;
use std::path::PathBuf;

const KEY: &str = "0123456789abcdef";

fn open(dir: &Path) -> Links {
    Links::open(dir, KEY).unwrap().0
}

fn code(number: usize) -> Code {
    Code::parse(format!("a{number:06}").as_bytes()).unwrap()
}

/// Returns every code of the test's partition, in order.
fn scan_all(store: &Links) -> (Vec<String>, Vec<DamagedRange>) {
    let mut keys = Vec::new();
    let damaged = store
        .scan(KeyRange(b'a'), |key, _| {
            keys.push(text(key));
            true
        })
        .unwrap();
    (keys, damaged)
}

fn fill(store: &Links, numbers: std::ops::Range<usize>) {
    let mut batch = store.batch();
    for number in numbers {
        batch.put(&code(number), format!("{number:->100}").as_bytes());
    }
    store.commit(batch).unwrap();
    store.sync().unwrap();
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.join("keyspaces")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.parent().unwrap().ends_with("tables") && path.metadata().unwrap().len() > 100_000 {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn what_is_synced_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..100);
    let mut batch = store.batch();
    batch.remove(&code(3));
    batch.set_high_water(7, 12_345);
    store.commit(batch).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.high_water(7).unwrap(), 12_345);
    assert_eq!(store.high_water(6).unwrap(), 0);
    assert!(store.get(&code(3)).unwrap().is_none());
    assert!(store.get(&code(4)).unwrap().unwrap().ends_with(b"-4"));
    assert_eq!(scan_all(&store).0.len(), 99);
}

#[test]
fn another_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let refused = Links::open(dir.path(), "another").unwrap_err();
    assert!(matches!(refused, StoreError::OtherCodeSecret), "{refused}");
    drop(open(dir.path()));
}

#[test]
fn parts_cover_every_code() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut batch = store.batch();
    for &first in ALPHABET {
        batch.put(&Code::parse(&[first]).unwrap(), b"x");
        batch.put(&Code::parse(&[first; 64]).unwrap(), b"x");
    }
    store.commit(batch).unwrap();
    let mut seen = 0;
    for part in key_ranges() {
        store
            .scan(part, |_, _| {
                seen += 1;
                true
            })
            .unwrap();
    }
    assert_eq!(seen, 128);
}

#[test]
fn a_scan_goes_around_damaged_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..20_000);
    store.links.rotate_memtable_and_wait().unwrap();
    fill(&store, 20_000..20_010);
    drop(store);
    let table = tables(dir.path()).pop().expect("a table was written");
    let mut bytes = fs::read(&table).unwrap();
    // Two offsets in the data, far enough apart to be in different blocks with whole ones between.
    for at in [bytes.len() / 4, bytes.len() / 2] {
        bytes[at] ^= 1;
    }
    fs::write(&table, &bytes).unwrap();
    let store = open(dir.path());
    let (keys, damaged) = scan_all(&store);
    assert_eq!(damaged.len(), 2, "{damaged:?}");
    assert!(keys.is_sorted_by(|a, b| a < b), "each code once");
    assert!(keys.len() > 19_000, "{}", keys.len());
    assert!(keys.len() < 20_010, "{}", keys.len());
    assert_eq!(keys.last().unwrap(), "a020009");
    // The missing codes are in the reported ranges, and a look-up of them fails.
    for number in 0..20_010 {
        let name = code(number).to_string();
        let inside = damaged.iter().any(|range| range.after < name && range.before.as_ref().unwrap() > &name);
        assert_eq!(inside, keys.binary_search(&name).is_err(), "{name}");
        assert_eq!(inside, matches!(store.get(&code(number)), Err(StoreError::Damaged(_))), "{name}");
    }
}

#[test]
fn look_ups_read_parts_of_filters() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // The table of a memtable, and that of an import.
    fill(&store, 0..20_000);
    store.links.rotate_memtable_and_wait().unwrap();
    let imported: Vec<_> =
        (20_000..40_000).map(|number| (code(number).to_string(), format!("{number:->100}"))).collect();
    store.ingest(imported.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))).unwrap();
    drop(store);
    let found = tables(dir.path());
    assert_eq!(found.len(), 2);
    for table in found {
        // The section that says where the parts are.
        let has_parts = memchr::memmem::find(&fs::read(&table).unwrap(), b"filter_tli").is_some();
        assert!(has_parts, "{}", table.display());
    }
}

/// Returns the offsets of the parts of the index of a table. The end of the file says where its sections are.
fn index_parts(table: &[u8]) -> Vec<usize> {
    // The name of the section, after its length. Before it stand the offset and the length of the section.
    let name = memchr::memmem::rfind(table, b"\x05\0index").expect("the index has parts");
    let number = |at: usize| u64::from_le_bytes(table[at..at + 8].try_into().unwrap()) as usize;
    let (start, len) = (number(name - 16), number(name - 8));
    // Each part begins like the first one, with the mark and the type of its block.
    let index = &table[start..start + len];
    memchr::memmem::find_iter(index, &index[..5]).map(|at| start + at).collect()
}

#[test]
fn damaged_part_of_an_index_hides_no_other_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 0..60_000);
    store.links.rotate_memtable_and_wait().unwrap();
    fill(&store, 60_000..60_010);
    drop(store);
    let table = tables(dir.path()).pop().expect("a table was written");
    let mut bytes = fs::read(&table).unwrap();
    let parts = index_parts(&bytes);
    assert!(parts.len() > 3, "{parts:?}");
    bytes[(parts[1] + parts[2]) / 2] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let store = open(dir.path());
    let (keys, damaged) = scan_all(&store);
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(keys.is_sorted_by(|a, b| a < b), "each code once");
    // A part has the places of some 70 blocks, and each block has about 150 records.
    let lost = 60_010 - keys.len();
    assert!((2_000..30_000).contains(&lost), "{lost}");
    let (after, before) = (&damaged[0].after, damaged[0].before.as_ref().unwrap());
    for number in 0..60_010 {
        let name = code(number).to_string();
        let is_lost = *after < name && name < *before;
        assert_eq!(is_lost, keys.binary_search(&name).is_err(), "{name}");
        match store.get(&code(number)) {
            Ok(value) => {
                let expected = format!("{number:->100}");
                assert_eq!((is_lost, value.as_deref()), (false, Some(expected.as_bytes())), "{name}");
            }
            Err(StoreError::Damaged(_)) => assert!(is_lost, "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn visit_rows_behind_damaged_blocks_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let put = |names: Vec<String>| {
        let mut batch = store.batch();
        for name in names {
            let place = RowPlace { hour: 490_000, slot: 1, log: 1 };
            batch.put_visits(name.as_bytes(), place, format!("{name:->100}").as_bytes());
        }
        store.commit(batch).unwrap();
    };
    put((0..20_000).map(|number| code(number).to_string()).collect());
    store.visits.rotate_memtable_and_wait().unwrap();
    // Rows before and behind the table.
    let before: Vec<String> = (0..10).map(|number| format!("B{number:06}")).collect();
    put(before.clone());
    put((20_000..20_010).map(|number| code(number).to_string()).collect());
    store.sync().unwrap();
    drop(store);
    let table = tables(dir.path()).pop().expect("a table was written");
    let mut bytes = fs::read(&table).unwrap();
    // The first block, and two with whole ones between.
    for at in [200, bytes.len() / 4, bytes.len() / 2] {
        bytes[at] ^= 1;
    }
    fs::write(&table, &bytes).unwrap();
    let store = open(dir.path());
    let (mut found, mut damaged, mut next) = (Vec::new(), 0, Some(Bound::Unbounded));
    while let Some(from) = next {
        let page = store.visits_page(&from, 1_000).unwrap();
        assert!(page.damage.is_none() || page.rows.is_empty(), "the rows before it come first");
        damaged += usize::from(page.damage.is_some());
        found.extend(page.rows.iter().map(|row| text(&row.name)));
        next = page.next;
    }
    assert_eq!(damaged, 3);
    assert!(found.is_sorted_by(|a, b| a < b), "each row once");
    assert_eq!(found[..10], before, "a damaged block hides no rows before it");
    assert!(found.len() > 19_000, "{}", found.len());
    assert!(found.len() < 20_020, "{}", found.len());
    assert_eq!(found.last().unwrap(), "a020009");
}

#[test]
fn a_damaged_journal_costs_its_own_records_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..50 {
        let mut batch = store.batch();
        let mut record = Vec::new();
        record::encode_tombstone(code(number).to_string().as_bytes(), &carom_model::testing::tombstone(), &mut record);
        batch.put(&code(number), &record);
        store.commit(batch).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let journal = journal::journals(dir.path()).unwrap().pop().unwrap();
    let mut bytes = fs::read(&journal).unwrap();
    let middle = journal::written_len(&bytes) / 2;
    bytes[middle] ^= 0x10;
    fs::write(&journal, &bytes).unwrap();
    let (store, repairs) = Links::open(dir.path(), KEY).unwrap();
    assert_eq!(repairs.len(), 1);
    assert!(repairs[0].is_damage);
    assert!(repairs[0].kept_file.is_some());
    assert!(scan_all(&store).0.len() >= 49);
}

#[test]
fn search_from_the_last_position_finds_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // A block that was read only at the second attempt leaves no edge to find before the last position.
    assert_eq!(Links::first_readable(&store.visits, u128::MAX, &[0xff; 16]), Some((u128::MAX, None)));
}
