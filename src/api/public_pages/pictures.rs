//! The cache of QR codes of a core.

use std::collections::HashMap;

use bytes::Bytes;

use crate::pages::qr::Drawing;
use carom_limits::PICTURES_KEPT_BYTES;

/// Parameters of a requested QR code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::api) struct QrParams {
    pub(super) is_svg: bool,
    pub(super) drawing: Drawing,
}

/// A short URL and the parameters of its QR code.
type PictureKey = (String, QrParams);

/// The cache of QR codes of a core: the most recently used ones, up to a number of bytes.
#[derive(Debug, Default)]
pub(in crate::api) struct Pictures {
    kept: HashMap<PictureKey, Kept>,
    bytes: usize,
    /// Number of uses so far: the clock of the cache.
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    bytes: Bytes,
    last_used: u64,
}

/// Bytes of an entry besides its URL and its image.
const ENTRY_BYTES: usize = 128;

impl Pictures {
    pub(super) fn get(&mut self, key: &PictureKey) -> Option<Bytes> {
        self.clock += 1;
        let kept = self.kept.get_mut(key)?;
        kept.last_used = self.clock;
        Some(kept.bytes.clone())
    }

    pub(super) fn keep(&mut self, key: PictureKey, bytes: Bytes) {
        let size = |key: &PictureKey, bytes: &Bytes| ENTRY_BYTES + key.0.len() + bytes.len();
        self.clock += 1;
        // Two concurrent requests may both have rendered this image.
        self.bytes += size(&key, &bytes);
        self.bytes -= self.kept.get(&key).map_or(0, |before| size(&key, &before.bytes));
        self.kept.insert(key, Kept { bytes, last_used: self.clock });
        if self.bytes > PICTURES_KEPT_BYTES {
            // Evicts a quarter at once, so that most inserts need no scan.
            let mut uses: Vec<u64> = self.kept.values().map(|kept| kept.last_used).collect();
            let place = uses.len() / 4;
            let (_, oldest, _) = uses.select_nth_unstable(place);
            let oldest = *oldest;
            self.kept.retain(|_, kept| kept.last_used > oldest);
            self.bytes = self.kept.iter().map(|(key, kept)| size(key, &kept.bytes)).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::qr::Correction;

    const WANTED: QrParams =
        QrParams { is_svg: false, drawing: Drawing { size: 300, margin: None, correction: Correction::Medium } };

    #[test]
    fn pictures_that_were_used_last_are_kept_within_their_bytes() {
        let mut pictures = Pictures::default();
        let key = |number: usize| (format!("https://s.test/{number:06}"), WANTED);
        let picture = Bytes::from(vec![0; 8 * 1024]);
        for number in 0..1_000 {
            pictures.keep(key(number), picture.clone());
            assert_eq!(pictures.get(&key(0)), Some(picture.clone()), "it is asked for all the time");
            assert!(pictures.bytes <= PICTURES_KEPT_BYTES, "{}", pictures.bytes);
        }
        assert!(pictures.get(&key(999)).is_some());
        assert!(pictures.get(&key(1)).is_none());
        assert!(pictures.kept.len() > PICTURES_KEPT_BYTES / (8 * 1024) / 2);
        let before = pictures.bytes;
        pictures.keep(key(999), picture);
        assert_eq!(pictures.bytes, before);
    }
}
