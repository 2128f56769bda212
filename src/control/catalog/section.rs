//! Some links that were made one after the other: which sequences of bytes their texts have, and where the texts are.

use std::sync::Arc;

use super::part::{Part, key_of, texts_of};
use super::text_file::Extent;

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

/// Bytes of texts that have come into a section after it was closed, with which it should be made anew: as many as its signature has.
const LATE_LEN_MAX: usize = if cfg!(test) { 256 } else { SIGNATURE_BYTES };

/// The same while its other texts are in memory, too.
const LATE_HELD_MAX: usize = 64 * LATE_LEN_MAX;

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

/// Where texts are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// In memory: those of links that have come lately.
    Memory(Arc<Part>),
    /// In the file.
    Stored(Arc<Extent>),
    /// Nowhere, as they could not be written: links are read instead.
    None,
}

/// The links from a key on.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) first: Box<[u8]>,
    /// None while links go on to come into it, or it has not been divided after that.
    signature: Option<Box<[u64]>>,
    /// How many bits are set.
    set: u32,
    /// How many links it has, as far as none went.
    pub(super) len: u32,
    /// The first and the last key that came into it.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) texts: Source,
    /// The texts of links that have come, or say something else, since it was closed.
    pub(super) late: Arc<Part>,
}

impl Section {
    /// Of no links yet, with a signature.
    pub(super) fn new(first: &[u8]) -> Section {
        let signature = vec![0; BITS as usize / u64::BITS as usize].into();
        Section { signature: Some(signature), ..Section::open(first) }
    }

    /// For links to come.
    pub(super) fn open(first: &[u8]) -> Section {
        Section {
            first: first.into(),
            signature: None,
            set: 0,
            len: 0,
            bounds: None,
            texts: Source::Memory(Arc::default()),
            late: Arc::default(),
        }
    }

    /// Takes in what [`super::part::entry_of`] gave.
    pub(super) fn add(&mut self, entry: &[u8]) {
        if let Source::Memory(part) = &mut self.texts {
            Arc::make_mut(part).push(entry);
        }
        self.note(entry);
    }

    /// The same when its texts may be in the file already.
    pub(super) fn add_late(&mut self, entry: &[u8]) {
        Arc::make_mut(&mut self.late).push(entry);
        self.note(entry);
    }

    fn note(&mut self, entry: &[u8]) {
        if let Some(signature) = &mut self.signature {
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
        self.len += 1;
    }

    /// From now on it begins here.
    pub(super) fn begin_at(&mut self, first: &[u8]) {
        self.first = first.into();
    }

    /// Puts its texts elsewhere: what `save` makes of them.
    pub(super) fn save(&mut self, save: impl FnOnce(&Part) -> Source) {
        if let Source::Memory(part) = &self.texts {
            self.texts = save(part);
        }
    }

    /// Whether it is better to begin another one.
    pub(super) fn is_full(&self) -> bool {
        match &self.signature {
            Some(_) => self.set >= FILLED || self.len >= SECTION_LEN_MAX,
            None => self.len >= OPEN_LEN_MAX,
        }
    }

    /// Whether so much has come into it since it was closed.
    pub(super) fn should_be_made_anew(&self) -> bool {
        let many = if matches!(self.texts, Source::Memory(_)) { LATE_HELD_MAX } else { LATE_LEN_MAX };
        self.late.len() > many
    }

    pub(super) fn may_have(&self, needle: &Needle) -> bool {
        let Some(signature) = &self.signature else { return self.bounds.is_some() };
        let has = |bit: &u32| signature[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
        needle.terms.iter().any(|term| term.iter().all(has))
    }

    pub(super) fn to_read(&self) -> Option<ToRead> {
        let (first, last) = self.bounds.clone()?;
        Some(ToRead { texts: self.texts.clone(), late: Arc::clone(&self.late), first, last })
    }
}

/// Texts in which a term may be.
#[derive(Clone, Debug)]
pub(super) struct ToRead {
    /// Those that most links of a section have.
    pub(super) texts: Source,
    /// The other ones.
    pub(super) late: Arc<Part>,
    /// The first key of them all.
    pub(super) first: Vec<u8>,
    /// The last key.
    pub(super) last: Vec<u8>,
}
