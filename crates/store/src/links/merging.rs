//! Merging of the tables that imports have written. The library merges one step of a keyspace for each flush and each
//! start, so without this the node would merge beside its first redirects: 8 s of CPU after 10 million links.

use std::sync::Arc;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::{AbstractTree, Keyspace};

use super::Links;
use crate::error::StoreError;

/// Time between two looks at whether the thread of the store has ended its merge.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Oldest version of a record that is kept, as a sequence number: no version is dropped that a view may read.
const KEEP_ALL_VERSIONS: u64 = 0;

impl Links {
    /// Merges tables until the library sees nothing to merge. Blocks the thread: about 1 µs of CPU for each link of an
    /// import. For the end of an import, when no other thread writes.
    ///
    /// # Errors
    /// [`StoreError`] if a table cannot be read or written. No record is lost then: the tables stay as they are.
    pub fn merge_tables(&self) -> Result<(), StoreError> {
        let keyspaces = [&self.links, &self.urls, &self.ends, &self.dates, &self.tags, &self.visits];
        loop {
            // The thread of the store may be merging what this thread must then leave alone.
            let was_idle = self.db.active_compactions() == 0 && self.db.outstanding_flushes() == 0;
            let mut merged = false;
            for keyspace in keyspaces {
                while merge_step(keyspace)? {
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

/// Merges some tables of a keyspace. Returns false if there were none to merge.
fn merge_step(keyspace: &Keyspace) -> Result<bool, StoreError> {
    let version = || keyspace.tree.current_version().id();
    let before = version();
    keyspace.tree.compact(Arc::new(Leveled::default()), KEEP_ALL_VERSIONS).map_err(fjall::Error::from)?;
    Ok(version() != before)
}
