//! What of the visits is not in the store, for backups of it: the logs that were not folded at the moment of a view.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{FOLDER, log};
use carom_store::links::Links;
use carom_store::links::catalog::View;

/// How often it is tried to see the store and the logs at one moment: a fold takes much longer than a look.
const TRIES: usize = 10;

/// The store at one moment, and logs by their numbers.
pub type Seen = (View, Vec<(u32, Vec<u8>)>);

/// The store as it is now, and the logs whose rows are not in it, each with its number.
///
/// # Errors
/// If they cannot be read.
pub fn view_with_logs(links: &Links, data_dir: &Path) -> io::Result<Seen> {
    let dir = data_dir.join(FOLDER);
    for _ in 0..TRIES {
        // A log that is open here can be read although it is removed a moment later. One that the view does not have was not
        // removed before it, and what began after the first look is found by the second.
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

/// Adds a piece of a log to a data directory where nobody counts.
///
/// # Errors
/// If it cannot be written.
pub fn put_log(data_dir: &Path, seq: u32, bytes: &[u8]) -> io::Result<()> {
    let dir = data_dir.join(FOLDER);
    fs::create_dir_all(&dir)?;
    log::put(&dir, seq, bytes)
}
