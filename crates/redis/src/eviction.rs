//! The eviction policy of a server: whether it removes keys by itself once its memory is full.

use redis::Value;

use super::reply::text;

/// The policy that keeps every key, and refuses writes once the memory is full.
const NO_EVICTION: &str = "noeviction";

/// The limit of a server's memory, and the policy by which it makes room once the limit is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvictionPolicy {
    /// The name of the policy, as in `maxmemory-policy`.
    pub name: String,
    /// The limit in bytes, as in `maxmemory`; 0 for none.
    pub maxmemory: u64,
}

impl EvictionPolicy {
    /// Parses the reply to `INFO memory`, a command that servers accept even if they forbid `CONFIG`. Returns `None` if
    /// the reply lacks the limit or the policy, as that of another engine may.
    pub fn parse(info: &Value) -> Option<EvictionPolicy> {
        let info = text(info);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let maxmemory = field("maxmemory")?.trim().parse().ok()?;
        Some(EvictionPolicy { name: field("maxmemory_policy")?.trim().to_owned(), maxmemory })
    }

    /// True if the server may remove keys. Without a limit, it never has to make room.
    pub fn may_evict(&self) -> bool {
        self.maxmemory > 0 && self.name != NO_EVICTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(info: &str) -> Option<EvictionPolicy> {
        EvictionPolicy::parse(&Value::BulkString(info.into()))
    }

    #[test]
    fn limit_and_policy_are_read() {
        let info = "# Memory\r\nused_memory:7\r\nmaxmemory:1048576\r\nmaxmemory_human:1.00M\r\n\
                    maxmemory_policy:allkeys-lru\r\n";
        let policy = EvictionPolicy { name: "allkeys-lru".to_owned(), maxmemory: 1 << 20 };
        assert_eq!(parsed(info), Some(policy));
    }

    #[test]
    fn other_replies_say_nothing() {
        for info in [
            "",
            "maxmemory:0\r\n",
            "maxmemory_policy:noeviction\r\n",
            "maxmemory:\r\nmaxmemory_policy:noeviction\r\n",
            "maxmemory_human:1.00M\r\nmaxmemory_policy:noeviction\r\n",
        ] {
            assert_eq!(parsed(info), None, "{info}");
        }
        assert_eq!(EvictionPolicy::parse(&Value::Nil), None);
    }

    #[test]
    fn only_full_memory_evicts() {
        let may_evict = |name: &str, maxmemory: u64| EvictionPolicy { name: name.to_owned(), maxmemory }.may_evict();
        for name in ["allkeys-lru", "allkeys-random", "volatile-lfu", "volatile-ttl"] {
            assert!(may_evict(name, 1), "{name}");
            assert!(!may_evict(name, 0), "{name}");
        }
        assert!(!may_evict("noeviction", 1));
    }
}
