//! Visits of limited links, which Redis grants to the nodes of a fleet.

use std::time::Duration;

use carom_redis::{Question, RedisError, Value, cmd};
use carom_shards::Code;

use super::client::{KeyGroup, Redis, Script, nonsense};
use carom_model::purge::PurgedLink;
use carom_model::replication::Partition;
use carom_model::visits::allowance::{SHARE_MAX, VisitGrant};

/// Time for which Redis remembers a link without visits. Nodes remember it, too.
const KEPT: Duration = Duration::from_secs(400 * 86_400);

/// Links whose numbers of granted visits are removed at once.
const REMOVED_TOGETHER: usize = 500;

/// A link for which a node requests visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// The code of the link.
    pub code: Code,
    /// The claim of the link. Another link with the same code starts from zero.
    pub claim: u64,
    /// The maximum number of visits.
    pub max: u64,
    /// The granted visits, as far as this node knows.
    pub taken: u64,
    /// Number of clients that wait on this node.
    pub waiting: u64,
}

impl Redis {
    /// Requests visits of each of these links, and waits at most `within`. Returns the grant of each link.
    pub fn allow(&mut self, asked: &[Allowance], within: Duration) -> Vec<Result<VisitGrant, RedisError>> {
        let questions = asked
            .iter()
            .map(|Allowance { code, claim, max, taken, waiting }| {
                let place = KeyGroup::Partition(Partition::of(code));
                let keys = vec![self.grants_key(code, *claim)];
                let numbers = [*max, *taken, *waiting, SHARE_MAX, KEPT.as_millis() as u64];
                let arguments = numbers.iter().map(|number| number.to_string().into_bytes()).collect();
                (place, Script::Allow.call(keys, arguments))
            })
            .collect();
        self.ask_all(questions, within).into_iter().map(|answer| grant(&answer?)).collect()
    }

    /// Returns the key of the number of granted visits of a link.
    fn grants_key(&self, code: &Code, claim: u64) -> String {
        format!("{}:v:{code}:{claim:016x}", self.tag(KeyGroup::Partition(Partition::of(code))))
    }

    /// Removes the numbers of granted visits of deleted links. Redis would keep them for [`KEPT`]. Leaves out a link without a
    /// known claim, which a node of an earlier version has purged.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer for a link, or refused.
    pub fn forget_grants(&mut self, links: &[PurgedLink], within: Duration) -> Result<(), RedisError> {
        for some in links.chunks(REMOVED_TOGETHER) {
            let question = |link: &PurgedLink| {
                let remove = cmd("DEL").arg(self.grants_key(&link.code, link.claim?)).to_owned();
                Some((KeyGroup::Partition(Partition::of(&link.code)), Question::Plain(remove)))
            };
            let questions = some.iter().filter_map(question).collect();
            self.ask_all(questions, within).into_iter().try_for_each(|answer| answer.map(drop))?;
        }
        Ok(())
    }
}

fn grant(answer: &Value) -> Result<VisitGrant, RedisError> {
    let number = |value: &Value| if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None };
    if let Value::Array(values) = answer
        && let [given, taken] = &values[..]
        && let (Some(given), Some(taken)) = (number(given), number(taken))
    {
        return Ok(VisitGrant { given, taken });
    }
    Err(nonsense("the number of visits left"))
}
