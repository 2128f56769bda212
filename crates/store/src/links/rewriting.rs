//! The rewriting of all tables of a keyspace while the node writes to it, for purges.
//!
//! `Keyspace::major_compact` holds a lock of the keyspace that every other compaction takes, too. The store has one thread
//! for flushes and compactions. After its next flush it would wait for that lock, and then write out no memtable of any
//! keyspace: commits stop once a keyspace has four full ones. So this module merges one level after another by
//! `AbstractTree::compact`, which takes the lock shared, as the thread of the store does. Neither of the two takes a table
//! that the other one is merging.
//!
//! Each step merges a level into the one below it. There is no level between the two, so no older record of a key can
//! get above a newer one, also while the thread of the store merges tables.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};
use lsm_tree::compaction::PullDown;

use super::Links;
use crate::error::StoreError;

/// The lowest level of a keyspace. Only a merge into this level drops tombstones.
const LOWEST: u8 = 6;

/// Time between two looks at whether the thread of the store has ended its merge.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Number of runs in the uppermost level from which they are merged. The library slows commits down from 20 on.
const NEW_RUNS_MAX: usize = 10;

/// Size of a keyspace from which replaced tables are deleted after each step, in bytes. With those of all steps kept until
/// the end, the disk would need room for half as much again.
const LARGE_BYTES: u64 = 256 * 1024 * 1024;

impl Links {
    /// Rewrites all tables that a keyspace has now. The new ones have nothing of what commits had removed before the
    /// watermark of the library. Blocks the thread: about 1 µs of CPU for each record. Commits and flushes continue
    /// meanwhile. Returns false if `is_stopping` has become true before the end.
    ///
    /// # Errors
    /// [`StoreError`] if a table cannot be read or written. No record is lost then: the tables stay as they are.
    pub(super) fn rewrite_tables(
        &self,
        keyspace: &Keyspace,
        is_stopping: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        for upper in 0..LOWEST {
            // Later tables of the level have nothing that was removed before.
            let old = tables(keyspace, upper);
            let are_left = || !old.is_disjoint(&tables(keyspace, upper));
            while are_left() {
                if is_stopping() {
                    return Ok(false);
                }
                let watermark = self.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
                let strategy = Arc::new(PullDown(upper, upper + 1));
                keyspace.tree.compact(strategy, watermark).map_err(fjall::Error::from)?;
                // The library does nothing while the thread of the store merges one of the tables.
                merge_new_tables(keyspace, watermark)?;
                if are_left() {
                    sleep(LOOK_EVERY);
                }
            }
            if !old.is_empty() && keyspace.disk_space() >= LARGE_BYTES {
                self.pull_watermark()?;
            }
        }
        Ok(true)
    }
}

/// Merges the tables that flushes have made during a step. The thread of the store looks for such tables only after a
/// flush, and could not take them during the step. If there are many by now, commits would wait for a merge that no
/// thread begins.
fn merge_new_tables(keyspace: &Keyspace, watermark: u64) -> Result<(), StoreError> {
    let mut runs = keyspace.tree.l0_run_count();
    while runs >= NEW_RUNS_MAX {
        let strategy = Arc::clone(&keyspace.config.compaction_strategy);
        keyspace.tree.compact(strategy, watermark).map_err(fjall::Error::from)?;
        let left = keyspace.tree.l0_run_count();
        if left >= runs {
            // The thread of the store has begun meanwhile.
            sleep(LOOK_EVERY);
        }
        runs = left;
    }
    Ok(())
}

/// Returns the tables that a step from this level to the one below it must replace. A table of the lowest level may have
/// removed records, too.
fn tables(keyspace: &Keyspace, upper: u8) -> HashSet<u64> {
    let version = keyspace.tree.current_version();
    let of = |level: u8| version.level(usize::from(level)).map(|level| level.list_ids()).unwrap_or_default();
    let mut tables: HashSet<u64> = of(upper).into_iter().collect();
    if upper + 1 == LOWEST {
        tables.extend(of(LOWEST));
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::Code;
    use std::sync::atomic::{AtomicBool, Ordering};

    const KEYS: usize = 200_000;
    const VALUE: [u8; 100] = [7; 100];

    fn key(number: usize) -> String {
        format!("a{number:07}")
    }

    /// Returns a store with links in the lowest level.
    fn filled(dir: &std::path::Path) -> Links {
        let links = Links::open(dir, "key").unwrap().0;
        let (keys, value): (Vec<String>, [u8; 100]) = ((0..KEYS).map(key).collect(), VALUE);
        links.ingest(keys.iter().map(|key| (key.as_bytes(), &value[..]))).unwrap();
        links
    }

    fn put(links: &Links, code: &str, value: &[u8]) {
        let mut batch = links.batch();
        batch.put(&Code::parse(code.as_bytes()).unwrap(), value);
        links.commit(batch).unwrap();
    }

    fn all_tables(links: &Links) -> HashSet<u64> {
        (0..=LOWEST).flat_map(|level| tables(&links.links, level)).collect()
    }

    /// Returns how many memtables of the keyspace are written out while its tables are rewritten.
    fn written_meanwhile(links: &Links) -> usize {
        let has_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (rewritten, has_begun) = (links.clone(), &has_begun);
            let rewriting = scope.spawn(move || {
                let look = || {
                    has_begun.store(true, Ordering::Release);
                    false
                };
                assert!(rewritten.rewrite_tables(&rewritten.links, &look).unwrap());
            });
            let mut written = 0;
            while !rewriting.is_finished() {
                if !has_begun.load(Ordering::Acquire) {
                    std::thread::yield_now();
                    continue;
                }
                put(links, "new", b"value");
                links.links.rotate_memtable_and_wait().unwrap();
                written += usize::from(!rewriting.is_finished());
            }
            written
        })
    }

    #[test]
    fn memtables_are_written_out_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let links = filled(dir.path());
        // A machine may be too quick, and rewrite all tables within two flushes. With a lock that keeps other compactions out,
        // the second flush waits for the end.
        assert!((0..10).any(|_| written_meanwhile(&links) >= 3));
        assert_eq!(links.links.len().unwrap(), KEYS + 1);
    }

    #[test]
    fn every_table_is_rewritten_and_records_stay() {
        let dir = tempfile::tempdir().unwrap();
        let links = filled(dir.path());
        put(&links, &key(1), b"changed");
        links.links.rotate_memtable_and_wait().unwrap();
        let mut batch = links.batch();
        batch.remove(&Code::parse(key(2).as_bytes()).unwrap());
        links.commit(batch).unwrap();
        links.links.rotate_memtable_and_wait().unwrap();
        let before = all_tables(&links);
        assert!(!before.is_empty());
        assert!(!links.rewrite_tables(&links.links, &|| true).unwrap());
        assert!(links.rewrite_tables(&links.links, &|| false).unwrap());
        assert!(before.is_disjoint(&all_tables(&links)));
        let get = |number: usize| links.get(&Code::parse(key(number).as_bytes()).unwrap()).unwrap();
        assert_eq!(get(0).as_deref(), Some(&VALUE[..]));
        assert_eq!(get(1).as_deref(), Some(&b"changed"[..]));
        assert!(get(2).is_none());
        assert_eq!(links.links.len().unwrap(), KEYS - 1);
    }
}
