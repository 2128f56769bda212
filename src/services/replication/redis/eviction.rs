//! The eviction policies of the masters, of which each has a part of the fleet's keys.

use std::time::Duration;

use carom_redis::{EvictionPolicy, RedisCommand, RedisError, RequestRoute, ServerAddress, cmd};

use super::client::Redis;

/// A master, with its eviction policy. The policy is `None` if the server does not name one.
pub type MasterPolicy = (ServerAddress, Result<Option<EvictionPolicy>, RedisError>);

impl Redis {
    /// Asks every known master for its eviction policy, and waits at most `within`. Before the first request, none is known.
    /// Each result has the error of its own server: it did not answer, or refused.
    pub fn eviction_policies(&mut self, within: Duration) -> Vec<MasterPolicy> {
        let masters = self.client.masters().to_vec();
        let info = || RedisCommand::Plain(cmd("INFO").arg("memory").to_owned());
        let questions = masters.iter().map(|master| (RequestRoute::Server(master.clone()), info())).collect();
        let answers = self.client.ask_all(questions, within);
        assert_eq!(answers.len(), masters.len(), "the policy of one server would be taken for that of another");
        let policies = answers.into_iter().map(|answer| answer.map(|info| EvictionPolicy::parse(&info)));
        masters.into_iter().zip(policies).collect()
    }
}
