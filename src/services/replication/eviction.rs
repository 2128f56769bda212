//! A watch over the eviction policies of the Redis servers. A server that removes keys by itself loses links, leases and
//! streams of the fleet, and reports no error. Used by the heartbeat thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom_redis::EvictionPolicy;

use super::redis::{MasterPolicy, Redis, ServerAddress};
use carom_telemetry::alarms::{Alarm, Alarms};

/// Interval between two looks. An operator changes the policy rarely.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The masters that may evict keys, as far as they have answered. Used by the heartbeat thread.
#[derive(Debug, Default)]
pub(super) struct EvictionWatch {
    /// The instant of the last look.
    looked: Option<Instant>,
    evicting: BTreeMap<ServerAddress, EvictionPolicy>,
}

impl EvictionWatch {
    /// Asks the masters for their policies from time to time, and waits at most `within`. Raises or clears the alarm.
    pub(super) fn look(&mut self, redis: &mut Redis, alarms: &Alarms, within: Duration) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        self.take(redis.eviction_policies(within));
        match self.describe() {
            Some(text) => alarms.raise(Alarm::RedisEvicts, text),
            None => alarms.clear(Alarm::RedisEvicts),
        }
    }

    /// Takes the policies of all masters. A server without an answer keeps its last one.
    fn take(&mut self, policies: Vec<MasterPolicy>) {
        self.evicting.retain(|known, _| policies.iter().any(|(master, _)| master == known));
        for (master, policy) in policies {
            match policy {
                Ok(Some(policy)) if policy.may_evict() => _ = self.evicting.insert(master, policy),
                Ok(_) => _ = self.evicting.remove(&master),
                Err(error) => tracing::debug!(%error, "the eviction policy of a server is not known"),
            }
        }
    }

    /// Describes the problem and its remedy; `None` if no server may evict keys.
    fn describe(&self) -> Option<String> {
        let (first, _) = self.evicting.first_key_value()?;
        let named = |(server, policy): (&ServerAddress, &EvictionPolicy)| {
            format!("{server} has maxmemory-policy {} and maxmemory {}", policy.name, policy.maxmemory)
        };
        let servers: Vec<String> = self.evicting.iter().map(named).collect();
        let each = if servers.len() == 1 { "" } else { ", on each of them" };
        Some(format!(
            "Redis may remove links and slugs of the fleet once its memory is full: {}; run `redis-cli -h {} -p {} CONFIG SET maxmemory-policy noeviction`{each}, and set the same in the configuration of Redis",
            servers.join(", "),
            first.host,
            first.port
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::replication::redis::RedisError;

    fn server(port: u16) -> ServerAddress {
        ServerAddress { host: "10.0.0.1".to_owned(), port }
    }

    fn policy(name: &str, maxmemory: u64) -> Result<Option<EvictionPolicy>, RedisError> {
        Ok(Some(EvictionPolicy { name: name.to_owned(), maxmemory }))
    }

    #[test]
    fn servers_that_may_evict_are_named() {
        let mut watch = EvictionWatch::default();
        watch.take(vec![
            (server(1), policy("noeviction", 9)),
            (server(2), policy("allkeys-lru", 0)),
            (server(3), Ok(None)),
        ]);
        assert_eq!(watch.describe(), None);
        watch.take(vec![(server(1), policy("noeviction", 9)), (server(2), policy("allkeys-lru", 9))]);
        let text = watch.describe().unwrap();
        assert!(text.contains("10.0.0.1:2 has maxmemory-policy allkeys-lru and maxmemory 9; run"), "{text}");
        assert!(text.contains("`redis-cli -h 10.0.0.1 -p 2 CONFIG SET maxmemory-policy noeviction`, and"), "{text}");
        watch.take(vec![(server(1), policy("volatile-ttl", 9)), (server(2), policy("allkeys-lru", 9))]);
        let text = watch.describe().unwrap();
        assert!(text.contains("-p 1 CONFIG SET maxmemory-policy noeviction`, on each of them, and"), "{text}");
    }

    #[test]
    fn a_server_that_is_away_keeps_its_policy() {
        let mut watch = EvictionWatch::default();
        let away = || Err(RedisError::Unavailable { what: "refused".to_owned(), was_sent: false });
        watch.take(vec![(server(1), policy("allkeys-lru", 9)), (server(2), policy("allkeys-lru", 9))]);
        watch.take(vec![(server(1), away()), (server(2), policy("noeviction", 9))]);
        assert!(watch.describe().unwrap().contains("10.0.0.1:1 has"));
        assert!(!watch.describe().unwrap().contains("10.0.0.1:2"));
        // It is not a master any more.
        watch.take(vec![(server(2), away())]);
        assert_eq!(watch.describe(), None);
    }
}
