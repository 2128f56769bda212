//! Merges API keys and redirects of domains of the other site into the Redis of this one. The nodes merge them from there, in
//! any order.

use std::time::{Duration, Instant};

use super::SiteSync;
use crate::services::replication::redis::RedisError;
use crate::services::{api_keys, domain_redirects};
use carom_model::access::registry::Registry;
use carom_model::domains::redirects::RedirectChanges;

/// Interval between two merges.
const SHARE_EVERY: Duration = Duration::from_secs(2);

impl SiteSync {
    /// Merges what the other site has, if it is time.
    pub(super) fn merge_shared(&mut self) -> Result<(), RedisError> {
        if self.shared.is_some_and(|at| at.elapsed() < SHARE_EVERY) {
            return Ok(());
        }
        self.shared = Some(Instant::now());
        let keys = api_keys::share(&mut self.other, &Registry::default())?;
        api_keys::share(&mut self.own, &keys.theirs)?;
        let redirects = domain_redirects::exchange(&mut self.other, &RedirectChanges::default())?;
        domain_redirects::exchange(&mut self.own, &redirects)?;
        Ok(())
    }
}
