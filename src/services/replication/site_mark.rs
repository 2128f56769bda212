//! The mark of this site in its Redis, which an operator removes once the site has all links again.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::redis::Redis;
use crate::bridge::SiteMark;

/// Timeout of Redis. An operator waits for it.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The mark of this site in its Redis. The relay sets it, and all nodes of the site read it. It opens a connection on
/// first use.
pub struct RedisSiteMark {
    redis: Mutex<Redis>,
    site: String,
}

impl RedisSiteMark {
    /// Returns the mark of the site with this name, which is that of the Redis.
    pub fn new(redis: Redis, site: String) -> RedisSiteMark {
        RedisSiteMark { redis: Mutex::new(redis), site }
    }
}

impl fmt::Debug for RedisSiteMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSiteMark(of {})", self.site)
    }
}

impl SiteMark for RedisSiteMark {
    fn site(&self) -> &str {
        &self.site
    }

    fn complete(&self) -> Result<bool, String> {
        let mut redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        let is_completed = redis.complete_site(ANSWER_TIME).map_err(|error| error.to_string())?;
        if is_completed {
            tracing::info!(site = self.site, "an operator has declared the site complete");
        }
        Ok(is_completed)
    }
}
