//! Copies of the sections for their file, made while links come and go.

use super::NgramFilters;
use crate::services::search::section_file::SectionImage;

/// Number of sections that are copied under one lock, before other threads get their turn.
const AT_ONCE: usize = if cfg!(test) { 2 } else { 128 };

impl NgramFilters {
    /// Appends copies of some sections, from the one that begins at a key. Returns the key at which the rest begins. If that
    /// section was dropped since the last call, it leaves a gap.
    pub(in crate::services::search) fn copy_some(
        &self,
        from: &[u8],
        images: &mut Vec<SectionImage>,
    ) -> Option<Box<[u8]>> {
        // All sections before one that was dropped are gone, too.
        let first = self.section_of(from).unwrap_or(0);
        let some = self.sections.iter().enumerate().skip(first).take(AT_ONCE);
        images.extend(some.map(|(at, section)| (section.clone(), self.end_of(at).into())));
        self.sections.get(first + AT_ONCE).map(|next| next.first.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::search::section::SIGNATURE_BYTES;

    #[test]
    fn sections_that_are_dropped_during_a_copy_leave_a_gap() {
        let mut filters = NgramFilters::new(b"", 1_000 * SIGNATURE_BYTES as u64);
        for number in 0..200_u64 {
            // A key of eight bytes. The first six are its time.
            let key = (number << 16).to_be_bytes();
            filters.add(vec![[&[8_u8][..], &key[..], b"text\xff"].concat()]);
        }
        let firsts: Vec<_> = filters.sections.iter().map(|section| section.first.clone()).collect();
        assert!(firsts.len() > 8, "{}", firsts.len());
        let mut images = Vec::new();
        let mut rest = filters.copy_some(b"", &mut images);
        assert_eq!(rest.as_ref(), Some(&firsts[2]));
        drop(filters.sections.drain(..4));
        while let Some(from) = rest {
            rest = filters.copy_some(&from, &mut images);
        }
        let copied: Vec<_> = images.iter().map(|(section, _)| section.first.clone()).collect();
        assert_eq!(copied, [&firsts[..2], &firsts[4..]].concat());
        let ends: Vec<_> = images.iter().map(|(_, end)| end.clone()).collect();
        assert_eq!(ends, [&firsts[1..3], &firsts[5..], &[Box::default()]].concat());
    }
}
