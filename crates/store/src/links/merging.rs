//! Merging of the tables that imports have written. The library merges one step of a keyspace for each flush and each
//! start. Without this module, the node would merge beside its first redirects: 8 s of CPU after 10 million links.

use std::sync::Arc;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::{AbstractTree, Keyspace, PersistMode};

use super::Links;
use crate::error::StoreError;

/// Time between two looks at whether the thread of the store has ended its merge.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Links {
    /// Merges tables until the library sees nothing to merge. Blocks the thread: about 1 µs of CPU for each link of an
    /// import. For the end of an import: no other thread may write, and no view of the store may be open.
    ///
    /// # Errors
    /// [`StoreError`] if a table cannot be read or written, or the thread of the store has failed. No record is lost
    /// then: the tables stay as they are.
    pub fn merge_tables(&self) -> Result<(), StoreError> {
        let keyspaces = [&self.links, &self.urls, &self.ends, &self.dates, &self.tags, &self.visits];
        loop {
            // Fails once the thread of the store has failed. It would never end the work that this loop waits for.
            self.db.persist(PersistMode::Buffer)?;
            // The thread of the store may be merging what this thread must then leave alone.
            let was_idle = self.db.active_compactions() == 0 && self.db.outstanding_flushes() == 0;
            let mut merged = false;
            for keyspace in keyspaces {
                while merge_step(keyspace, self.db.visible_seqno())? {
                    merged = true;
                }
            }
            if was_idle && !merged {
                return Ok(());
            }
            if !merged {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// Merges some tables of a keyspace. Returns false if there were none to merge. `visible` is the sequence number of a
/// view that would be opened now, and no earlier view may be open. So the library deletes the tables that earlier steps
/// have replaced. With all of them kept until the end, the steps of a long merge could fill the disk.
fn merge_step(keyspace: &Keyspace, visible: u64) -> Result<bool, StoreError> {
    let version = || keyspace.tree.current_version().id();
    let before = version();
    let oldest = visible.saturating_sub(1);
    keyspace.tree.compact(Arc::new(Leveled::default()), oldest).map_err(fjall::Error::from)?;
    Ok(version() != before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::link_options;
    use carom_shards::Code;
    use fjall::Database;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    const RUNS: usize = 6;
    const KEYS: usize = 3_000;

    fn key(number: usize) -> String {
        format!("a{number:06}")
    }

    /// Returns the keys of one run: its own ones, which lie between those of all other runs.
    fn keys_of(run: usize) -> impl Iterator<Item = usize> {
        (0..KEYS).filter(move |number| number % RUNS == run)
    }

    /// Adds one table to a keyspace: the keys of the run, and the first one of all, each with the run as its value.
    fn ingest_run(keyspace: &Keyspace, run: usize) {
        let mut ingestion = keyspace.start_ingestion().unwrap();
        let numbers: BTreeSet<usize> = keys_of(run).chain([0]).collect();
        for number in numbers {
            ingestion.write(key(number).as_bytes(), run.to_string().as_bytes()).unwrap();
        }
        ingestion.finish().unwrap();
    }

    /// Opens a keyspace without the thread of the library, so that nothing else merges.
    fn open_without_thread(dir: &Path) -> (Database, Keyspace) {
        let db = Database::builder(dir).worker_threads_unchecked(0).open().unwrap();
        let keyspace = db.keyspace("links", link_options).unwrap();
        (db, keyspace)
    }

    fn assert_has_all(keyspace: &Keyspace) {
        for number in 1..KEYS {
            let run = (number % RUNS).to_string();
            assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), Some(run.as_bytes()), "{number}");
        }
        let newest = (RUNS - 1).to_string();
        assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(newest.as_bytes()));
        assert_eq!(keyspace.len().unwrap(), KEYS);
    }

    /// Returns the table files of a keyspace.
    fn tables(keyspace: &Keyspace) -> BTreeSet<PathBuf> {
        fs::read_dir(keyspace.path().join("tables")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn overlapping_tables_become_one() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keyspace) = open_without_thread(dir.path());
        (0..RUNS).for_each(|run| ingest_run(&keyspace, run));
        assert_eq!(keyspace.table_count(), RUNS);
        while merge_step(&keyspace, db.visible_seqno()).unwrap() {}
        assert_eq!((keyspace.l0_table_count(), keyspace.table_count()), (0, 1));
        assert_has_all(&keyspace);
    }

    #[test]
    fn long_merge_keeps_no_replaced_tables() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keyspace) = open_without_thread(dir.path());
        for _ in 0..3 {
            (0..RUNS).for_each(|run| ingest_run(&keyspace, run));
            while merge_step(&keyspace, db.visible_seqno()).unwrap() {}
        }
        // The library keeps the version before the last step, whose tables are those of one round.
        assert!(tables(&keyspace).len() <= RUNS + 2, "{:?}", tables(&keyspace));
        assert_has_all(&keyspace);
    }

    #[test]
    fn failed_merge_loses_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let (db, keyspace) = open_without_thread(dir.path());
        (0..RUNS).for_each(|run| ingest_run(&keyspace, run));
        let damaged = tables(&keyspace).pop_first().unwrap();
        let whole = fs::read(&damaged).unwrap();
        let mut bytes = whole.clone();
        // In the first block of records, behind its header.
        bytes[100] ^= 0x40;
        fs::write(&damaged, &bytes).unwrap();
        assert!(merge_step(&keyspace, db.visible_seqno()).is_err());
        fs::write(&damaged, &whole).unwrap();
        assert_has_all(&keyspace);
        while merge_step(&keyspace, db.visible_seqno()).unwrap() {}
        assert_eq!(keyspace.table_count(), 1, "a failed merge would keep its tables from the next");
        assert_has_all(&keyspace);
    }

    #[test]
    fn reopened_store_has_nothing_to_merge() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Links::open(dir.path(), "key").unwrap().0;
        let links = open();
        for run in 0..RUNS {
            let keys: Vec<String> = keys_of(run).map(key).collect();
            links.ingest(keys.iter().map(|key| (key.as_bytes(), key.as_bytes()))).unwrap();
        }
        links.merge_tables().unwrap();
        let version = links.links.tree.current_version();
        assert!(version.iter_levels().skip(1).all(|level| level.run_count() <= 1));
        // Fewer tables than the library merges may be left in the first level.
        assert!(links.links.l0_table_count() < 4, "{}", links.links.l0_table_count());
        drop((version, links));
        let links = open();
        let before = tables(&links.links);
        links.merge_tables().unwrap();
        drop(links);
        let links = open();
        assert_eq!(tables(&links.links), before);
        for number in 0..KEYS {
            let code = Code::parse(key(number).as_bytes()).unwrap();
            assert_eq!(&*links.get(&code).unwrap().unwrap(), key(number).as_bytes());
        }
    }
}
