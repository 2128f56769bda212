//! Some links that were made one after the other: which sequences of bytes their texts have, and where the texts are.

use std::sync::Arc;

use super::held::Held;
use super::part::{Part, key_of, texts_of};
use super::text_file::Extent;
use carom_limits::SEARCH_SECTION_BYTES;

/// Bytes of a text that are hashed together.
const GRAM_LEN: usize = 4;

/// Bits of a signature, a power of two.
const BITS: u32 = 1 << BITS_LOG2;
const BITS_LOG2: u32 = 17;

/// Bytes of a signature.
pub(super) const SIGNATURE_BYTES: usize = BITS as usize / 8;

/// So many bits are set in a section that is full: one in three sequences is there by chance. Of a term whose other sequences are
/// in every section, and two are rare, that leaves one section in nine to be read, which is some 100 MB of texts of 10 million links.
const FILLED: u32 = BITS / 3;

/// So many links has a section at most when it is made.
const SECTION_LEN_MAX: u32 = if cfg!(test) { 4 } else { 2_048 };

/// So many has one at most for links to come, before it is divided.
pub(super) const OPEN_LEN_MAX: u32 = 4 * SECTION_LEN_MAX;

/// Links that changed after their section was signed, with which it is signed again: a search reads each of them.
const LATE_LEN_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// What such a link takes besides its key, in bytes.
const LATE_OVERHEAD: usize = 32;

/// So many bits are set in a signature that is no longer worth asking. One more link cannot fill a new section as far as that.
const OVERFILLED: u32 = BITS / 2;

/// Of a term so many sequences are looked for.
const GRAMS_MAX: usize = 64;

/// The bits of the sequences that a text has, each perhaps several times.
fn grams(text: &[u8]) -> impl Iterator<Item = u32> + '_ {
    // Multiplicative hashing (Knuth 1973, volume 3, section 6.4), the factor being prime and near the golden ratio.
    let hash = |gram: &[u8]| {
        let gram = u32::from_le_bytes(gram.try_into().expect("it has four bytes"));
        gram.wrapping_mul(2_654_435_761) >> (u32::BITS - BITS_LOG2)
    };
    text.windows(GRAM_LEN).map(hash)
}

/// What a search looks for.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    terms: Vec<Vec<u32>>,
}

impl Needle {
    /// Of texts that have one of these.
    pub(super) fn of<'t>(terms: impl Iterator<Item = &'t str>) -> Needle {
        let bits = |term: &str| {
            let mut bits: Vec<u32> = grams(term.as_bytes()).collect();
            // In the order of hashes, so in none: a sequence that nobody has is met soon, wherever it stands.
            bits.sort_unstable();
            bits.dedup();
            bits.truncate(GRAMS_MAX);
            bits
        };
        Needle { terms: terms.map(bits).collect() }
    }
}

/// Where the texts of a section are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// In memory: those of links that were created or changed lately.
    Memory(Held),
    /// In the file.
    Stored(Arc<Extent>),
    /// Nowhere: links are read instead.
    None,
}

/// Keys in their order, each once.
pub(super) type Keys = Arc<Vec<Box<[u8]>>>;

/// The links from a key on.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) first: Box<[u8]>,
    /// None while links go on to come into it, or it has not been divided after that.
    pub(super) signature: Option<Arc<Vec<u64>>>,
    /// How many bits are set.
    set: u32,
    /// How many links it has, as far as none went.
    pub(super) len: u32,
    /// Bytes of the texts with which it was made.
    bytes: usize,
    /// The first and the last key that came into it.
    pub(super) bounds: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) texts: Source,
    /// Links that were added or changed since its texts were written: a search reads them.
    late: Keys,
    /// Bytes of those keys.
    late_bytes: usize,
}

impl Section {
    /// One that is made of links in their order.
    pub(super) fn new(first: &[u8]) -> Section {
        let signature = vec![0; BITS as usize / 64];
        Section { signature: Some(Arc::new(signature)), ..Section::open(first) }
    }

