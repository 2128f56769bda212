//! Records and codes of the store on their way to the cores that own them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carom_shards::CodeHash;

/// Records read from the store at start, all of one owner, in their stored form one after another. The owner decodes them, so that
/// decoding runs on all cores at once.
#[derive(Debug, Default)]
pub struct LoadBatch {
    /// For each record: length of the key (2 bytes), length of the value (4 bytes), both little-endian; key; value.
    pub bytes: Vec<u8>,
    /// How many records.
    pub records: u32,
    /// How many commits had ended before the first of them was read, see [`crate::store::links::Links::commits`].
    pub as_of: u64,
    /// Tells the sender, when the batch is dropped, that its bytes are no longer waiting.
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

    /// The records, as key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        LoadBatch::records_of(&self.bytes)
    }

    /// The records in such bytes, as key and value.
    pub fn records_of(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = bytes;
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

/// A share of what may be on its way to the cores: bytes at start, or codes. Given back when it is dropped.
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

/// The codes that the store has of one owner, sent piece by piece.
#[derive(Debug)]
pub enum StoredCodes {
    /// The codes will follow. The sender begins to read the store after this.
    Begin,
    /// Some of them.
    Some {
        /// Their hashes.
        hashes: Vec<CodeHash>,
        /// Tells the sender, when this is dropped, that the codes are no longer waiting.
        credit: LoadCredit,
    },
    /// The codes have all been sent.
    End {
        /// Whether these were all codes of the store. If not, they are of no use.
        is_whole: bool,
    },
}
