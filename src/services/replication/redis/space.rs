//! Requests about the counters, the nodes of the fleet, and what they share besides links.

use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};
use carom_shards::CodeLength;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::client::{KeyGroup, Redis, Script, nonsense, pairs};
use carom_model::replication::lease::Granted;
use carom_model::replication::members::NodeId;
use carom_model::replication::sites;

/// Longest time for which a node holds the lock to take over leases.
const LOCK_TIME: Duration = Duration::from_secs(10);

/// The heartbeat of a node.
#[derive(Clone, Debug)]
pub struct Heartbeat<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The node's own description for the status of others, as JSON.
    pub about: String,
    /// The fingerprint of its code secret.
    pub fingerprint: &'a str,
    /// The highest counter value of each length that it knows.
    pub seen: &'a [(CodeLength, u64)],
    /// The time since which states expire in Redis, as far as it knows, in milliseconds since 1970 UTC by the clock of
    /// Redis; 0 if they do not.
    pub expiring_ms: u64,
    /// The wish of the node about states.
    pub expiry: StateExpiry,
    /// The epoch that Redis gets if it has none. No two heartbeats name the same one.
    pub epoch: &'a str,
}

/// The wish of a node about the expiry of states in Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateExpiry {
    /// The node lets no states expire. Other nodes may.
    Off,
    /// The node lets states expire from now on, unless a node has forbidden that.
    On,
    /// No node may let states expire: Redis is the home of the links, of which the node has no copy.
    Forbidden,
}

impl StateExpiry {
    /// Returns the number by which `beat.lua` knows it.
    fn number(self) -> u64 {
        match self {
            StateExpiry::Off => 0,
            StateExpiry::On => 1,
            StateExpiry::Forbidden => 2,
        }
    }
}

/// The fields of a hash, each with its value.
type StoredFields = Vec<(String, Vec<u8>)>;

/// A new value for a field of a hash that several nodes change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldUpdate {
    /// The name of the field.
    pub field: String,
    /// The value that the caller has read; empty if there was none.
    pub before: Vec<u8>,
    /// The new value; empty to remove the field.
    pub after: Vec<u8>,
}

/// Number of times that an exchange is made while other nodes change the same fields. The next exchange continues.
const EXCHANGES_MAX: usize = 4;

/// Repeats an exchange until it has stored everything, at most four times. `exchange` returns false beside its result if
/// another node was faster. Returns the last result.
///
/// # Errors
/// The error of `exchange`.
pub fn repeat_until_stored<T>(mut exchange: impl FnMut() -> Result<(T, bool), RedisError>) -> Result<T, RedisError> {
    let (mut result, mut is_stored) = exchange()?;
    for _ in 1..EXCHANGES_MAX {
        if is_stored {
            break;
        }
        (result, is_stored) = exchange()?;
    }
    Ok(result)
}

/// The response to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeartbeatReply {
    /// The fingerprint of the fleet's code secret. If it differs from the node's own, Redis did nothing else.
    pub fingerprint: String,
    /// The nodes with their last heartbeats, in milliseconds since 1970 UTC by the clock of Redis.
    pub beats: Vec<(NodeId, u64)>,
    /// The nodes with their own descriptions.
    pub about: Vec<(NodeId, String)>,
    /// The highest counter value of each length that any node knows.
    pub floors: Vec<(CodeLength, u64)>,
    /// The time since which states expire in Redis, in milliseconds since 1970 UTC by its clock; 0 if they do not.
    pub expiring_ms: u64,
    /// The description of this node that the heartbeat has replaced; empty if there was none.
    pub replaced: String,
    /// The epoch of Redis, which it loses together with its data.
    pub epoch: String,
}

/// A request for counter values of one length.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// The length of the codes that the values become.
    pub length: CodeLength,
    /// The number of values.
    pub want: u64,
    /// The node has seen all values below this one, so it gets none of them.
    pub seen: u64,
    /// The number of values to skip if another server answers than before.
    pub margin: u64,
}

