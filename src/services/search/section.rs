//! A section of the search index: a signature of the n-grams (byte sequences) in the texts of some consecutive links,
//! and the place of these texts.

use std::sync::Arc;

use super::recent_texts::TextsInMemory;
use super::text_chunk::{TextPart, key_of, texts_of};
use super::text_file::Extent;
use carom_limits::SEARCH_SECTION_BYTES;

/// Length of an n-gram in bytes.
const GRAM_LEN: usize = 4;

/// Bits of a signature, a power of two.
const BITS: u32 = 1 << BITS_LOG2;
const BITS_LOG2: u32 = 17;

/// Bytes of a signature.
pub(super) const SIGNATURE_BYTES: usize = BITS as usize / 8;

/// Number of set bits with which a section is full: a random n-gram is then found with a probability of one in three.
/// For a term with two rare n-grams, while its others are in every section, one section in nine is read without a hit.
/// That is about 100 MB of texts for 10 million links.
const FILLED: u32 = BITS / 3;

/// Largest number of links in a new section.
const SECTION_LEN_MAX: u32 = if cfg!(test) { 4 } else { 2_048 };

/// Largest number of links in a section that takes new links, before it is divided.
pub(super) const OPEN_LEN_MAX: u32 = 4 * SECTION_LEN_MAX;

/// Largest number of links of a section that may change before it is signed again. A search reads each of them.
const LATE_LEN_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// Memory of a changed link besides its key, in bytes.
const LATE_OVERHEAD: usize = 32;

/// Number of set bits at which a signature is no longer worth a test. A new section stays below it, even with its last
/// link.
const OVERFILLED: u32 = BITS / 2;

/// Largest number of n-grams of a term that are tested.
const GRAMS_MAX: usize = 64;

/// Returns the bit number of each n-gram in a text, with repetitions.
fn grams(text: &[u8]) -> impl Iterator<Item = u32> + '_ {
    // Multiplicative hashing (Knuth 1973, volume 3, section 6.4), the factor being prime and near the golden ratio.
    let hash = |gram: &[u8]| {
        let gram = u32::from_le_bytes(gram.try_into().expect("it has four bytes"));
        gram.wrapping_mul(2_654_435_761) >> (u32::BITS - BITS_LOG2)
    };
    text.windows(GRAM_LEN).map(hash)
}

/// The n-grams that a search tests, for each of its terms.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    terms: Vec<Vec<u32>>,
}

impl Needle {
    /// Returns the needle for texts that contain one of these terms.
    pub(super) fn of<'t>(terms: impl Iterator<Item = &'t str>) -> Needle {
        let bits = |term: &str| {
            let mut bits: Vec<u32> = grams(term.as_bytes()).collect();
            // The order of hashes is a random order of n-grams, so a rare one is tested soon, wherever in the term it
            // is.
            bits.sort_unstable();
            bits.dedup();
            bits.truncate(GRAMS_MAX);
            bits
        };
        Needle { terms: terms.map(bits).collect() }
    }
}

/// The place of the texts of a section.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Memory, for texts of links that were created or changed lately.
    Memory(TextsInMemory),
    /// The text file.
    Stored(Arc<Extent>),
    /// Nowhere: a search reads the links instead.
    None,
}

/// Keys in ascending order, each once.
pub(super) type SortedKeys = Arc<Vec<Box<[u8]>>>;

/// The first and the last one of some keys.
type KeyBounds = (Vec<u8>, Vec<u8>);

/// Consecutive links of the index by date, from a first key up to the next section.
#[derive(Clone, Debug)]
pub(super) struct IndexSection {
    pub(super) first: Box<[u8]>,
    /// The signature. `None` while the section takes new links or has not been divided since.
    pub(super) signature: Option<Arc<Vec<u64>>>,
    /// Number of set bits in the signature.
    set_bits: u32,
    /// Number of links. Deleted links still count.
    pub(super) len: u32,
    /// Bytes of the texts with which the section was made.
    bytes: usize,
    /// The first and the last key that were added; `None` if none was added since the texts were dropped.
    pub(super) bounds: Option<KeyBounds>,
    pub(super) texts: Source,
    /// The links that were added or changed since the texts were written. A search reads each of them.
    late: SortedKeys,
    /// Memory of `late`, in bytes.
    late_bytes: usize,
}

impl IndexSection {
    /// Returns an empty section with a signature, for links that are added in order.
    pub(super) fn new(first: &[u8]) -> IndexSection {
        let signature = vec![0; BITS as usize / 64];
        IndexSection { signature: Some(Arc::new(signature)), ..IndexSection::open(first) }
    }

    /// Returns an empty section that takes new links.
    pub(super) fn open(first: &[u8]) -> IndexSection {
        IndexSection {
            first: first.into(),
            signature: None,
            set_bits: 0,
            len: 0,
            bytes: 0,
            bounds: None,
            texts: Source::Memory(TextsInMemory::default()),
            late: Arc::default(),
            late_bytes: 0,
        }
    }

    /// Returns a section without texts: until it is signed, a search reads its links.
    pub(super) fn unsigned(first: &[u8]) -> IndexSection {
        IndexSection { texts: Source::None, ..IndexSection::open(first) }
    }

    /// Sets the signature.
    pub(super) fn sign(&mut self, words: Vec<u64>) {
        assert_eq!(words.len(), BITS as usize / 64, "a search would read beyond the signature");
        self.set_bits = words.iter().map(|word| word.count_ones()).sum();
        self.signature = Some(Arc::new(words));
    }

