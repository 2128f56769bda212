//! Check of the files that say what a keyspace consists of, before the library opens them.
//!
//! The library writes a checksum of its list of tables, and does not compare it (lsm-tree 3.1.10,
//! `version/recovery.rs`). It allocates as many entries as a table of contents announces (sfa 1.0.0, `toc/reader.rs`).
//! One changed byte made it ask for 90 GB, which ends the process without a word. So a start compares the checksums
//! first, and refuses a table of contents with more entries than its file has room for.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use crate::error::StoreError;

/// Length of `current`: the number of the newest list, its checksum, and the kind of the checksum.
const CURRENT_LEN: usize = 8 + 16 + 1;

/// Length of an archive's trailer: magic, version, kind and value of a checksum, place and length of the table of
/// contents.
const TRAILER_LEN: usize = 4 + 1 + 1 + 16 + 8 + 8;
const TRAILER_MAGIC: &[u8] = b"SFA!";
/// Offset of the place in the trailer.
const PLACE_AT: usize = 4 + 1 + 1 + 16;

/// Length of what is before the entries of a table of contents: magic and number of entries.
const HEAD_LEN: usize = 4 + 4;
const CONTENTS_MAGIC: &[u8] = b"TOC!";
/// Length of an entry without a name.
const ENTRY_LEN_MIN: u64 = 8 + 8 + 2;

/// Checks the keyspaces of a store for damage that the library does not detect itself.
///
/// # Errors
/// [`StoreError::Damaged`] with the name of the first damaged file.
pub(super) fn check(store: &Path) -> Result<(), StoreError> {
    for keyspace in entries(&store.join("keyspaces"))? {
        check_list(&keyspace)?;
        for table in entries(&keyspace.join("tables"))? {
            if !is_plausible(&table).map_err(|error| unreadable(&table, &error))? {
                return Err(StoreError::Damaged(format!("{}: its table of contents is damaged", table.display())));
            }
        }
    }
    Ok(())
}

/// Returns the paths in a folder; none if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let listed = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listed => listed.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect()),
    };
    listed.map_err(|error| unreadable(folder, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{} cannot be read: {error}", path.display()))
}

/// Compares the newest list of a keyspace's tables with its checksum.
fn check_list(keyspace: &Path) -> Result<(), StoreError> {
    let current = keyspace.join("current");
    let bytes = match fs::read(&current) {
        Ok(bytes) => bytes,
        // A crash during the creation of a keyspace leaves no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(&current, &error)),
    };
    let damaged = |what: &Path| StoreError::Damaged(format!("{} differs from what was written", what.display()));
    let Ok(bytes) = <[u8; CURRENT_LEN]>::try_from(bytes) else { return Err(damaged(&current)) };
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let sum = u128::from_le_bytes(bytes[8..24].try_into().expect("16 bytes"));
    let list = keyspace.join(format!("v{number}"));
    match fs::read(&list) {
        Ok(written) if bytes[24] == 0 && xxh3_128(&written) == sum => Ok(()),
        Ok(_) => Err(damaged(&list)),
        // The library writes the list first, so the number in `current` is wrong.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(&current)),
        Err(error) => Err(unreadable(&list, &error)),
    }
}

/// Returns false if a table of contents has more entries than there is room for. A crash may leave a file without a
/// whole trailer; the library does not read such a file, so it passes.
fn is_plausible(table: &Path) -> io::Result<bool> {
    let file = File::open(table)?;
    let Some(trailer_at) = file.metadata()?.len().checked_sub(TRAILER_LEN as u64) else { return Ok(true) };
    let mut trailer = [0; TRAILER_LEN];
    file.read_exact_at(&mut trailer, trailer_at)?;
    let place = u64::from_le_bytes(trailer[PLACE_AT..PLACE_AT + 8].try_into().expect("8 bytes"));
    let Some(room) = trailer_at.checked_sub(place).and_then(|room| room.checked_sub(HEAD_LEN as u64)) else {
        return Ok(true);
    };
    let mut head = [0; HEAD_LEN];
    file.read_exact_at(&mut head, place)?;
    let count = u32::from_le_bytes(head[4..].try_into().expect("4 bytes"));
    let is_contents = trailer.starts_with(TRAILER_MAGIC) && head.starts_with(CONTENTS_MAGIC);
    Ok(!is_contents || u64::from(count) * ENTRY_LEN_MIN <= room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Links;
    use carom_shards::Code;

    /// Makes a store with a table on disk. Returns the files that a start checks.
    fn store(dir: &Path) -> Vec<PathBuf> {
        let links = Links::open(dir, "key").unwrap().0;
        let mut batch = links.batch();
        batch.put(&Code::parse(b"abc").unwrap(), b"record");
        links.commit(batch).unwrap();
        links.links.rotate_memtable_and_wait().unwrap();
        drop(links);
        let keyspaces = entries(&dir.join("keyspaces")).unwrap();
        let lists = keyspaces.iter().flat_map(|keyspace| entries(keyspace).unwrap()).filter(|path| path.is_file());
        let tables = keyspaces.iter().flat_map(|keyspace| entries(&keyspace.join("tables")).unwrap());
        let files: Vec<PathBuf> = lists.chain(tables).collect();
        assert!(files.iter().any(|path| path.parent().unwrap().ends_with("tables")), "{files:?}");
        files
    }

    #[test]
    fn every_changed_byte_of_a_list_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let files = store(dir.path());
        assert!(check(dir.path()).is_ok());
        for path in files.iter().filter(|path| !path.parent().unwrap().ends_with("tables")) {
            let is_current = path.ends_with("current");
            let list = fs::read(path.with_file_name("current")).unwrap()[0];
            let is_newest = path.ends_with(format!("v{list}"));
            let whole = fs::read(path).unwrap();
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x40;
                fs::write(path, &bytes).unwrap();
                let noticed = check(dir.path());
                let is_damaged = matches!(&noticed, Err(StoreError::Damaged(what)) if what.contains("differs"));
                assert!(is_damaged || !is_current && !is_newest, "byte {at} of {}: {noticed:?}", path.display());
            }
            fs::write(path, &whole).unwrap();
        }
    }

    #[test]
    fn contents_longer_than_their_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = store(dir.path());
        for path in files.iter().filter(|path| path.parent().unwrap().ends_with("tables")) {
            let whole = fs::read(path).unwrap();
            let count_at = whole.windows(4).rposition(|bytes| bytes == CONTENTS_MAGIC).unwrap() + 4;
            for at in count_at + 1..count_at + 4 {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x40;
                fs::write(path, &bytes).unwrap();
                let refused = Links::open(dir.path(), "key").err();
                let names_it = |error: &StoreError| error.to_string().contains(path.to_str().unwrap());
                assert!(refused.as_ref().is_some_and(names_it), "{refused:?}");
            }
            // A crash leaves a table without a trailer.
            fs::write(path, &whole[..whole.len() / 2]).unwrap();
            assert!(check(dir.path()).is_ok());
            fs::write(path, &whole).unwrap();
        }
        Links::open(dir.path(), "key").unwrap();
    }
}