    /// One for links to come.
    pub(super) fn open(first: &[u8]) -> Section {
        Section {
            first: first.into(),
            signature: None,
            set: 0,
            len: 0,
            bytes: 0,
            bounds: None,
            texts: Source::Memory(Held::default()),
            late: Arc::default(),
            late_bytes: 0,
        }
    }

    /// One whose links a search has to read, until it is signed.
    pub(super) fn unsigned(first: &[u8]) -> Section {
        Section { texts: Source::None, ..Section::open(first) }
    }

    /// Gives it a signature.
    pub(super) fn sign(&mut self, words: Vec<u64>) {
        self.set = words.iter().map(|word| word.count_ones()).sum();
        self.signature = Some(Arc::new(words));
    }

    /// Adds an entry of [`super::part::entry_of`].
    pub(super) fn add(&mut self, entry: &[u8]) {
        if let Source::Memory(held) = &mut self.texts {
            held.push(entry);
            (self.bytes, self.len) = (held.live_bytes(), held.len() as u32);
        } else if !self.is_unsigned() {
            self.add_late(key_of(entry));
        }
        self.note(entry);
    }

    /// Links that were added or changed since its texts were written.
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
                self.set += u32::from(*word != before);
            }
        }
        let key = key_of(entry);
        let (first, last) = self.bounds.get_or_insert_with(|| (key.to_vec(), key.to_vec()));
        if *key < **first {
            *first = key.to_vec();
        } else if *key > **last {
            *last = key.to_vec();
        }
    }

    /// Moves its first key.
    pub(super) fn begin_at(&mut self, first: &[u8]) {
        self.first = first.into();
    }

    /// Moves its texts to where `save` puts them.
    pub(super) fn save(&mut self, save: impl FnOnce(&Part) -> Source) {
        if let Source::Memory(held) = &self.texts {
            self.texts = save(&Part::joined(held.chunks()));
        }
    }

    /// Drops its texts and its signature: a search reads its links until it is signed again.
    pub(super) fn forget(&mut self) {
        self.signature = None;
        self.texts = Source::None;
        self.late = Arc::default();
        self.late_bytes = 0;
    }

    /// Whether a search has to read its links.
    fn is_unsigned(&self) -> bool {
        self.signature.is_none() && matches!(self.texts, Source::None)
    }

    /// Whether it is better to begin another one.
    pub(super) fn is_full(&self, open_bytes_max: usize) -> bool {
        match &self.signature {
            Some(_) => self.set >= FILLED || self.len >= SECTION_LEN_MAX || self.bytes >= SEARCH_SECTION_BYTES,
            None => self.len >= OPEN_LEN_MAX || self.bytes >= open_bytes_max,
        }
    }

    /// Whether a closed section should be signed again, or divided although links still come into it.
    pub(super) fn is_overfull(&self, open_bytes_max: usize) -> bool {
        match &self.texts {
            Source::Memory(held) => held.live_bytes() >= 2 * open_bytes_max || self.len >= 2 * OPEN_LEN_MAX,
            _ => self.is_unsigned() || self.late.len() > LATE_LEN_MAX || self.set >= OVERFILLED,
        }
    }

    /// Bytes of memory besides the signature.
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

    /// What to look through for a term; `None` where links have to be read.
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

/// Texts in which a term may be.
#[derive(Clone, Debug)]
pub(super) struct ToRead {
    /// Those that most links of a section have.
    pub(super) texts: Readable,
    /// Links that say something else by now, or were added.
    pub(super) late: Keys,
    /// The first key of them all.
    pub(super) first: Vec<u8>,
    /// The last key.
    pub(super) last: Vec<u8>,
}

/// Where a search reads texts.
#[derive(Clone, Debug)]
pub(super) enum Readable {
    Memory(Vec<Arc<Part>>),
    Stored(Arc<Extent>),
}
