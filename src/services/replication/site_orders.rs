//! The orders of an operator about the sites, in the Redis of this one: the site is complete again, or the other site is
//! given up.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::giving_up;
use super::redis::{HeartbeatReply, OtherSpace, Redis, RedisError};
use crate::bridge::{GiveUpOrder, GiveUpOutcome, GiveUpReport, SiteOrders};

/// Timeout of Redis. An operator waits for it.
const REDIS_TIMEOUT: Duration = Duration::from_secs(2);

/// The orders, with a client of the Redis of each site. A client opens its connection when it is first used.
pub struct RedisSiteOrders {
    redis: Mutex<[Redis; 2]>,
    site: String,
    other: String,
}

impl RedisSiteOrders {
    /// Returns the orders of a site. The arguments are a client of its own Redis, one of the other Redis, and the names of both
    /// sites.
    pub fn new(own: Redis, other: Redis, (site, other_site): (String, String)) -> RedisSiteOrders {
        RedisSiteOrders { redis: Mutex::new([own, other]), site, other: other_site }
    }
}

impl fmt::Debug for RedisSiteOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSiteOrders(of {})", self.site)
    }
}

impl SiteOrders for RedisSiteOrders {
    fn site(&self) -> &str {
        &self.site
    }

    fn complete(&self) -> Result<bool, String> {
        let mut redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        let [own, _] = &mut *redis;
        let is_completed = own.complete_site(REDIS_TIMEOUT).map_err(|error| error.to_string())?;
        if is_completed {
            tracing::info!(site = self.site, "an operator has declared the site complete");
        }
        Ok(is_completed)
    }

    fn give_up(&self, order: &GiveUpOrder) -> Result<GiveUpReport, String> {
        let mut redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        let [own, other] = &mut *redis;
        let notes = own.site_notes(REDIS_TIMEOUT).map_err(|error| error.to_string())?;
        let is_done = notes.given_up.as_ref() == Some(&self.other);
        let mut floors = notes.floors.clone();
        let mut damaged = Vec::new();
        let heard = hear(other, &self.other).map(|OtherSite { heard, now_ms, space }| {
            floors.extend(space.floors);
            damaged = space.damaged_floors;
            (heard, now_ms)
        });
        let heard = heard.map_err(|error| error.to_string());
        let alive = heard.as_ref().map_or_else(|_| Vec::new(), |(heard, now_ms)| giving_up::alive(heard, *now_ms));
        let found = heard.as_ref().map(|(heard, _)| heard).map_err(String::as_str);
        let losses =
            if is_done { Vec::new() } else { giving_up::losses((self.other.as_str(), &damaged[..]), &notes, found) };
        let outcome = giving_up::decide(order, (self.other.as_str(), is_done), &alive, &losses);
        if outcome == GiveUpOutcome::Done && !is_done {
            if (heard.is_err() || !damaged.is_empty()) && !notes.damaged_floors().is_empty() {
                let [key, _] = own.site_keys();
                let fields = notes.damaged_floors().join(", ");
                return Err(format!(
                    "the counter values of the site {} are not known, because {fields} of {key} in Redis is damaged and its own Redis cannot be read or is damaged, too; start that Redis and its nodes",
                    self.other
                ));
            }
            let above = giving_up::above(floors);
            own.give_up_site(&self.other, &above, REDIS_TIMEOUT).map_err(|error| error.to_string())?;
            tracing::info!(site = self.other, "an operator has given up the other site");
        }
        Ok(GiveUpReport { other: self.other.clone(), alive, losses, outcome })
    }
}

/// Statements of the Redis of the other site about its nodes.
struct OtherSite {
    /// The last heartbeats of its nodes.
    heard: HeartbeatReply,
    /// The present time by the clock of that Redis, in milliseconds since 1970 UTC.
    now_ms: u64,
    /// The code space of that site, with the highest counter values that its nodes have leased.
    space: OtherSpace,
}

/// Asks the Redis of the other site about it.
fn hear(redis: &mut Redis, site: &str) -> Result<OtherSite, RedisError> {
    let space = redis.other_space(REDIS_TIMEOUT)?;
    if space.site.as_deref() != Some(site) {
        // It may have lost everything, or fleet.other_redis is wrong.
        return Err(RedisError::Refused(format!("it does not know the site {site}")));
    }
    let (heard, now_ms) = redis.heartbeats(REDIS_TIMEOUT)?;
    Ok(OtherSite { heard, now_ms, space })
}
