//! The file of the cores' filters of codes: a header, the bits of links with redirect rules, and the blocks of each
//! core's filter in pages with checksums. No threads, no policy.
//!
//! A filter has one layer ([`carom_shards::filter`]), of the same size for each core. So the place of a code in the file
//! depends only on its hash, and a file can be written page by page.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use carom_shards::filter::{BLOCK_BYTES, block_of, insert_into, is_in};
use carom_shards::{CodeFilter, CodeHash, CoreCount, CoreId, owner};

use crate::bridge::{RULED_WORDS, RuledBits};
use crate::services::derived::sealed_file::{FileKind, NewFile, OpenFile, SealKey, Unusable};
use carom_limits::FILTER_PAGE_BYTES;
use carom_store::links::LogPosition;

/// Name of the file in a data directory.
pub(super) const FILE_NAME: &str = "links.filter";

/// The format. It covers the form of a filter, too: raise the version if the places of bits in a filter change.
const KIND: FileKind = FileKind { magic: b"caromflt", version: 1, page_bytes: FILTER_PAGE_BYTES };

/// Blocks of a page; its first block is the head.
pub(super) const PAGE_BLOCKS: usize = FILTER_PAGE_BYTES / BLOCK_BYTES - 1;

/// The page that has the bits of links with redirect rules.
const RULED_PAGE: u64 = 0;

/// Spare codes of a core's filter beside the half more that it has room for. Cores with few links have unequal shares.
const SPARE_CODES: usize = 4_096;

const _: () = assert!(RULED_WORDS * size_of::<u64>() <= PAGE_BLOCKS * BLOCK_BYTES);

/// The size of the filters in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FilterSize {
    /// Number of cores that own codes.
    pub(super) cores: CoreCount,
    /// Number of codes that the filter of each core has room for.
    pub(super) codes: usize,
}

/// The place of a code in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FilterPlace {
    /// The number of the page, from 0.
    pub(super) page: u64,
    /// The block in the page.
    pub(super) block: usize,
}

impl FilterSize {
    /// Returns the size for about `links` links and half as many more.
    pub(super) fn for_links(links: usize, cores: CoreCount) -> FilterSize {
        FilterSize { cores, codes: (links + links / 2) / cores.get() + SPARE_CODES }
    }

    /// Returns the number of blocks of a core's filter.
    fn blocks(self) -> usize {
        CodeFilter::blocks_for(self.codes)
    }

    fn pages_of_core(self) -> u64 {
        self.blocks().div_ceil(PAGE_BLOCKS) as u64
    }

    /// Returns the number of pages, including the one for links with redirect rules.
    pub(super) fn pages(self) -> u64 {
        1 + self.pages_of_core() * self.cores.get() as u64
    }

    /// Returns the pages that have blocks of filters, one of each core in turn, so that all cores have work.
    pub(super) fn pages_in_turns(self) -> impl Iterator<Item = u64> {
        let (run, cores) = (self.pages_of_core(), self.cores.get() as u64);
        (0..run).flat_map(move |within| (0..cores).map(move |core| 1 + core * run + within))
    }

    /// Returns the pages that have blocks of filters.
    pub(super) fn block_pages(self) -> std::ops::Range<u64> {
        1..self.pages()
    }

    /// Returns the place of a code.
    pub(super) fn place(self, hash: CodeHash) -> FilterPlace {
        let block = block_of(hash, self.blocks());
        let core = owner(hash, self.cores).index() as u64;
        let page = 1 + core * self.pages_of_core() + (block / PAGE_BLOCKS) as u64;
        FilterPlace { page, block: block % PAGE_BLOCKS }
    }

    /// Returns the core whose blocks a page has, the number of its first block, and how many blocks it has.
    pub(super) fn blocks_of(self, page: u64) -> (CoreId, usize, usize) {
        let (core, within) = ((page - 1) / self.pages_of_core(), (page - 1) % self.pages_of_core());
        let first = within as usize * PAGE_BLOCKS;
        (CoreId(core as u16), first, PAGE_BLOCKS.min(self.blocks() - first))
    }
}

/// A page in memory: a checksum, the number of codes that were inserted, and blocks.
#[derive(Debug)]
pub(super) struct FilterPage(Box<[u8]>);

impl Default for FilterPage {
    fn default() -> FilterPage {
        FilterPage(vec![0; FILTER_PAGE_BYTES].into())
    }
}

impl FilterPage {
    /// Returns the number of codes that were inserted.
    pub(super) fn codes(&self) -> u64 {
        u64::from_le_bytes(*self.0[8..].first_chunk().expect("a page is longer"))
    }

    /// Inserts a code into a block.
    pub(super) fn insert(&mut self, block: usize, hash: CodeHash) {
        if insert_into(self.block(block), hash) {
            let codes = self.codes() + 1;
            self.0[8..16].copy_from_slice(&codes.to_le_bytes());
        }
    }

    /// True if a block reports a code.
    pub(super) fn holds(&mut self, block: usize, hash: CodeHash) -> bool {
        is_in(self.block(block), hash)
    }

    fn block(&mut self, number: usize) -> &mut [u8; BLOCK_BYTES] {
        &mut self.content().as_chunks_mut().0[number]
    }

