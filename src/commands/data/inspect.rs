//! Checks a whole store: every record can be read, no code occurs twice, and each index has exactly one entry for each
//! link.
//!
//! The expected index entries and the actual ones are compared by sums of their hashes, which needs no memory and no
//! look-ups. Only if the sums differ are the entries themselves compared, some at a time, to find the missing and the
//! surplus ones.

use std::collections::HashSet;
use std::fmt;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::services::search;
use carom_model::link::Link;
use carom_model::link::record::{self, RecordRef};
use carom_store::backup::{RecordCounts, Section};
use carom_store::links::catalog::IndexKind;
use carom_store::links::dump::is_sound;
use carom_store::links::{EndKind, Index, complete_index, is_quarantine_entry, stored_end, stored_url};
use carom_telemetry::readable;

/// Number of errors that are described. Further ones are counted.
const NAMED: usize = 100;

/// Number of entries that are compared at a time if an index is wrong: about 100 MB.
const TOGETHER: u64 = 4_000_000;

/// The sections of indexes, each with its index and its name for people.
const INDEXES: [(Section, Index, &str); 4] = [
    (Section::Urls, Index::Urls, "the index of destinations"),
    (Section::Ends, Index::Ends, "the index of expiry dates"),
    (Section::Dates, Index::Lists, "the index of dates"),
    (Section::Tags, Index::Lists, "the index of tags"),
];

/// A receiver of records, which gets the section, the key and the value of each.
pub type Each<'e> = &'e mut dyn FnMut(Section, &[u8], &[u8]);

/// A source of records, which is a store or a backup of one. It can be read several times.
pub trait RecordSource {
    /// The error of a failed read.
    type Error;

    /// Passes all records to `each`, section by section, in the order of their keys.
    ///
    /// # Errors
    /// If the records cannot be read.
    fn each(&mut self, each: Each<'_>) -> Result<(), Self::Error>;
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct InspectReport {
    /// Number of records of each section.
    pub counts: RecordCounts,
    /// Number of links among them.
    pub links: u64,
    /// Descriptions of the first errors.
    pub wrong: Vec<String>,
    /// Number of errors.
    pub wrong_count: u64,
    /// True if keys occur twice or out of order: no store can be restored from that.
    pub is_disordered: bool,
    /// Indexes that lack entries of links.
    pub incomplete: Vec<Index>,
    /// Indexes that an earlier version did not have. The next start builds them.
    pub missing: Vec<&'static str>,
    /// Number of index entries without a link. They do no harm: an import that was cut off leaves them, or a record that
    /// is damaged or newer does.
    pub surplus: u64,
    /// Number of records that only a later version can decode. They are no errors.
    pub newer: u64,
}

impl InspectReport {
    /// True if nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.wrong_count == 0
    }

    fn add(&mut self, what: impl FnOnce() -> String) {
        self.wrong_count += 1;
        if self.wrong.len() < NAMED {
            self.wrong.push(what());
        }
    }
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [links, records, errors] =
            [(self.links, "link"), (self.counts.total(), "record"), (self.wrong_count, "error")]
                .map(|(number, one)| readable::count(number, one));
        write!(f, "{links}, {records} in all, {errors}")
    }
}

/// A sum of the hashes of entries, which does not depend on their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    sum: u128,
    count: u64,
}

impl Sum {
    fn add(&mut self, section: Section, entry: &[u8]) {
        self.sum = self.sum.wrapping_add(xxh3_128_with_seed(entry, section as u64));
        self.count += 1;
    }
}

/// Checks all records. Calls `on_counts` with the counts from time to time.
///
/// # Errors
/// If the records cannot be read.
pub fn inspect<R: RecordSource>(
    records: &mut R,
    mut on_counts: impl FnMut(&RecordCounts),
) -> Result<InspectReport, R::Error> {
    let mut report = InspectReport::default();
    let (mut should_be, mut are) = ([Sum::default(); Section::ALL.len()], [Sum::default(); Section::ALL.len()]);
    let mut last: (Option<Section>, Vec<u8>) = (None, Vec::new());
    let mut complete: Vec<Index> = Vec::new();
    records.each(&mut |section, key, value| {
        report.counts.add(section, 1);
        if report.counts.total().is_multiple_of(65_536) {
            on_counts(&report.counts);
        }
        let is_behind = last.0 != Some(section) || *last.1 < *key;
        last.0 = Some(section);
        last.1.clear();
        last.1.extend_from_slice(key);
        if !is_behind {
            report.is_disordered = true;
            report.add(|| format!("{section}: the key {} occurs twice or is out of order", key.escape_ascii()));
        }
        match section {
            Section::Links => match read_link(key, value) {
                Ok(Some(link)) => {
                    report.links += 1;
                    each_entry(&link, |section, entry| should_be[section as usize].add(section, entry));
                }
                Ok(None) => {}
                Err(_) if record::decode(key, value).is_err_and(|error| error.is_newer()) => report.newer += 1,
                Err(what) => report.add(|| format!("the record of {}: {what}", key.escape_ascii())),
            },
            section if !is_sound(section, key, value) => {
                report.add(|| format!("{section}: the value of {} is damaged", key.escape_ascii()));
            }
            Section::Meta => complete.extend(complete_index(key, value)),
            section => with_entry(section, key, value, |entry| are[section as usize].add(section, entry)),
        }
    })?;
    for (section, index, name) in INDEXES {
        let at = section as usize;
        if !complete.contains(&index) {
            report.missing.push(name);
        } else if should_be[at] != are[at] {
            let before = report.wrong_count;
            compare(records, section, name, should_be[at].count.max(are[at].count), &mut report)?;
            if report.wrong_count > before && !report.incomplete.contains(&index) {
                report.incomplete.push(index);
            }
        }
    }
    Ok(report)
}

