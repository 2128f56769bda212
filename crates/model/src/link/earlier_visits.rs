//! The visits of a link before it was imported into a running service.
//!
//! The record of the link has them, so one write stores both, and they reach the other nodes of a fleet with the link.
//! They belong to no day: other shorteners report how many there were, but not when.

use xxhash_rust::xxh3::xxh3_64;

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

/// The earlier visits of a link that has ended. The sums over all links, apps and domains keep them. If the same link is
/// imported again, its visits replace these in the sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedVisits {
    created_ms: u64,
    /// A hash of the destination.
    destination: u64,
    visits: EarlierVisits,
    app: Option<Box<str>>,
}

impl EndedVisits {
    /// Returns the visits of a link that was created at this time, in milliseconds since 1970 UTC.
    pub fn new(created_ms: u64, target: &str, visits: EarlierVisits, app: Option<&str>) -> EndedVisits {
        EndedVisits { created_ms, destination: xxh3_64(target.as_bytes()), visits, app: app.map(Into::into) }
    }

    /// True if an imported link with the same code is the one that has ended. Then the other shortener has created both
    /// at the same time, or both have the same destination.
    pub fn is_of(&self, created_ms: u64, target: &str) -> bool {
        self.created_ms == created_ms || self.destination == xxh3_64(target.as_bytes())
    }

    /// Returns the time at which the link was created, in milliseconds since 1970 UTC.
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// Returns the visits that the link had before its import.
    pub fn visits(&self) -> EarlierVisits {
        self.visits
    }

    /// Returns the app of the link.
    pub fn app(&self) -> Option<&str> {
        self.app.as_deref()
    }

    /// Returns the stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.created_ms.to_le_bytes(), self.destination.to_le_bytes()].concat();
        bytes.extend_from_slice(&self.visits.to_bytes());
        bytes.extend_from_slice(self.app().unwrap_or_default().as_bytes());
        bytes
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<EndedVisits> {
        let (created_ms, rest) = bytes.split_first_chunk::<8>()?;
        let (destination, rest) = rest.split_first_chunk::<8>()?;
        let (visits, app) = rest.split_at_checked(STORED_LEN)?;
        let app = std::str::from_utf8(app).ok()?;
        Some(EndedVisits {
            created_ms: u64::from_le_bytes(*created_ms),
            destination: u64::from_le_bytes(*destination),
            visits: EarlierVisits::from_bytes(visits)?,
            app: (!app.is_empty()).then(|| app.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_link_is_recognised_and_read_back() {
        let visits = EarlierVisits::new(7, 2).unwrap();
        for app in [None, Some("shop")] {
            let ended = EndedVisits::new(5, "https://a.example/", visits, app);
            assert_eq!(EndedVisits::from_bytes(&ended.to_bytes()), Some(ended.clone()));
            assert!(ended.is_of(5, "https://b.example/"), "its destination was changed");
            assert!(ended.is_of(6, "https://a.example/"), "the other shortener names no date");
            assert!(!ended.is_of(6, "https://b.example/"));
            assert_eq!(EndedVisits::from_bytes(&ended.to_bytes()[..31]), None);
        }
        assert_eq!(EndedVisits::from_bytes(&[0; 40]), None);
    }

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
