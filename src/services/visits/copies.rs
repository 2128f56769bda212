//! Copies of visits for backups: the logs that were not folded into the store at the moment of a view.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{FOLDER, log};
use carom_store::links::Links;
use carom_store::links::catalog::View;

/// Attempts to read the store and the logs of one moment. A fold takes much longer than an attempt.
const TRIES: usize = 10;

/// A view of the store, and logs by their numbers.
pub type ViewAndLogs = (View, Vec<(u32, Vec<u8>)>);

/// Returns a view of the store, and the logs whose rows it lacks, each with its number.
///
/// # Errors
/// If the store or the logs cannot be read, or if folds interfered with every attempt.
pub fn view_with_logs(links: &Links, data_dir: &Path) -> io::Result<ViewAndLogs> {
    let dir = data_dir.join(FOLDER);
    for _ in 0..TRIES {
        // An open log stays readable after it is removed. A log that the view lacks is removed only after the view, and
        // the second pass finds one that was begun after the first pass.
        let mut logs = BTreeMap::new();
        open_all(&dir, &mut logs)?;
        let view = links.view();
        open_all(&dir, &mut logs)?;
        let folded = links.visits_folded_in(&view).map_err(io::Error::other)?;
        logs.retain(|seq, _| *seq > folded);
        let is_whole = logs.keys().zip(logs.keys().skip(1)).all(|(one, next)| one + 1 == *next);
        if is_whole {
            let logs = logs.into_iter().map(|(seq, file)| Ok((seq, log::whole_pieces(&file)?)));
            return Ok((view, logs.collect::<io::Result<_>>()?));
        }
    }
    Err(io::Error::other("visit logs were merged while they were being read; try again"))
}

fn open_all(dir: &Path, logs: &mut BTreeMap<u32, File>) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for seq in log::seqs(dir)? {
        if let Some(file) = log::open(dir, seq)? {
            logs.entry(seq).or_insert(file);
        }
    }
    Ok(())
}

/// Appends a piece to a log in a data directory that no node has open.
///
/// # Errors
/// If the piece cannot be written.
pub fn put_log(data_dir: &Path, seq: u32, bytes: &[u8]) -> io::Result<()> {
    let dir = data_dir.join(FOLDER);
    fs::create_dir_all(&dir)?;
    log::put(&dir, seq, bytes)
}
