//! Writes the files that a start reads instead of the store, while a command has the store open and no node does: an
//! image of the links or the filters of codes, and the search index. Otherwise the first start reads all links, and the
//! node writes these files beside its first redirects.

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
    /// A random seed of the hash tables, in case that the data directory has none.
    pub seed: u64,
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
        // The links came past the log, so the next start would take no file of an earlier position.
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
        let stored = || map_image::hasher_of(data_dir);
        if self.is_hot {
            let hasher = code_filter::hasher_of(data_dir).or_else(stored);
            code_filter::write_once(links, data_dir, hasher.unwrap_or(CodeHasher::new(self.seed)), cores)
        } else {
            map_image::write_once(links, data_dir, stored().unwrap_or(CodeHasher::new(self.seed)), cores)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::link::record;
    use carom_model::testing::link;

    #[test]
    fn many_new_links_get_the_files_of_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 2);
        let (mut batch, mut bytes) = (node.links.batch(), Vec::new());
        for number in 0..IMAGE_LINKS_MIN + 1_000 {
            let link = link(&format!("c{number}"), Origin::Custom);
            bytes.clear();
            record::encode_link(link.code.to_string().as_bytes(), &link, &mut bytes);
            batch.put(&link.code, &bytes);
        }
        node.links.commit(batch).unwrap();
        let files = |is_hot| StartFiles {
            links: &node.links,
            data_dir: dir.path(),
            cores: node.cores,
            is_hot,
            search_memory: 0,
            seed: 7,
        };
        assert!(files(false).are_due(50_000));
        assert!(!files(false).are_due(10_000), "a node has files already that are nearly right");
        files(false).write().unwrap();
        assert_eq!(map_image::hasher_of(dir.path()).unwrap().seed(), 7);
        files(true).write().unwrap();
        assert_eq!(code_filter::hasher_of(dir.path()).unwrap().seed(), 7);
    }
}
