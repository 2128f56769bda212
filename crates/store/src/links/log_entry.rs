//! The entries of the change log, and its end.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use carom_shards::Code;

/// The end of the log. The lock orders commits of links, so that an entry is visible before any later one.
#[derive(Debug, Default)]
pub(super) struct LogEnd {
    pub(super) commits: Mutex<()>,
    pub(super) position: AtomicU64,
    /// Changed codes since the store was opened.
    pub(super) codes: AtomicU64,
}

/// The codes that a batch changes, in the format of the log: each as the length of its key and the key.
#[derive(Debug, Default)]
pub(super) struct LoggedCodes {
    pub(super) entry: Vec<u8>,
    pub(super) codes: u64,
}

impl LoggedCodes {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.entry.push(u8::try_from(key.len()).expect("keys of codes are short"));
        self.entry.extend_from_slice(key);
        self.codes += 1;
    }

    /// True if each code is there once.
    pub(super) fn is_distinct(&self) -> bool {
        let mut seen = std::collections::HashSet::new();
        decode(&self.entry, |code| _ = seen.insert(code)) && seen.len() as u64 == self.codes
    }
}

/// Passes the keys of an entry to `each`. Returns false if the entry is malformed.
pub(super) fn decode(mut entry: &[u8], mut each: impl FnMut(Code)) -> bool {
    while let Some((&len, rest)) = entry.split_first() {
        let Some((key, behind)) = rest.split_at_checked(usize::from(len)) else { return false };
        let Ok(code) = Code::from_key(key) else { return false };
        each(code);
        entry = behind;
    }
    true
}