/// Returns the link of a record; `None` for a tombstone.
fn read_link(key: &[u8], value: &[u8]) -> Result<Option<Link>, String> {
    let code = Code::from_key(key).map_err(|error| format!("the key {error}"))?;
    if code.key(&mut [0; CODE_KEY_LEN_MAX]) != key {
        return Err("the key does not match the code".to_owned());
    }
    match record::decode(key, value).map_err(|error| error.to_string())? {
        RecordRef::Link(link) => Ok(Some(link.to_link(code))),
        RecordRef::Tombstone(_) => Ok(None),
    }
}

/// Passes the index entries that a link should have to `each`.
fn each_entry(link: &Link, mut each: impl FnMut(Section, &[u8])) {
    each(Section::Urls, &stored_url(&link.url_entry()));
    if let Some(due) = link.expiry() {
        each(Section::Ends, &stored_end(EndKind::Link, &due));
    }
    if let Some(due) = link.deletion() {
        each(Section::Ends, &stored_end(EndKind::Deletion, &due));
    }
    for entry in search::listing(link).entries() {
        let section = if entry.kind == IndexKind::Dates { Section::Dates } else { Section::Tags };
        each(section, &listed(&entry.key, &entry.marks.to_value()));
    }
}

/// Passes an entry of an index to `each`, if its section has entries of links.
fn with_entry(section: Section, key: &[u8], value: &[u8], each: impl FnOnce(&[u8])) {
    match section {
        Section::Urls => each(key),
        // Quarantine entries are entries of unused codes.
        Section::Ends if !is_quarantine_entry(key) => each(key),
        Section::Dates | Section::Tags => each(&listed(key, value)),
        _ => {}
    }
}

/// Joins the key and the value of an entry of lists, unambiguously.
fn listed(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&(key.len() as u32).to_le_bytes(), key, value].concat()
}

