//! The share of this node in the rate limit of each app. The nodes of a fleet divide `createsPerSecond` by where the
//! creates arrive: every second each publishes how many it had, and computes its share from those of all. The shares
//! add up to the whole, so the fleet keeps the limit without asking anyone about a create.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::services::replication::redis::{Redis, RedisError};
use carom_model::access::AppName;
use carom_model::access::usage::{App, share_of};
use carom_telemetry::stats::NodeStats;

/// Silence after which a node has no share. Its creates are late by then, or it is gone.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// The demand of this node, by app.
#[derive(Debug, Default)]
pub(super) struct RateShares {
    /// Attempts to create until the last exchange, and how many of them count as the demand of a second.
    demand: HashMap<AppName, (u64, u64)>,
    /// True if Redis has a demand of this node other than zero.
    is_published: bool,
}

impl RateShares {
    /// Publishes the demand of this node, and sets the share of each app.
    ///
    /// # Errors
    /// [`RedisError`]; the shares stay as they are then.
    pub(super) fn exchange(
        &mut self,
        redis: &mut Redis,
        apps: &HashMap<AppName, Arc<App>>,
        stats: &NodeStats,
        within: Duration,
    ) -> Result<(), RedisError> {
        let me = stats.fleet.about.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        let alive = alive(stats, &me);
        if me.is_empty() {
            return Ok(());
        }
        let mine = self.measure(apps);
        let publishes = (!mine.is_empty() || self.is_published).then(|| encode(&mine));
        let all = redis.share_creates(&me, publishes.as_deref(), within)?;
        self.is_published = !mine.is_empty();
        let others: Vec<HashMap<String, u64>> =
            all.iter().filter(|(node, _)| *node != me && alive.contains(node)).map(|(_, text)| decode(text)).collect();
        for (name, app) in apps {
            let own = mine.get(name.as_str()).copied().unwrap_or(0);
            let of_others: u64 = others.iter().filter_map(|demand| demand.get(name.as_str())).sum();
            app.set_share(share_of(own, own.saturating_add(of_others), alive.len()));
        }
        Ok(())
    }

    /// Returns the demand of each app that has any.
    fn measure(&mut self, apps: &HashMap<AppName, Arc<App>>) -> HashMap<String, u64> {
        let mut all = HashMap::new();
        for (name, app) in apps {
            let tried = app.tried();
            let (before, demand) = self.demand.entry(name.clone()).or_default();
            // Half of the last second counts once more, so that a pause between two creates does not move the share.
            *demand = (tried - std::mem::replace(before, tried)).max(*demand / 2);
            if *demand > 0 {
                all.insert(name.as_str().to_owned(), *demand);
            }
        }
        all
    }
}

/// Returns the names of the nodes that take part, this one included.
fn alive(stats: &NodeStats, me: &str) -> Vec<String> {
    let members = stats.fleet.members.lock().unwrap_or_else(PoisonError::into_inner);
    let others = members.iter().filter(|member| member.node != me && member.heard.elapsed() < SILENT_MAX);
    others.map(|member| member.node.clone()).chain([me.to_owned()]).collect()
}

fn encode(demand: &HashMap<String, u64>) -> String {
    serde_json::json!(demand).to_string()
}

/// Parses the demand of another node. A malformed one counts as none.
fn decode(text: &str) -> HashMap<String, u64> {
    serde_json::from_str(text).unwrap_or_default()
}
