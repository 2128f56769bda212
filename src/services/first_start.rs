//! The files that a start reads instead of the store: an image of the links or the filters of codes, and the search
//! index. A command writes them while no node has the store open. Without them, the first start reads all links, and
//! the node writes these files beside its first redirects.

use std::path::Path;

use carom_shards::{CodeHasher, CoreCount};

use super::maintenance::code_filter;
use super::{map_image, search};
use carom_limits::IMAGE_LINKS_MIN;
use carom_store::links::Links;

/// Inputs of the files.
#[derive(Debug)]
pub struct StartFiles<'a> {
    /// The store of links.
    pub links: &'a Links,
    /// The data directory.
    pub data_dir: &'a Path,
    /// Number of cores that the node will have.
    pub cores: CoreCount,
    /// True if the node will keep only the links in use in memory.
    pub is_hot: bool,
    /// Bytes of memory for the search index; 0 without one.
    pub search_memory: u64,
    /// A random seed of the hash tables, for a data directory without a file that has one.
    pub seed: u64,
}

/// Returns the hasher of the file in a data directory that the next start reads. The seed of the hasher determines the
/// order of that file, which is an image of the links or the filters of codes. `None` if no file is readable. A node
/// that will keep only the links in use in memory is `is_hot`.
pub fn stored_hasher(data_dir: &Path, is_hot: bool) -> Option<CodeHasher> {
    let of_filters = is_hot.then(|| code_filter::hasher_of(data_dir)).flatten();
    of_filters.or_else(|| map_image::hasher_of(data_dir))
}

impl StartFiles<'_> {
    /// True if the files are worth their time: the store has many links, and at least a quarter of them are among the
    /// `taken` new ones.
    pub fn are_due(&self, taken: u64) -> bool {
        let links = self.links.approximate_len();
        links >= IMAGE_LINKS_MIN && 4 * taken >= links as u64
    }

    /// Writes the files, in two threads: about 9 µs of CPU per link, most of it for the search index. Blocks the calling
    /// thread. No other thread may write to the store.
    ///
    /// # Errors
    /// The reasons for which files are missing. A node writes those files itself.
    pub fn write(&self) -> Result<(), Vec<String>> {
        // An import bypasses the change log. Unless the log begins again, the next start finds links that it lacks, and
        // uses no file.
        self.links.reset_log().map_err(|error| vec![error.to_string()])?;
        let (links, search) = std::thread::scope(|scope| {
            let search = scope.spawn(|| search::sign_once(self.links, self.search_memory, self.data_dir));
            (self.write_links(), search.join().expect("panics abort"))
        });
        let failed: Vec<String> = [links, search].into_iter().filter_map(Result::err).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    fn write_links(&self) -> Result<(), String> {
        let &StartFiles { links, data_dir, cores, .. } = self;
        let hasher = stored_hasher(data_dir, self.is_hot).unwrap_or(CodeHasher::new(self.seed));
        if self.is_hot {
            code_filter::write_once(links, data_dir, hasher, cores)
        } else {
            map_image::write_once(links, data_dir, hasher, cores)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::services::maintenance::code_filter::{FilterNode, FilterOrigin};
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::link::record;
    use carom_model::testing::link;

    /// The seed of the files.
    const SEED: u64 = 7;

    /// Adds links past the change log, as an import does.
    fn import(node: &TestNode, count: usize) {
        let names: Vec<String> = (0..count).map(|number| format!("c{number:06}")).collect();
        let encoded = |name: &String| {
            let mut bytes = Vec::new();
            record::encode_link(name.as_bytes(), &link(name, Origin::Custom), &mut bytes);
            bytes
        };
        let records: Vec<Vec<u8>> = names.iter().map(encoded).collect();
        let records = names.iter().zip(&records).map(|(name, bytes)| (name.as_bytes(), &bytes[..]));
        node.links.ingest(records).unwrap();
    }

    fn files<'a>(node: &'a TestNode, data_dir: &'a Path, is_hot: bool) -> StartFiles<'a> {
        StartFiles { links: &node.links, data_dir, cores: node.cores, is_hot, search_memory: 0, seed: SEED }
    }

    fn restarted(node: TestNode, data_dir: &Path, is_hot: bool) -> TestNode {
        drop(node);
        let mut node = TestNode::new(data_dir, 2);
        node.hasher = stored_hasher(data_dir, is_hot).expect("a file has a seed");
        assert_eq!(node.hasher.seed(), SEED);
        node
    }

    #[test]
    fn many_new_links_get_the_files_of_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let node = TestNode::new(dir, 2);
        import(&node, IMAGE_LINKS_MIN + 1_000);
        assert!(files(&node, dir, false).are_due(50_000));
        assert!(!files(&node, dir, false).are_due(10_000), "the files would take longer than the import");
        files(&node, dir, false).write().unwrap();
        let node = restarted(node, dir, false);
        let (_, changed) = map_image::open(&node.links, dir, node.hasher).unwrap().expect("the image is used");
        assert!(changed.codes().is_empty());
        files(&node, dir, true).write().unwrap();
        let node = restarted(node, dir, true);
        let filters = FilterNode {
            links: node.links.clone(),
            mailboxes: node.mailboxes.clone(),
            hasher: node.hasher,
            cores: node.cores,
            stats: Arc::clone(&node.stats),
            data_dir: dir.to_owned(),
        };
        assert_eq!(code_filter::load(&filters).unwrap(), FilterOrigin::File { changed: 0 });
    }
}
