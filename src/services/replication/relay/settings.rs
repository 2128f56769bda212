//! Compares the settings of this site with those of the other one, by the heartbeats of its nodes.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{OTHER_TIME, Relay};
use crate::services::replication::agreement::difference_of_sites;

/// Interval between two comparisons. They read the descriptions of all nodes of the other site.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

impl Relay {
    /// Compares the settings from time to time, and tells the heartbeat thread, which raises the alarm. After an error, the
    /// last result stays.
    pub(super) fn compare_settings(&mut self) {
        if self.compared.is_some_and(|at| at.elapsed() < COMPARE_EVERY) {
            return;
        }
        self.compared = Some(Instant::now());
        match self.other.heartbeats(OTHER_TIME) {
            Ok((heard, now_ms)) => {
                let names = (self.site.name.as_str(), self.site.other.as_str());
                self.tell_difference(difference_of_sites(&self.fleet.settings.agreed, names, &heard, now_ms));
            }
            Err(error) => tracing::debug!(%error, "the settings of the other site are not known"),
        }
    }

    /// Tells the heartbeat thread in which settings the sites differ; `None` for none, and for a node that is not the
    /// relay.
    pub(super) fn tell_difference(&self, text: Option<String>) {
        *self.fleet.stats.fleet.site.differing.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}
