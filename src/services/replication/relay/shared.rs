//! Merges API keys and redirects of domains of the other site into the Redis of this one, from which its nodes merge them.
//! Copies of both merge in any order.

use std::time::{Duration, Instant};

use super::{Failure, Relay};
use crate::services::{api_keys, domain_redirects};
use carom_model::access::registry::Registry;
use carom_model::domains::redirects::RedirectChanges;

/// Interval between two merges.
const SHARE_EVERY: Duration = Duration::from_secs(2);

impl Relay {
    /// Merges what the other site has, if it is time.
    pub(super) fn share(&mut self) -> Result<(), Failure> {
        if self.shared.is_some_and(|at| at.elapsed() < SHARE_EVERY) {
            return Ok(());
        }
        self.shared = Some(Instant::now());
        let keys = api_keys::share(&mut self.other, &Registry::default()).map_err(Failure::Other)?;
        api_keys::share(&mut self.own, &keys.theirs).map_err(Failure::Own)?;
        let redirects =
            domain_redirects::exchange(&mut self.other, &RedirectChanges::default()).map_err(Failure::Other)?;
        domain_redirects::exchange(&mut self.own, &redirects).map_err(Failure::Own)?;
        Ok(())
    }
}