/// Reports the missing entries of an index, and counts the surplus ones.
fn compare<R: RecordSource>(
    records: &mut R,
    index: Section,
    name: &str,
    entries: u64,
    report: &mut InspectReport,
) -> Result<(), R::Error> {
    let pieces = entries.div_ceil(TOGETHER).max(1);
    for piece in 0..pieces {
        let hash = |entry: &[u8]| xxh3_64_with_seed(entry, 1);
        let is_of_piece = |hash: u64| hash % pieces == piece;
        let (mut there, mut owed) = (HashSet::new(), HashSet::new());
        records.each(&mut |section, key, value| {
            if section == index {
                with_entry(section, key, value, |entry| {
                    let hash = hash(entry);
                    is_of_piece(hash).then(|| there.insert(hash));
                });
            } else if section == Section::Links
                && let Ok(Some(link)) = read_link(key, value)
            {
                each_entry(&link, |section, entry| {
                    let hash = hash(entry);
                    (section == index && is_of_piece(hash)).then(|| owed.insert(hash));
                });
            }
        })?;
        report.surplus += there.difference(&owed).count() as u64;
        let missing: HashSet<u64> = owed.difference(&there).copied().collect();
        if missing.is_empty() {
            continue;
        }
        // One more pass finds the links of the missing entries.
        records.each(&mut |section, key, value| {
            if section == Section::Links
                && let Ok(Some(link)) = read_link(key, value)
            {
                let mut count = 0;
                each_entry(&link, |section, entry| {
                    count += u32::from(section == index && missing.contains(&hash(entry)));
                });
                for _ in 0..count {
                    report.add(|| format!("{name} has no entry for {}", key.escape_ascii()));
                }
            }
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Origin;
    use carom_model::testing::link;

    type Stored = (Section, Vec<u8>, Vec<u8>);

    /// Returns the marks that a store keeps of its indexes.
    fn marks() -> Vec<Stored> {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = carom_store::links::Links::open(dir.path(), "key").unwrap();
        let mut marks = Vec::new();
        links
            .view()
            .dump(Section::Meta, |key, value| {
                marks.push((Section::Meta, key.to_vec(), value.to_vec()));
                true
            })
            .unwrap();
        marks
    }

    /// Returns some links with all their entries, in order.
    fn records() -> Vec<Stored> {
        let mut all: Vec<Stored> = marks();
        for (at, name) in ["aa", "bb", "cc"].into_iter().enumerate() {
            let mut link = link(name, Origin::Custom);
            link.policy.valid_until_ms = (at > 0).then_some(9_000);
            let mut value = Vec::new();
            record::encode_link(name.as_bytes(), &link, &mut value);
            all.push((Section::Links, name.as_bytes().to_vec(), value));
            all.push((Section::Urls, stored_url(&link.url_entry()), vec![0; 8]));
            all.extend(link.expiry().map(|due| (Section::Ends, stored_end(EndKind::Link, &due), Vec::new())));
            for entry in search::listing(&link).entries() {
                let section = if entry.kind == IndexKind::Dates { Section::Dates } else { Section::Tags };
                all.push((section, entry.key, entry.marks.to_value()));
            }
        }
        all.sort();
        all
    }

    impl RecordSource for Vec<Stored> {
        type Error = ();

        fn each(&mut self, each: Each<'_>) -> Result<(), ()> {
            self.iter().for_each(|(section, key, value)| each(*section, key, value));
            Ok(())
        }
    }

    fn look(mut records: Vec<Stored>) -> InspectReport {
        inspect(&mut records, |_| {}).unwrap()
    }

    #[test]
    fn newer_record_is_no_error() {
        let mut all = records();
        let stored = all.iter_mut().find(|(section, ..)| *section == Section::Links).unwrap();
        record::make_newer(&stored.1, &mut stored.2);
        let report = look(all);
        assert!(report.is_good(), "{report:?}");
        assert!(report.surplus > 0, "{report:?}");
        assert_eq!((report.links, report.newer), (2, 1));
    }

    #[test]
    fn what_is_as_it_should_be_is_good() {
        let report = look(records());
        assert!(report.is_good(), "{report:?}");
        assert!(report.surplus == 0, "{report:?}");
        assert_eq!((report.links, report.counts.of(Section::Ends)), (3, 2));
    }

    #[test]
    fn every_entry_that_is_missing_is_named() {
        let all = records();
        for (at, (section, ..)) in
            all.iter().enumerate().filter(|(_, (section, ..))| ![Section::Meta, Section::Links].contains(section))
        {
            let mut some = all.clone();
            some.remove(at);
            let report = look(some);
            let (.., name) = INDEXES.iter().find(|(index, ..)| index == section).unwrap();
            assert_eq!(report.wrong_count, 1, "{report:?}");
            assert!(report.wrong[0].starts_with(&format!("{name} has no entry for ")), "{report:?}");
        }
    }

    #[test]
    fn an_index_that_is_still_to_be_made_is_not_missed() {
        let mut all = records();
        all.retain(|(section, key, _)| !(*section == Section::Ends || *section == Section::Meta && key == b"ends"));
        let report = look(all);
        assert!(report.is_good(), "{report:?}");
        assert!(report.missing == ["the index of expiry dates"], "{report:?}");
    }

    #[test]
    fn entries_without_a_link_are_counted_and_do_no_harm() {
        let mut all = records();
        let at = all.iter().position(|(section, key, _)| *section == Section::Links && key == b"bb").unwrap();
        all.remove(at);
        let report = look(all);
        // The entries of the destination, the end, the date, and the tags.
        assert!(report.is_good(), "{report:?}");
        assert!(report.surplus >= 3, "{report:?}");
        assert!(report.links == 2, "{report:?}");
    }

    #[test]
    fn records_that_cannot_be_read_or_stand_there_twice_are_wrong() {
        let all = records();
        let at = all.iter().position(|(section, ..)| *section == Section::Links).unwrap();
        let mut twice = all.clone();
        twice.insert(at, all[at].clone());
        assert!(look(twice).wrong.iter().any(|wrong| wrong.contains("the key aa occurs twice")));
        for byte in 0..all[at].2.len() {
            let mut changed = all.clone();
            changed[at].2[byte] ^= 1;
            let report = look(changed);
            assert!(report.wrong_count == 1, "{byte} {report:?}");
            assert!(report.wrong[0].starts_with("the record of aa"), "{byte} {report:?}");
        }
        let mut visits = all;
        visits.push((Section::Visits, b"aa\0\0\0\0\x05\0\0\0\x01".to_vec(), vec![0xff]));
        assert_eq!(look(visits).wrong_count, 1);
    }
}