impl HeartbeatReply {
    /// Returns a mark of the last heartbeat of each node, which differs from those of its earlier heartbeats. The time alone
    /// would not do: after a step back of Redis's clock, a heartbeat can have the time of an earlier one.
    pub fn marks(&self) -> Vec<(NodeId, u64)> {
        let mark = |node: &NodeId| {
            let (beat, about) = self.heartbeat_of(node)?;
            Some((node.clone(), xxh3_64_with_seed(about.as_bytes(), beat)))
        };
        self.beats.iter().filter_map(|(node, _)| mark(node)).collect()
    }

    /// Returns the last heartbeat of a node: its time and its description, which has the number of the heartbeat.
    pub fn heartbeat_of(&self, node: &str) -> Option<(u64, &str)> {
        let (_, beat) = self.beats.iter().find(|(of, _)| of == node)?;
        let about = self.about.iter().find(|(of, _)| of == node).map_or("", |(_, about)| about.as_str());
        Some((*beat, about))
    }
}

impl Redis {
    /// Leases counter values for a node. Returns them, the number of replicas that confirmed, and the number of replicas.
    ///
    /// # Errors
    /// [`RedisError`]; values may be lost then, which costs nothing.
    pub fn lease(
        &mut self,
        wanted: LeaseRequest,
        node: &str,
        within: Duration,
    ) -> Result<(Granted, u64, u64), RedisError> {
        let LeaseRequest { length, want, seen, margin } = wanted;
        let counter = format!("counter:{length}");
        let names = [counter.as_str(), "space", "leases", "site"];
        let keys = names.map(|name| self.space(name)).to_vec();
        let numbers =
            [u64::from(length.get() as u32), want, seen, margin].map(|number| number.to_string().into_bytes());
        let site = self.share.map_or_else(String::new, |share| share.site.to_string());
        let texts = [node.to_owned(), site, sites::BLOCK.to_string()].map(String::into_bytes);
        let arguments = numbers.into_iter().chain(texts).collect();
        let waits = self.has_replicas;
        let mut questions =
            vec![Script::Lease.call(keys, arguments), RedisCommand::Plain(cmd("INFO").arg("replication").to_owned())];
        if waits {
            questions.push(RedisCommand::Plain(cmd("WAIT").arg(1).arg(within.as_millis() as u64 / 2).to_owned()));
        }
        // In one batch: `WAIT` covers only writes of its own connection.
        let mut answer =
            self.client.ask_groups(vec![(self.route(KeyGroup::Space), questions)], within).remove(0)?.into_iter();
        let mut next = || answer.next().unwrap_or(Value::Int(0));
        let (granted, info, confirmed) = (next(), next(), next());
        let Value::Array(parts) = granted else { return Err(nonsense("a lease")) };
        let number = |at: usize| parts.get(at).and_then(|part| text(part).parse::<u64>().ok());
        let (Some(start), Some(mended), Some(moved)) = (number(0), number(1), number(2)) else {
            return Err(nonsense("a lease"));
        };
        let info = text(&info);
        let replicas = info.lines().find_map(|line| line.strip_prefix("connected_slaves:")?.trim().parse().ok());
        let replicas: u64 = replicas.unwrap_or(0);
        self.has_replicas = replicas > 0;
        if self.has_replicas && !waits {
            // Without a replica `WAIT` takes its whole timeout, so it is used only from here on. The values of this
            // call are lost.
            return self.lease(wanted, node, within);
        }
        let confirmed = if let Value::Int(number) = confirmed { number.max(0) as u64 } else { 0 };
        Ok((Granted { start, mended, moved: moved != 0 }, confirmed, replicas))
    }

