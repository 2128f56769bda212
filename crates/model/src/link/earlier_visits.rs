//! The visits of a link before it was imported into a running service.
//!
//! The record of the link has them, so one write stores both, and they reach the other nodes of a fleet with the link.
//! They belong to no day: other shorteners report how many there were, but not when.

/// The most earlier visits of one link. The sums of all links stay far from overflow.
pub const EARLIER_VISITS_MAX: u64 = 1 << 48;

/// Length of the stored form, in bytes.
const STORED_LEN: usize = 16;

/// The number of visits that a link had before, and of bots among them. The number is from 1 to [`EARLIER_VISITS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierVisits {
    total: u64,
    bots: u64,
}

impl EarlierVisits {
    /// Returns the visits; `None` if there were none. More than [`EARLIER_VISITS_MAX`], or more bots than visits, are
    /// cut off.
    pub fn new(total: u64, bots: u64) -> Option<EarlierVisits> {
        let total = total.min(EARLIER_VISITS_MAX);
        (total > 0).then_some(EarlierVisits { total, bots: bots.min(total) })
    }

    /// Returns the number of visits.
    pub fn total(self) -> u64 {
        self.total
    }

    /// Returns the number of bots among the visits.
    pub fn bots(self) -> u64 {
        self.bots
    }

    /// Returns the stored form.
    pub fn to_bytes(self) -> [u8; STORED_LEN] {
        let mut bytes = [0; STORED_LEN];
        bytes[..8].copy_from_slice(&self.total.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bots.to_le_bytes());
        bytes
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<EarlierVisits> {
        let (total, bots) = bytes.split_at_checked(8)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let (total, bots) = (number(total)?, number(bots)?);
        EarlierVisits::new(total, bots).filter(|visits| (visits.total, visits.bots) == (total, bots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded_and_read_back() {
        assert_eq!(EarlierVisits::new(0, 5), None);
        let visits = EarlierVisits::new(u64::MAX, u64::MAX).unwrap();
        assert_eq!((visits.total(), visits.bots()), (EARLIER_VISITS_MAX, EARLIER_VISITS_MAX));
        let visits = EarlierVisits::new(7, 2).unwrap();
        assert_eq!(EarlierVisits::from_bytes(&visits.to_bytes()), Some(visits));
        for wrong in [&[0; 16][..], &[1; 15], &[1; 17], &[0xff; 16], b""] {
            assert_eq!(EarlierVisits::from_bytes(wrong), None, "{wrong:?}");
        }
        let more_bots_than_visits = [2u64.to_le_bytes(), 3u64.to_le_bytes()].concat();
        assert_eq!(EarlierVisits::from_bytes(&more_bots_than_visits), None);
    }
}
