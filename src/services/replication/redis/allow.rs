//! Visits of limited links, which Redis grants to the nodes of a fleet.

use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};
use carom_shards::Code;

use super::client::{KeyGroup, Redis, Script, nonsense};
use carom_model::purge::PurgedLink;
use carom_model::replication::Partition;
use carom_model::visits::allowance::{SHARE_MAX, VisitGrant};
use carom_model::visits::grants::GrantEpoch;

/// Time for which Redis remembers a link without visits. Nodes remember it, too, and report it again long before.
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
    /// The last epoch of this node in the partition of the code.
    pub epoch: GrantEpoch,
    /// True if this node has heard of all live nodes since the epoch began. Otherwise it gets visits only if the reports were
    /// complete before.
    pub is_settled: bool,
}

/// A node that requests or reports grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantAsker<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// A random number, for an epoch that begins with this request.
    pub nonce: u64,
    /// The other nodes that it knows to hold grants.
    pub others: &'a [String],
}

/// The answer to a request of visits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantAnswer {
    /// Redis granted visits, or none are left.
    Granted(VisitGrant),
    /// Redis may have lost grants. It waits for the report of this node, which may be the one that asks. The name is empty if
    /// the epoch is not settled.
    Missing(String),
}

/// A part of the report of a node on the grants of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantReport {
    /// The partition of all codes in this part.
    pub partition: Partition,
    /// The epoch for which the report is made. The node must have stored it before the last part.
    pub epoch: GrantEpoch,
    /// The code, the claim and the granted visits of each link.
    pub totals: Vec<(Code, u64, u64)>,
    /// True for the last part.
    pub is_last: bool,
    /// True if this node knows another one, and has heard of all live nodes since the epoch began. The part then completes the
    /// epoch if all of them have reported.
    pub is_settled: bool,
}

impl GrantReport {
    /// Returns a part that neither ends the report nor completes the epoch.
    pub fn part(partition: Partition, epoch: GrantEpoch, totals: Vec<(Code, u64, u64)>) -> GrantReport {
        GrantReport { partition, epoch, totals, is_last: false, is_settled: false }
    }
}

impl Redis {
    /// Requests visits of each of these links, and waits at most `within`. Returns the answer for each link.
    pub fn allow(
        &mut self,
        asked: &[Allowance],
        asker: &GrantAsker<'_>,
        within: Duration,
    ) -> Vec<Result<GrantAnswer, RedisError>> {
        let questions = asked
            .iter()
            .map(|Allowance { code, claim, max, taken, waiting, epoch, is_settled }| {
                let place = KeyGroup::Partition(Partition::of(code));
                let keys = vec![self.grants_key(code, *claim), self.ledger_key(Partition::of(code))];
                let numbers = [*max, *taken, *waiting, SHARE_MAX, KEPT.as_millis() as u64];
                let mut arguments: Vec<Vec<u8>> = numbers.map(|number| number.to_string().into_bytes()).to_vec();
                arguments.extend(
                    [asker.node.to_owned(), epoch.to_string(), asker.nonce.to_string()].map(String::into_bytes),
                );
                arguments.extend(asker.others.iter().map(|other| other.as_bytes().to_vec()));
                // No node has an empty name, so its report stays missing.
                arguments.extend((!is_settled).then(Vec::new));
                (place, Script::Allow.call(keys, arguments))
            })
            .collect();
        self.ask_all(questions, within).into_iter().map(|answer| grant(&answer?)).collect()
    }

    /// Sends parts of the report of a node on its grants. Returns for each part the epoch of the server, and true if the
    /// node has reported to it. A server with another epoch than that of the part has ignored the part.
    pub fn report_grants(
        &mut self,
        parts: &[GrantReport],
        asker: &GrantAsker<'_>,
        within: Duration,
    ) -> Vec<Result<(GrantEpoch, bool), RedisError>> {
        let questions = parts
            .iter()
            .map(|GrantReport { partition, epoch, totals, is_last, is_settled }| {
                let mut keys = vec![self.ledger_key(*partition)];
                keys.extend(totals.iter().map(|(code, claim, _)| self.grants_key(code, *claim)));
                let texts = [asker.node.to_owned(), epoch.to_string(), asker.nonce.to_string()];
                let flags = [is_last, is_settled].map(|flag| u64::from(*flag));
                let numbers = [KEPT.as_millis() as u64, flags[0], flags[1]].map(|number| number.to_string());
                let (others, taken) = ([asker.others.join("\n")], totals.iter().map(|(_, _, taken)| taken.to_string()));
                let texts = texts.into_iter().chain(numbers).chain(others).chain(taken);
                let arguments = texts.map(String::into_bytes).collect();
                (KeyGroup::Partition(*partition), Script::ReportGrants.call(keys, arguments))
            })
            .collect();
        let answers = self.ask_all(questions, within).into_iter().zip(parts);
        answers.map(|(answer, part)| reported(&answer?, &self.ledger_key(part.partition))).collect()
    }

