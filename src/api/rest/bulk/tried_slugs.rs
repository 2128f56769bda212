//! The slugs that earlier lines of a dry run would have taken.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use carom_limits::BULK_SLUGS_TRIED;
use carom_model::link::Link;

/// Hashes of slugs and of their destinations, for at most [`BULK_SLUGS_TRIED`] slugs.
#[derive(Default)]
pub(super) struct TriedSlugs {
    destinations: HashMap<u64, u64>,
    hasher: RandomState,
}

impl TriedSlugs {
    /// Takes the slug of a link. Returns `None` if it was free, or else true if an earlier link with this slug has the
    /// same destination.
    pub(super) fn take(&mut self, link: &Link) -> Option<bool> {
        let (slug, destination) = (self.hasher.hash_one(link.code), self.hasher.hash_one(&link.target));
        let earlier = self.destinations.get(&slug).copied();
        if earlier.is_none() && self.destinations.len() < BULK_SLUGS_TRIED {
            self.destinations.insert(slug, destination);
            return None;
        }
        earlier.map(|earlier| earlier == destination)
    }
}