    /// Returns the bytes behind the head.
    fn content(&mut self) -> &mut [u8] {
        &mut self.0[BLOCK_BYTES..]
    }

    /// Returns the bytes of the first blocks.
    pub(super) fn first_blocks(&self, count: usize) -> Box<[u8]> {
        Box::from(&self.0[BLOCK_BYTES..][..count * BLOCK_BYTES])
    }

    /// Empties the page.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// The content of a file's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterHead {
    /// The position of the change log up to which the filters have every code, and the owners of codes.
    pub(super) key: SealKey,
    /// Number of codes that the filter of each core has room for.
    pub(super) codes_of_core: usize,
    /// Number of codes that were inserted into the filters.
    pub(super) codes: u64,
    /// Number of these codes whose links are known to have been removed.
    pub(super) stale: u64,
}

impl FilterHead {
    /// Returns the size of the filters.
    pub(super) fn size(&self) -> FilterSize {
        FilterSize { cores: self.key.cores, codes: self.codes_of_core }
    }
}

/// A file that is open for reading.
#[derive(Debug)]
pub(super) struct FilterFile {
    file: File,
    pub(super) head: FilterHead,
}

impl FilterFile {
    /// Opens a file and checks its header and length. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read, or its header is wrong.
    pub(super) fn open(path: &Path) -> Result<Option<FilterFile>, Unusable> {
        let Some(OpenFile { file, len, numbers }) = KIND.open::<6>(path)? else { return Ok(None) };
        let [position, seed, cores, codes_of_core, codes, stale] = numbers;
        let key = SealKey::of_header(position, seed, cores)?;
        // A code takes more than a byte. So the size cannot overflow below.
        if codes_of_core > len {
            let what = format!("its header claims {codes_of_core} codes, more than fit into the file");
            return Err(Unusable::Damaged(what));
        }
        let head = FilterHead { key, codes_of_core: codes_of_core as usize, codes, stale };
        KIND.check_len(len, head.size().pages())?;
        Ok(Some(FilterFile { file, head }))
    }

    /// Reads a page and checks it.
    ///
    /// # Errors
    /// If it cannot be read, or its checksum is wrong.
    pub(super) fn read(&self, number: u64, page: &mut FilterPage) -> Result<(), Unusable> {
        self.file.read_exact_at(&mut page.0, KIND.offset(number)).map_err(Unusable::Io)?;
        self.head.key.check(&page.0, number)
    }

    /// Reads the bits of links with redirect rules.
    ///
    /// # Errors
    /// As [`FilterFile::read`].
    pub(super) fn ruled(&self) -> Result<RuledBits, Unusable> {
        let mut page = FilterPage::default();
        self.read(RULED_PAGE, &mut page)?;
        Ok(RuledBits::from_bytes(page.content()))
    }
}

/// A writer of a file, under a temporary name until it is whole. Every page must be written.
#[derive(Debug)]
pub(super) struct FilterWriter {
    file: NewFile,
    head: FilterHead,
}

impl FilterWriter {
    /// Begins a file whose filters will have every code up to the position of `key`. The filter of each core has room for
    /// `codes_of_core`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn begin(path: &Path, key: SealKey, codes_of_core: usize) -> std::io::Result<FilterWriter> {
        let head = FilterHead { key, codes_of_core, codes: 0, stale: 0 };
        Ok(FilterWriter { file: NewFile::begin(path)?, head })
    }

    /// Writes a page of blocks. Returns its bytes.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(super) fn write(&mut self, number: u64, page: &mut FilterPage) -> std::io::Result<usize> {
        self.head.key.seal(&mut page.0, number);
        self.head.codes += page.codes();
        self.file.write_at(&page.0, KIND.offset(number))?;
        Ok(FILTER_PAGE_BYTES)
    }

    /// Writes the bits of links with redirect rules.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(super) fn write_ruled(&mut self, bits: &RuledBits) -> std::io::Result<()> {
        let mut page = FilterPage::default();
        let bytes = bits.to_bytes();
        page.content()[..bytes.len()].copy_from_slice(&bytes);
        self.write(RULED_PAGE, &mut page).map(drop)
    }

    /// Counts codes in the filters whose links were removed.
    pub(super) fn add_stale(&mut self, stale: u64) {
        self.head.stale += stale;
    }

    /// Syncs what was written so far.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }

    /// Returns the content of the file for reading, whatever its name.
    ///
    /// # Errors
    /// If the operating system gives no handle.
    pub(super) fn reader(&self) -> std::io::Result<FilterFile> {
        Ok(FilterFile { file: self.file.handle()?, head: self.head })
    }

    /// Ends the file and renames it over the old one, durably.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(super) fn finish(&self) -> std::io::Result<()> {
        let FilterHead { key, codes_of_core, codes, stale } = self.head;
        let LogPosition(position) = key.position;
        let numbers = [position, key.hasher.seed(), key.cores.get() as u64, codes_of_core as u64, codes, stale];
        self.file.finish(KIND, &numbers)
    }

    /// Removes the unfinished file.
    pub(super) fn abandon(&self) {
        self.file.abandon();
    }
}
