//! The start of a node that keeps only the links in use in memory: its cores get their filters of codes from the file.
//!
//! The blocks have every code up to the position of the file, and the change log has the codes that changed since. A
//! core that awaits its filter adds the codes of later changes itself. If the file is missing or unusable, the cores
//! await a filter that the thread of the filters builds, and the node serves meanwhile.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use carom_shards::CodeHasher;

use super::delivery::{CodeBatches, FilterNode};
use super::file::{FILE_NAME, FilterFile, FilterSize};
use crate::bridge::{StoredCodes, ToCore};
use crate::services::derived::sealed_file::{self, Unusable};
use carom_limits::{FILTER_LOADED_MAX, IMAGE_LINKS_MIN};
use carom_store::links::{ChangesSince, Links, StoreError};

/// Codes in flight to all cores while they do not serve yet.
const CODES_LOADED_MAX: usize = FILTER_LOADED_MAX / 8;

/// The origin of the filters that the cores have after a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterOrigin {
    /// The loader has read all links.
    Scan,
    /// The cores have the filters of the file, and so many codes that changed since.
    File {
        /// Number of changed codes, possibly with duplicates.
        changed: u64,
    },
    /// The cores await filters that have room for so many codes each.
    Awaited {
        /// Number of codes.
        codes: usize,
    },
}

/// Returns the hasher of the file in a data directory; `None` if no file is readable. A start uses it for all cores: it
/// is as secret as the data directory.
pub fn hasher_of(data_dir: &Path) -> Option<CodeHasher> {
    Some(FilterFile::open(&data_dir.join(FILE_NAME)).ok()??.head.key.hasher)
}

/// True if a start takes the filters from a file, instead of reading all links.
pub fn is_worthwhile(links: &Links) -> bool {
    links.approximate_len() >= IMAGE_LINKS_MIN
}

/// Removes the file from a data directory, if it has one.
pub fn remove_unused(data_dir: &Path) {
    sealed_file::remove_unused(&data_dir.join(FILE_NAME));
}

/// Loads the filters of all cores. Returns once [`ToCore::LoadDone`] is posted to every core. The node may serve then,
/// whatever the origin of the filters is. Until a core has its filter, it looks in the store for every code that is not
/// in memory.
///
/// # Errors
/// If the operating system cannot read the store.
pub fn load(node: &FilterNode) -> Result<FilterOrigin, StoreError> {
    let begin = Instant::now();
    node.tell_ruled(None);
    let origin = if let Some((codes, changed)) = from_file(node)? {
        let seconds = begin.elapsed().as_secs_f64();
        tracing::info!(codes, changed, seconds, "filters of codes loaded from their file");
        FilterOrigin::File { changed }
    } else {
        let FilterSize { codes, .. } = FilterSize::for_links(node.links.approximate_len(), node.cores);
        node.broadcast(|| StoredCodes::Await { codes });
        tracing::info!(
            "the filters of codes are built in the background; until then, unknown codes are looked up on disk"
        );
        FilterOrigin::Awaited { codes }
    };
    for mailbox in node.mailboxes.all() {
        mailbox.post(ToCore::LoadDone);
    }
    Ok(origin)
}

/// Sends the filters of the file, if it is usable. Returns the number of codes in it, and of those that changed since.
fn from_file(node: &FilterNode) -> Result<Option<(u64, u64)>, StoreError> {
    let path = node.path();
    let Some(file) = usable_file(node, &path) else { return Ok(None) };
    // Before the log is read: a commit that is not in it yet reaches its owner after this message.
    node.broadcast(|| StoredCodes::Await { codes: file.head.codes_of_core });
    let stop = AtomicBool::new(false);
    let mut later = CodeBatches::new(node, &stop, CODES_LOADED_MAX);
    let known = node.links.changes_since(file.head.key.position, |code| later.push(node.hasher.hash(&code)))?;
    later.send_all();
    if known == ChangesSince::Unknown {
        tracing::info!(
            "links were changed outside the change log, as by an import; the filters of codes are built again"
        );
        sealed_file::remove_unused(&path);
        return Ok(None);
    }
    if let Err(why) = node.send_blocks(&file, FILTER_LOADED_MAX, &stop) {
        give_up(&path, &why);
        return Ok(None);
    }
    node.broadcast(|| StoredCodes::End { is_whole: true });
    Ok(Some((file.head.codes, later.sent)))
}

/// Opens the file. Returns `None` if it does not exist, or was not written for this node; then the log has the reason.
pub(super) fn usable_file(node: &FilterNode, path: &Path) -> Option<FilterFile> {
    let file = match FilterFile::open(path) {
        Ok(file) => file?,
        Err(why) => {
            give_up(path, &why);
            return None;
        }
    };
    let key = file.head.key;
    if key.cores != node.cores || key.hasher.seed() != node.hasher.seed() {
        tracing::info!("the filters of codes were written for another number of cores or another hash seed");
        return None;
    }
    Some(file)
}

/// Logs that the file cannot be used, and removes it.
pub(super) fn give_up(path: &Path, why: &Unusable) {
    // A warning, not an alarm: no data is lost, and the node builds another file.
    tracing::warn!("the filters of codes in {} cannot be used ({why}); they are built again", path.display());
    sealed_file::remove_unused(path);
}