    /// Takes counter values of a length without any checks, for tests. Returns the first one.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    #[cfg(feature = "faults")]
    pub fn increment(
        &mut self,
        length: CodeLength,
        want: u64,
        node: &str,
        within: Duration,
    ) -> Result<u64, RedisError> {
        let increment = cmd("INCRBY").arg(self.space(&format!("counter:{length}"))).arg(want).to_owned();
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(increment), within)?;
        let start = text(&answer).parse::<u64>().unwrap_or(0).saturating_sub(want);
        let lease = format!("{length}:{start}");
        let note = cmd("HSET").arg(self.space("leases")).arg(lease).arg(format!("{want}:{node}")).to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(note), within).map(|_| start)
    }

    /// Returns a lease whose values are used up.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn release(&mut self, length: CodeLength, start: u64, within: Duration) -> Result<(), RedisError> {
        let field = format!("{length}:{start}");
        let command = cmd("HDEL").arg(self.space("leases")).arg(field).to_owned();
        let answer = self.ask_all(vec![(KeyGroup::Space, RedisCommand::Plain(command))], within);
        answer.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// Returns the fingerprint of the fleet's code secret; `None` before the first node.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn fingerprint(&mut self, within: Duration) -> Result<Option<String>, RedisError> {
        let command = cmd("HGET").arg(self.space("space")).arg("fingerprint").to_owned();
        let mut answer = self.ask_all(vec![(KeyGroup::Space, RedisCommand::Plain(command))], within);
        Ok(Some(text(&answer.remove(0)?)).filter(|fingerprint| !fingerprint.is_empty()))
    }

    /// Reads a text that an operator keeps in Redis, such as a list of hosts; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn text(&mut self, key: &str, within: Duration) -> Result<Option<Vec<u8>>, RedisError> {
        let get = cmd("GET").arg(self.space(key)).to_owned();
        let mut answer = self.ask_all(vec![(KeyGroup::Space, RedisCommand::Plain(get))], within);
        match answer.remove(0)? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => Ok(Some(text)),
            _ => Err(nonsense("a text")),
        }
    }

    /// Reads the API keys that nodes of the fleet have stored, by hash, each in its stored form.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn keys(&mut self, within: Duration) -> Result<StoredFields, RedisError> {
        self.fields("apps", within)
    }

    /// Stores API keys in Redis, each by its hash, unless another node has changed it meanwhile. Returns false if one has.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn update_keys(&mut self, keys: &[FieldUpdate], within: Duration) -> Result<bool, RedisError> {
        self.update_fields("apps", keys, within)
    }

    /// Removes API keys from Redis, by their hashes.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn remove_keys(&mut self, hashes: &[String], within: Duration) -> Result<(), RedisError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let remove = cmd("HDEL").arg(self.space("apps")).arg(hashes).to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(remove), within).map(|_| ())
    }

    /// Reads the changed redirects of domains, by domain, each in its stored form.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn domain_redirects(&mut self, within: Duration) -> Result<StoredFields, RedisError> {
        self.fields("domains", within)
    }

    /// Stores changed redirects of domains, each by its domain, unless another node has changed it meanwhile. Returns false
    /// if one has.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn update_domain_redirects(&mut self, all: &[FieldUpdate], within: Duration) -> Result<bool, RedisError> {
        self.update_fields("domains", all, within)
    }

    /// Reads the saved destination rules: a field in its stored form, or none.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn destination_rules(&mut self, within: Duration) -> Result<StoredFields, RedisError> {
        self.fields("rules", within)
    }

    /// Stores saved destination rules, unless another node has saved meanwhile. Returns false if one has.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn update_destination_rules(&mut self, update: FieldUpdate, within: Duration) -> Result<bool, RedisError> {
        self.update_fields("rules", &[update], within)
    }

    /// Reads all fields of a hash.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub(super) fn fields(&mut self, hash: &str, within: Duration) -> Result<StoredFields, RedisError> {
        let get = cmd("HGETALL").arg(self.space(hash)).to_owned();
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(get), within)?;
        let Value::Array(parts) = &answer else { return Err(nonsense(hash)) };
        let field = |pair: &[Value]| match pair {
            [name, Value::BulkString(value)] => Some((text(name), value.clone())),
            _ => None,
        };
        parts.chunks_exact(2).map(field).collect::<Option<_>>().ok_or_else(|| nonsense(hash))
    }

    fn update_fields(&mut self, hash: &str, updates: &[FieldUpdate], within: Duration) -> Result<bool, RedisError> {
        let script = self.call_update(hash, updates);
        self.ask(KeyGroup::Space, script, within).map(|others| others == Value::Int(0))
    }

    /// Returns the call that updates fields of a hash. Fields that other nodes have changed meanwhile stay; their number is
    /// the answer.
    pub(super) fn call_update(&self, hash: &str, updates: &[FieldUpdate]) -> RedisCommand {
        let values = |FieldUpdate { field, before, after }: &FieldUpdate| {
            [field.as_bytes().to_vec(), before.clone(), after.clone()]
        };
        Script::UpdateFields.call(vec![self.space(hash)], updates.iter().flat_map(values).collect())
    }

    /// Sets the creates that arrive at a node, by app; `None` leaves them as they are. Returns those of all nodes.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn share_creates(
        &mut self,
        node: &str,
        demand: Option<&str>,
        within: Duration,
    ) -> Result<Vec<(String, String)>, RedisError> {
        let key = self.space("creates");
        let set = demand.map(|demand| RedisCommand::Plain(cmd("HSET").arg(&key).arg(node).arg(demand).to_owned()));
        let get = RedisCommand::Plain(cmd("HGETALL").arg(&key).to_owned());
        let together = set.into_iter().chain([get]).collect();
        let answers = self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0)?;
        answers.last().map(pairs).ok_or_else(|| nonsense("the creates of nodes"))
    }

    /// Sends the heartbeat of this node, and receives the state of the others.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub fn beat(&mut self, beat: &Heartbeat<'_>, within: Duration) -> Result<HeartbeatReply, RedisError> {
        let keys = ["beats", "nodes", "space"].map(|name| self.space(name)).to_vec();
        let mut arguments: Vec<Vec<u8>> =
            [beat.node, &beat.about, beat.fingerprint].map(|text| text.as_bytes().to_vec()).to_vec();
        arguments.extend([beat.expiring_ms, beat.expiry.number()].map(|number| number.to_string().into_bytes()));
        arguments.push(beat.epoch.as_bytes().to_vec());
        for (length, seen) in beat.seen {
            arguments.extend([length.to_string().into_bytes(), seen.to_string().into_bytes()]);
        }
        let mut answer = self.ask_all(vec![(KeyGroup::Space, Script::Beat.call(keys, arguments))], within);
        heard(&answer.remove(0)?).ok_or_else(|| nonsense("a heartbeat"))
    }

    /// Takes over the leases of a node that is gone: length, first value and number of values of each. Takes nothing if
    /// another node does the same, or if the node has returned: its last heartbeat is no longer the one that was seen, with
    /// this time and description.
    ///
    /// # Errors
    /// [`RedisError`]; if Redis did it and the answer was lost, nobody uses the values of these leases.
    pub fn reclaim(
        &mut self,
        me: &str,
        gone: &str,
        (beat, about): (u64, &str),
        within: Duration,
    ) -> Result<Vec<(CodeLength, u64, u64)>, RedisError> {
        let keys = ["lock", "beats", "nodes", "leases"].map(|name| self.space(name)).to_vec();
        let hold = LOCK_TIME.as_millis().to_string();
        let arguments = [me, &hold, gone, &beat.to_string(), about].map(|text| text.as_bytes().to_vec()).to_vec();
        let mut answer = self.ask_all(vec![(KeyGroup::Space, Script::Reclaim.call(keys, arguments))], within);
        let taken = pairs(&answer.remove(0)?);
        let lease = |(field, want): (String, String)| {
            let (length, start) = field.split_once(':')?;
            Some((CodeLength::new(length.parse().ok()?)?, start.parse().ok()?, want.parse().ok()?))
        };
        Ok(taken.into_iter().filter_map(lease).collect())
    }
}

fn heard(answer: &Value) -> Option<HeartbeatReply> {
    let Value::Array(parts) = answer else { return None };
    let [fingerprint, beats, about, floors, expiring, replaced, epoch] = &parts[..] else { return None };
    let length = |text: &str| CodeLength::new(text.parse().ok()?);
    Some(HeartbeatReply {
        fingerprint: text(fingerprint),
        beats: pairs(beats).into_iter().filter_map(|(node, beat)| Some((node, beat.parse().ok()?))).collect(),
        about: pairs(about),
        floors: pairs(floors).into_iter().filter_map(|(of, seen)| Some((length(&of)?, seen.parse().ok()?))).collect(),
        expiring_ms: text(expiring).parse().unwrap_or(0),
        replaced: text(replaced),
        epoch: text(epoch),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_is_repeated_while_others_are_faster() {
        for stored_by in 1..EXCHANGES_MAX + 2 {
            let mut made = 0;
            let last = repeat_until_stored(|| {
                made += 1;
                Ok((made, made == stored_by))
            });
            assert_eq!(last.unwrap(), stored_by.min(EXCHANGES_MAX), "{stored_by}");
        }
    }
}