    /// Adds an entry made by [`super::text_chunk::entry_of`].
    pub(super) fn add(&mut self, entry: &[u8]) {
        if let Source::Memory(held) = &mut self.texts {
            held.push(entry);
            (self.bytes, self.len) = (held.live_bytes(), held.len() as u32);
        } else if !self.is_unsigned() {
            self.add_late(key_of(entry));
        }
        self.note(entry);
    }

    /// Returns the links that were added or changed since the texts were written.
    pub(super) fn late(&self) -> &[Box<[u8]>] {
        &self.late
    }

    /// Notes that a link was added or changed.
    pub(super) fn add_late(&mut self, key: &[u8]) {
        if let Err(place) = self.late.binary_search_by(|late| (**late).cmp(key)) {
            Arc::make_mut(&mut self.late).insert(place, key.into());
            self.late_bytes += key.len() + LATE_OVERHEAD;
            self.len += 1;
        }
    }

    fn note(&mut self, entry: &[u8]) {
        if let Some(signature) = &mut self.signature {
            let signature = Arc::make_mut(signature);
            for bit in texts_of(entry).flat_map(grams) {
                let word = &mut signature[(bit / 64) as usize];
                let before = *word;
                *word |= 1 << (bit % 64);
                self.set_bits += u32::from(*word != before);
            }
        }
        widen(&mut self.bounds, key_of(entry));
    }

    /// Moves the first key.
    pub(super) fn begin_at(&mut self, first: &[u8]) {
        self.first = first.into();
    }

    /// Moves texts in memory to the place that `save` returns.
    pub(super) fn save(&mut self, save: impl FnOnce(&TextPart) -> Source) {
        if let Source::Memory(held) = &self.texts {
            self.texts = save(&TextPart::joined(held.chunks()));
        }
    }

    /// Drops the texts of a link from a section that takes new links; from another one, all texts and the signature.
    pub(super) fn drop_link(&mut self, key: &[u8]) {
        let Source::Memory(held) = &self.texts else { return self.forget() };
        let (mut rest, mut bounds) = (TextsInMemory::default(), None);
        let entries = held.chunks().iter().flat_map(|chunk| chunk.entries());
        for entry in entries.filter(|entry| key_of(entry) != key) {
            rest.push(entry);
            widen(&mut bounds, key_of(entry));
        }
        (self.bytes, self.len) = (rest.live_bytes(), rest.len() as u32);
        (self.texts, self.bounds) = (Source::Memory(rest), bounds);
    }

    /// Drops texts and signature: a search reads the links until the section is signed again.
    pub(super) fn forget(&mut self) {
        self.signature = None;
        self.texts = Source::None;
        self.bounds = None;
        self.late = Arc::default();
        self.late_bytes = 0;
    }

    /// True if a search has to read the links.
    fn is_unsigned(&self) -> bool {
        self.signature.is_none() && matches!(self.texts, Source::None)
    }

    /// True if the next link should begin a new section.
    pub(super) fn is_full(&self, open_bytes_max: usize) -> bool {
        match &self.signature {
            Some(_) => self.set_bits >= FILLED || self.len >= SECTION_LEN_MAX || self.bytes >= SEARCH_SECTION_BYTES,
            None => self.len >= OPEN_LEN_MAX || self.bytes >= open_bytes_max,
        }
    }

    /// True if a closed section should be signed again, or a section that takes new links should be divided at once.
    pub(super) fn is_overfull(&self, open_bytes_max: usize) -> bool {
        match &self.texts {
            Source::Memory(held) => held.live_bytes() >= 2 * open_bytes_max || self.len >= 2 * OPEN_LEN_MAX,
            _ => self.is_unsigned() || self.late.len() > LATE_LEN_MAX || self.set_bits >= OVERFILLED,
        }
    }

    /// Returns the memory in bytes, besides the signature.
    pub(super) fn held_bytes(&self) -> usize {
        let texts = if let Source::Memory(held) = &self.texts { held.memory_bytes() } else { 0 };
        texts + self.late_bytes
    }

    pub(super) fn may_have(&self, needle: &Needle) -> bool {
        let has_all = |signature: &Vec<u64>| {
            let has = |bit: &u32| signature[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
            needle.terms.iter().any(|term| term.iter().all(has))
        };
        let has_links = self.bounds.is_some() || self.is_unsigned();
        has_links && self.signature.as_deref().is_none_or(has_all)
    }

    /// Returns the texts to search for a term; `None` if the links must be read instead.
    pub(super) fn to_read(&self) -> Option<ToRead> {
        let texts = match &self.texts {
            Source::Memory(held) => Readable::Memory(held.chunks().to_vec()),
            Source::Stored(extent) => Readable::Stored(Arc::clone(extent)),
            Source::None => return None,
        };
        let (first, last) = self.bounds.clone()?;
        Some(ToRead { texts, late: Arc::clone(&self.late), first, last })
    }
}

/// Moves bounds so that they include a key.
fn widen(bounds: &mut Option<KeyBounds>, key: &[u8]) {
    let (first, last) = bounds.get_or_insert_with(|| (key.to_vec(), key.to_vec()));
    if *key < **first {
        *first = key.to_vec();
    } else if *key > **last {
        *last = key.to_vec();
    }
}

/// The texts of a section, in which a search looks for a term.
#[derive(Clone, Debug)]
pub(super) struct ToRead {
    /// The texts of most links of the section.
    pub(super) texts: Readable,
    /// The links that were added or changed since these texts were written.
    pub(super) late: SortedKeys,
    /// The first key of the section.
    pub(super) first: Vec<u8>,
    /// The last key of the section.
    pub(super) last: Vec<u8>,
}

/// The place from which a search reads texts.
#[derive(Clone, Debug)]
pub(super) enum Readable {
    Memory(Vec<Arc<TextPart>>),
    Stored(Arc<Extent>),
}
