//! Merges API keys, redirects of domains and saved destination rules of the other site into the Redis of this one. The nodes
//! merge them from there, in any order.

use std::time::{Duration, Instant};

use super::{MERGED, SiteSync};
use crate::services::replication::redis::RedisError;
use crate::services::{api_keys, destination_rules, domain_redirects};
use carom_model::access::registry::Registry;
use carom_model::destination::rules::SavedRules;
use carom_model::domains::redirects::RedirectChanges;

/// Interval between two merges.
const SHARE_EVERY: Duration = Duration::from_secs(2);

/// The merge of one part.
type PartMerge = fn(&mut SiteSync) -> Result<(), RedisError>;

impl SiteSync {
    /// Merges what the other site has, if it is time. A part that a site refuses is reported, and stops no other one.
    ///
    /// # Errors
    /// [`RedisError::Unavailable`]: the other parts would have to wait for an answer, too.
    pub(super) fn merge_shared(&mut self) -> Result<(), RedisError> {
        if self.shared.is_some_and(|at| at.elapsed() < SHARE_EVERY) {
            return Ok(());
        }
        self.shared = Some(Instant::now());
        let parts: [PartMerge; MERGED.len()] = [SiteSync::merge_keys, SiteSync::merge_redirects, SiteSync::merge_rules];
        for (at, merge) in parts.into_iter().enumerate() {
            let merged = merge(self);
            if matches!(merged, Err(RedisError::Unavailable { .. })) {
                return merged;
            }
            self.reports[at].take(merged);
        }
        Ok(())
    }

    fn merge_keys(&mut self) -> Result<(), RedisError> {
        let keys = api_keys::share(&mut self.other, &Registry::default())?;
        api_keys::share(&mut self.own, &keys.theirs).map(drop)
    }

    fn merge_redirects(&mut self) -> Result<(), RedisError> {
        let redirects = domain_redirects::exchange(&mut self.other, &RedirectChanges::default())?;
        domain_redirects::exchange(&mut self.own, &redirects.changes).map(drop)
    }

    fn merge_rules(&mut self) -> Result<(), RedisError> {
        let rules = destination_rules::exchange(&mut self.other, &SavedRules::default())?;
        let Some(theirs) = rules.saved else { return Ok(()) };
        destination_rules::exchange(&mut self.own, &theirs).map(drop)
    }
}
