//! Batches of records and codes that the loader sends to the cores that own them.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carom_shards::{Code, CodeHash, CodeHasher, SealedPage};

/// Records read from the store at start, all of one owner, in their stored form one after another. The owner decodes
/// them, so that decoding runs on all cores at once.
#[derive(Debug, Default)]
pub struct LoadBatch {
    /// For each record: length of the key (2 bytes), length of the value (4 bytes), both little-endian; key; value.
    pub bytes: Vec<u8>,
    /// Number of records.
    pub records: u32,
    /// Number of commits that had ended before the first of them was read, see [`carom_store::links::Links::commits`].
    pub as_of: u64,
    /// Credit for the bytes. Dropping the batch returns it to the sender.
    pub credit: Option<LoadCredit>,
}

impl LoadBatch {
    /// Appends a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.records += 1;
    }

    /// Returns the records, as key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (key_len, behind) = rest.split_first_chunk::<2>()?;
            let (value_len, behind) = behind.split_first_chunk::<4>()?;
            let (key, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
            let (value, behind) = behind.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
            rest = behind;
            Some((key, value))
        })
    }
}

/// A share of the bytes or codes that may be in flight to the cores. Dropping it returns the share.
#[derive(Debug)]
pub struct LoadCredit {
    in_flight: Arc<AtomicUsize>,
    bytes: usize,
}

impl LoadCredit {
    /// Takes a share of the bytes counted in `in_flight`.
    pub fn take(in_flight: &Arc<AtomicUsize>, bytes: usize) -> LoadCredit {
        in_flight.fetch_add(bytes, Ordering::AcqRel);
        LoadCredit { in_flight: Arc::clone(in_flight), bytes }
    }
}

impl Drop for LoadCredit {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A page of the map's image, in flight to the core that owns its records, or to all cores.
#[derive(Debug)]
pub struct LoadedPage {
    /// The page. Cores ignore its entries for damaged records.
    pub page: SealedPage,
    /// The codes for which the page may be out of date.
    pub changed: Arc<ChangedCodes>,
    /// Number of commits that had ended before the changed codes were read.
    pub as_of: u64,
    /// Credit for the page. Dropping the page returns it to the sender.
    pub credit: LoadCredit,
}

/// The codes whose links changed since an image was made.
#[derive(Debug, Default)]
pub struct ChangedCodes {
    hashes: HashSet<CodeHash, BuildHasherDefault<IdentityHasher>>,
    /// The codes in their order, each once.
    codes: Vec<Code>,
}

impl ChangedCodes {
    /// Collects these codes, in any order and possibly with duplicates.
    pub fn new(mut codes: Vec<Code>, hasher: CodeHasher) -> ChangedCodes {
        codes.sort_unstable();
        codes.dedup();
        ChangedCodes { hashes: codes.iter().map(|code| hasher.hash(code)).collect(), codes }
    }

    /// True if the image may be out of date for a code.
    #[inline]
    pub fn has(&self, code: &Code, hash: CodeHash) -> bool {
        !self.codes.is_empty() && self.hashes.contains(&hash) && self.codes.binary_search(code).is_ok()
    }

    /// Returns the codes in their order, each once.
    pub fn codes(&self) -> &[Code] {
        &self.codes
    }
}

/// A hasher that returns the hash of a code unchanged.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Text of the alarm of cores that cannot hold the filter of all codes.
pub const MEMORY_LIMIT_LOW: &str =
    "links.memory_limit is too low for this many links; unknown slugs are looked up on disk";

/// Words of [`RuledBits`]. With a thousand links with redirect rules, one other code in 65 counts as one with rules.
/// The bits take 8 KiB.
pub const RULED_WORDS: usize = 1_024;

/// Returns the word and the bit of a code in a filter of links with redirect rules, from other bits of its hash than
/// those that choose the owner.
#[inline]
pub fn ruled_place(hash: CodeHash) -> (usize, u64) {
    ((hash.0 >> 6) as usize % RULED_WORDS, 1 << (hash.0 % 64))
}

/// The codes of the store whose links may have redirect rules, as an approximate set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuledBits(Box<[u64]>);

impl Default for RuledBits {
    fn default() -> RuledBits {
        RuledBits(vec![0; RULED_WORDS].into())
    }
}

impl RuledBits {
    /// Adds a code.
    pub fn mark(&mut self, hash: CodeHash) {
        let (word, bit) = ruled_place(hash);
        self.0[word] |= bit;
    }

    /// Adds the codes of another set.
    pub fn add(&mut self, other: &RuledBits) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(word, more)| *word |= more);
    }

    /// Returns the bits, as [`RULED_WORDS`] words.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Returns the bits as bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads the bits from [`RuledBits::to_bytes`]. Bytes that are missing count as zeros.
    pub fn from_bytes(bytes: &[u8]) -> RuledBits {
        let mut bits = RuledBits::default();
        for (word, bytes) in bits.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        bits
    }
}

/// Some blocks of a filter of codes, in flight to the core that owns their codes.
#[derive(Debug)]
pub struct FilterBlocks {
    /// The number of the first block.
    pub first: usize,
    /// The blocks, one after the other ([`carom_shards::filter`]).
    pub bytes: Box<[u8]>,
    /// Number of codes that were inserted into them.
    pub codes: usize,
    /// Credit for the bytes. Dropping it returns it to the sender.
    pub credit: LoadCredit,
}

/// The codes that the store has of one owner, sent piece by piece.
#[derive(Debug)]
pub enum StoredCodes {
    /// A new filter will come: its blocks, or codes, and the codes that changed since they were written. Until its end, any
    /// code may exist. The sender reads the change log after this message.
    Await {
        /// Number of codes that the filter is sized for.
        codes: usize,
    },
    /// Blocks of the awaited filter.
    Blocks(FilterBlocks),
    /// The codes of all cores whose links may have redirect rules. `None` means that any code may be one, until they are
    /// known.
    Ruled(Option<Arc<RuledBits>>),
    /// The codes will follow. The sender begins to read the store after this.
    Begin,
    /// A part of the codes.
    Some {
        /// The hashes of the codes.
        hashes: Vec<CodeHash>,
        /// Credit for the codes. Dropping it returns it to the sender.
        credit: LoadCredit,
    },
    /// The codes have all been sent.
    End {
        /// True if these were all codes of the store. Otherwise they are useless.
        is_whole: bool,
    },
}