    /// Returns for each of these partitions whether a node has reported all its grants to the present epoch.
    pub fn has_reports_of(
        &mut self,
        node: &str,
        partitions: &[Partition],
        within: Duration,
    ) -> Vec<Result<bool, RedisError>> {
        let question = |of: &Partition| {
            let look = cmd("HEXISTS").arg(self.ledger_key(*of)).arg(format!("n:{node}")).to_owned();
            (KeyGroup::Partition(*of), RedisCommand::Plain(look))
        };
        let questions = partitions.iter().map(question).collect();
        self.ask_all(questions, within).into_iter().map(|answer| answer.map(|found| found == Value::Int(1))).collect()
    }

    /// Leaves the encoded grants that a stopping node knows of to the other nodes, which find them for the time `kept`.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn leave_grants(
        &mut self,
        node: &str,
        grants: &[u8],
        kept: Duration,
        within: Duration,
    ) -> Result<(), RedisError> {
        let mut set = cmd("SET");
        set.arg(self.left_grants_key(node)).arg(grants).arg("PX").arg(kept.as_millis() as u64);
        self.ask(KeyGroup::Space, RedisCommand::Plain(set), within).map(drop)
    }

    /// Returns the encoded grants that a stopped node has left; `None` if Redis has none.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn left_grants(&mut self, node: &str, within: Duration) -> Result<Option<Vec<u8>>, RedisError> {
        let get = cmd("GET").arg(self.left_grants_key(node)).to_owned();
        match self.ask(KeyGroup::Space, RedisCommand::Plain(get), within)? {
            Value::Nil => Ok(None),
            Value::BulkString(grants) => Ok(Some(grants)),
            _ => Err(nonsense("the grants of a stopped node")),
        }
    }

    fn left_grants_key(&self, node: &str) -> String {
        self.space(&format!("grants:left:{node}"))
    }

    /// Returns the key of the ledger of grants of a partition.
    fn ledger_key(&self, partition: Partition) -> String {
        format!("{}:grants", self.tag(KeyGroup::Partition(partition)))
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
                Some((KeyGroup::Partition(Partition::of(&link.code)), RedisCommand::Plain(remove)))
            };
            let questions = some.iter().filter_map(question).collect();
            self.ask_all(questions, within).into_iter().try_for_each(|answer| answer.map(drop))?;
        }
        Ok(())
    }
}

fn grant(answer: &Value) -> Result<GrantAnswer, RedisError> {
    let number = |value: &Value| if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None };
    match answer {
        Value::Array(values) if values.first() == Some(&Value::Int(-1)) => {
            values.get(2).map(|node| GrantAnswer::Missing(text(node)))
        }
        Value::Array(values) => {
            let numbers = values.first().and_then(number).zip(values.get(1).and_then(number));
            numbers.map(|(given, taken)| GrantAnswer::Granted(VisitGrant { given, taken }))
        }
        _ => None,
    }
    .ok_or_else(|| nonsense("the number of visits left"))
}

fn reported(answer: &Value, ledger: &str) -> Result<(GrantEpoch, bool), RedisError> {
    if let Value::Array(values) = answer
        && let [epoch, is_reported] = &values[..]
    {
        let found = text(epoch);
        let Some(epoch) = GrantEpoch::parse(&found) else {
            let what = "instead of two numbers; remove this hash";
            return Err(RedisError::Refused(format!("the field epoch of the hash {ledger} is {found:?} {what}")));
        };
        return Ok((epoch, *is_reported == Value::Int(1)));
    }
    Err(nonsense("a report of granted visits"))
}
