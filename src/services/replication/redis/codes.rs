//! Requests about codes: changes, states, and codes by their destinations. `streams` reads what others have changed.

use std::time::{Duration, Instant};

use carom_redis::{RedisCommand, RedisError, Replies, RequestId, RequestRoute, ServerAddress, Value, cmd, text};
use carom_shards::Code;
use serde_json::{Value as JsonValue, json};
use xxhash_rust::xxh3::xxh3_64;

use super::client::{KeyGroup, Redis, Script, nonsense};
use carom_model::link::record::Tombstone;
use carom_model::link::record::unknown::UnknownFields;
use carom_model::link::{Origin, UrlKey, Version};
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::{COMPARED_LEN, ReceivedState};
use carom_model::replication::{Echo, PARTITIONS, Partition, State};

/// A change of a code; see [`carom_model::replication::rules`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeChange {
    /// Claims the code for a new link. The second state is the one of this node, for a code whose state has expired in
    /// Redis.
    Claim(State, Option<State>),
    /// Deletes the link of the code.
    Remove {
        /// The claim of the link: if the request arrives late, the code may belong to another one.
        claim: u64,
        /// The time of the deletion, in milliseconds since 1970 UTC.
        now_ms: u64,
        /// The state of this node, which is deleted if the state in Redis has expired.
        mine: Option<State>,
    },
    /// Deletes the expired link of the code, if Redis has this very state of it.
    Expire {
        /// The expected state.
        state: State,
        /// The time of the removal, in milliseconds since 1970 UTC.
        now_ms: u64,
        /// True if Redis may have none, because it has expired there.
        or_none: bool,
    },
    /// Delivers a state that exists already.
    Offer(State),
    /// Replaces this state by another one of the other site, unless the code has changed since: see
    /// [`carom_model::replication::sites`].
    Replace {
        /// The expected state.
        over: State,
        /// The state of the other site.
        state: State,
    },
}

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The decision of Redis.
    pub verdict: Verdict,
    /// The position of the change in a stream. For a state that Redis already had, an entry after that position.
    pub echo: Option<Echo>,
}

/// A look-up of the code that Redis currently names for a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recent {
    /// A hash of the URL and the redirect policy.
    pub key: UrlKey,
    /// The code to register if Redis has none.
    pub code: Code,
    /// An earlier response of Redis that proved wrong; empty for the first request.
    pub wrong: Vec<u8>,
}

/// A state that Redis has lost, and of which a node has kept the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptText {
    /// The code whose state was lost.
    pub code: Code,
    /// The text of the state. This version need not be able to decode it.
    pub text: Vec<u8>,
    /// The beginning of the state that Redis has instead, as [`Redis::heads`] returns it; empty if Redis has none.
    pub over: Vec<u8>,
}

/// The response of Redis to one request.
#[derive(Debug)]
pub struct RedisReply(Replies);

impl RedisReply {
    /// Returns the result of a change of this code, for a response to [`Redis::put_change`].
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub fn changed(self, code: Code, change: &CodeChange) -> Result<Changed, RedisError> {
        changed(code, change, &self.value()?)
    }

    /// Returns the state of this code, for a response to [`Redis::put_state`].
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub fn state(self, code: Code) -> Result<Option<ReceivedState>, RedisError> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => ReceivedState::from_text(code, &text).map(Some).map_err(|_| unreadable(code)),
            _ => Err(unreadable(code)),
        }
    }

    /// Returns the response of a Redis that refuses a request.
    #[cfg(test)]
    pub(in crate::services) fn refusal(what: &str) -> RedisReply {
        RedisReply(Err(RedisError::Refused(what.to_owned())))
    }

    fn value(self) -> Result<Value, RedisError> {
        Ok(self.0?.pop().unwrap_or(Value::Nil))
    }
}

/// A scan of all codes in Redis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Masters that the scan has not finished, the current one last.
    masters: Vec<ServerAddress>,
    cursor: String,
}

impl Scan {
    /// Returns the place of the scan as JSON. It is valid as long as the masters, their processes and their slots stay.
    pub fn to_json(&self) -> JsonValue {
        let masters: Vec<JsonValue> = self.masters.iter().map(|master| json!([master.host, master.port])).collect();
        json!({ "masters": masters, "cursor": self.cursor })
    }

    /// Reads the place of a scan from JSON; `None` if it is malformed.
    pub fn from_json(json: &JsonValue) -> Option<Scan> {
        let master = |master: &JsonValue| {
            let (host, port) = (master.get(0)?.as_str()?.to_owned(), master.get(1)?.as_u64()?);
            Some(ServerAddress { host, port: u16::try_from(port).ok()? })
        };
        let masters = json.get("masters")?.as_array()?.iter().map(master).collect::<Option<_>>()?;
        Some(Scan { masters, cursor: json.get("cursor")?.as_str()?.to_owned() })
    }
}

impl Redis {
    /// Continues all requests, until one is answered or that instant has come.
    pub fn turn(&mut self, until: Instant) -> Vec<(RequestId, RedisReply)> {
        self.client.turn(until).into_iter().map(|(ticket, replies)| (ticket, RedisReply(replies))).collect()
    }

    /// Begins to change a code; [`Redis::turn`] returns the response.
    pub fn put_change(&mut self, code: &Code, change: &CodeChange, deadline: Instant) -> RequestId {
        let (place, question) = self.to_change(code, change);
        self.client.put(self.route(place), vec![question], deadline)
    }

    /// Begins to read the state of a code; [`Redis::turn`] returns the response.
    pub fn put_state(&mut self, code: &Code, deadline: Instant) -> RequestId {
        let get = cmd("GET").arg(self.key(code)).to_owned();
        let route = self.route(KeyGroup::Partition(Partition::of(code)));
        self.client.put(route, vec![RedisCommand::Plain(get)], deadline)
    }

    fn to_change(&self, code: &Code, change: &CodeChange) -> (KeyGroup, RedisCommand) {
        let (asked, text, mine) = match change {
            CodeChange::Claim(state, mine) => ("claim", state.to_text(code), mine.as_ref()),
            CodeChange::Remove { claim, now_ms, mine } => {
                ("remove", tombstone(*claim, *now_ms).to_text(code), mine.as_ref())
            }
            CodeChange::Expire { state, now_ms, or_none } => {
                let text = tombstone(state.version().claim, *now_ms).to_text(code);
                ("expire", text, or_none.then_some(state))
            }
            CodeChange::Offer(state) => ("offer", state.to_text(code), None),
            CodeChange::Replace { state, .. } => ("replace", state.to_text(code), None),
        };
        let mut head = Vec::new();
        if let CodeChange::Expire { state: expected, .. } | CodeChange::Replace { over: expected, .. } = change {
            head = expected.to_text(code);
            head.truncate(COMPARED_LEN);
            assert_eq!(head.len(), COMPARED_LEN, "Redis would end a link of which it compares a part");
        }
        let mine = mine.map_or_else(Vec::new, |mine| mine.to_text(code));
        self.to_script(code, asked, text, (head, mine))
    }

    fn to_script(
        &self,
        code: &Code,
        asked: &str,
        text: Vec<u8>,
        (head, mine): (Vec<u8>, Vec<u8>),
    ) -> (KeyGroup, RedisCommand) {
        let keep = (self.settings.stream_len / u64::from(PARTITIONS)).max(16).to_string().into_bytes();
        let kept_ms = self.state_ms().to_string().into_bytes();
        let arguments = vec![asked.as_bytes().to_vec(), code.to_string().into_bytes(), text, keep, head, mine, kept_ms];
        let partition = Partition::of(code);
        let keys = vec![self.key(code), self.stream(partition)];
        (KeyGroup::Partition(partition), Script::Change.call(keys, arguments))
    }

    /// Changes codes, each by itself, and waits at most `within`.
    pub fn change(&mut self, changes: &[(Code, CodeChange)], within: Duration) -> Vec<Result<Changed, RedisError>> {
        let questions = changes.iter().map(|(code, change)| self.to_change(code, change)).collect();
        let answers = self.ask_all(questions, within);
        changes.iter().zip(answers).map(|((code, change), answer)| changed(*code, change, &answer?)).collect()
    }

    /// Restores states that Redis has lost, each unless its code has changed since `over` was read, and waits at most `within`.
    /// Returns true for a state that Redis has accepted.
    pub fn restore(&mut self, kept: &[KeptText], within: Duration) -> Vec<Result<bool, RedisError>> {
        let to_restore = |KeptText { code, text, over }: &KeptText| {
            // No state begins like this, so Redis keeps any state that it has by then.
            let over = if over.is_empty() { b"-".to_vec() } else { over.clone() };
            self.to_script(code, "replace", text.clone(), (over, Vec::new()))
        };
        let questions = kept.iter().map(to_restore).collect();
        self.ask_all(questions, within).into_iter().map(|answer| is_accepted(&answer?)).collect()
    }

    /// Reads the states of codes, and waits at most `within`.
    pub fn states(&mut self, codes: &[Code], within: Duration) -> Vec<Result<Option<ReceivedState>, RedisError>> {
        let deadline = Instant::now() + within;
        let tickets: Vec<RequestId> = codes.iter().map(|code| self.put_state(code, deadline)).collect();
        let answers = self.client.await_all(&tickets, deadline);
        assert_eq!(answers.len(), codes.len(), "the state of one code would be taken for that of another");
        let answers = answers.into_iter().map(RedisReply);
        codes.iter().zip(answers).map(|(code, answer)| answer.state(*code)).collect()
    }

    /// Returns the code that Redis has for each destination; the caller must check that it is a valid code. Restarts the
    /// window of each.
    pub fn recent(&mut self, asked: &[Recent], window: Duration, within: Duration) -> Vec<Result<Vec<u8>, RedisError>> {
        let millis = window.as_millis().to_string().into_bytes();
        let questions: Vec<_> = asked
            .iter()
            .map(|Recent { key: UrlKey(hash), code, wrong }| {
                // Hashes spread over the partitions as codes do, and thus over the masters of a cluster.
                let place = KeyGroup::Partition(Partition((hash % u64::from(PARTITIONS)) as u8));
                let keys = vec![format!("{}:u:{hash:016x}", self.tag(place))];
                let arguments = vec![code.to_string().into_bytes(), millis.clone(), wrong.clone()];
                (place, Script::Recent.call(keys, arguments))
            })
            .collect();
        let answer = |value| match value {
            Value::BulkString(code) => Ok(code),
            _ => Err(nonsense("the code of a destination")),
        };
        self.ask_all(questions, within).into_iter().map(|value| answer(value?)).collect()
    }

    /// Reads the first [`COMPARED_LEN`] bytes of each state, enough to compare states of a code.
    pub fn heads(&mut self, codes: &[Code], within: Duration) -> Vec<Result<Vec<u8>, RedisError>> {
        let questions: Vec<_> = codes
            .iter()
            .map(|code| {
                let get = cmd("GETRANGE").arg(self.key(code)).arg(0).arg(COMPARED_LEN - 1).to_owned();
                (KeyGroup::Partition(Partition::of(code)), RedisCommand::Plain(get))
            })
            .collect();
        let bytes = |value: Value| if let Value::BulkString(bytes) = value { bytes } else { Vec::new() };
        self.ask_all(questions, within).into_iter().map(|answer| answer.map(bytes)).collect()
    }

    /// Lets the states of these codes expire that were written before states expired. Returns their number; 0 while states
    /// are kept forever.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn expire_states(&mut self, codes: &[Code], within: Duration) -> Result<u64, RedisError> {
        let kept_ms = self.state_ms();
        if kept_ms == 0 {
            // All states would expire at once. Another thread has just heard of an older node.
            return Ok(0);
        }
        let expire = |code: &Code| {
            let script = Script::Expire.call(vec![self.key(code)], vec![kept_ms.to_string().into_bytes()]);
            (KeyGroup::Partition(Partition::of(code)), script)
        };
        let questions = codes.iter().map(expire).collect();
        let answers = self.ask_all(questions, within);
        let is_new = |answer: Result<Value, RedisError>| answer.map(|answer| u64::from(answer == Value::Int(1)));
        answers.into_iter().map(is_new).sum()
    }

    /// Begins a scan of all codes.
    ///
    /// # Errors
    /// [`RedisError`] if no server returns the topology.
    pub fn scan(&mut self, within: Duration) -> Result<Scan, RedisError> {
        Ok(Scan { masters: self.client.find_masters(within)?, cursor: "0".to_owned() })
    }

    /// Continues a scan: returns some more codes, each at least once; `None` at the end.
    ///
    /// # Errors
    /// [`RedisError`] if a server does not answer. After a change of the cluster the scan must be restarted.
    pub fn scan_on(
        &mut self,
        scan: &mut Scan,
        count: usize,
        within: Duration,
    ) -> Result<Option<Vec<Code>>, RedisError> {
        let Some(master) = scan.masters.last().cloned() else { return Ok(None) };
        let mut command = cmd("SCAN");
        let pattern = format!("{{{}:*}}:l:*", self.settings.prefix);
        command.arg(&scan.cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count);
        let answer = self.client.ask_all(vec![(RequestRoute::Server(master), RedisCommand::Plain(command))], within);
        let Some(Ok(Value::Array(parts))) = answer.first() else {
            return Err(answer.into_iter().find_map(Result::err).unwrap_or_else(|| nonsense("SCAN")));
        };
        let [cursor, Value::Array(keys)] = &parts[..] else { return Err(nonsense("SCAN")) };
        scan.cursor = text(cursor);
        if scan.cursor == "0" {
            scan.masters.pop();
        }
        let code = |key: &Value| Code::from_key(text(key).split_once(":l:")?.1.as_bytes()).ok();
        Ok(Some(keys.iter().filter_map(code).collect()))
    }
}

/// Builds a tombstone whose kind and revision the script fills in.
fn tombstone(claim: u64, deleted_ms: u64) -> State {
    let version = Version { claim, ..Version::default() };
    State::Gone(Tombstone { deleted_ms, origin: Origin::Issued, version, unknown: UnknownFields::default() })
}

fn unreadable(code: Code) -> RedisError {
    RedisError::Refused(format!("the value of {code} in Redis was not written by carom or is damaged"))
}

/// True if Redis has accepted a state that this version may be unable to decode.
fn is_accepted(answer: &Value) -> Result<bool, RedisError> {
    let Value::Array(parts) = answer else { return Err(nonsense("a restored state")) };
    match parts.first().map(text).as_deref() {
        Some("accepted") => Ok(true),
        Some("held") => Ok(false),
        _ => Err(nonsense("a restored state")),
    }
}

fn changed(code: Code, change: &CodeChange, answer: &Value) -> Result<Changed, RedisError> {
    let Value::Array(parts) = answer else { return Err(nonsense("a change")) };
    let [verdict, Value::BulkString(state), id, Value::BulkString(last)] = &parts[..] else {
        return Err(nonsense("a change"));
    };
    let echo = text(id).parse().ok().map(|id| Echo { partition: Partition::of(&code), id, check: xxh3_64(last) });
    let read = || State::from_text(code, state).map_err(|_| unreadable(code));
    let verdict = match (text(verdict).as_str(), change) {
        ("accepted", _) => Verdict::Accepted(read()?),
        ("held", _) => match ReceivedState::from_text(code, state).map_err(|_| unreadable(code))? {
            ReceivedState::Known(state) => Verdict::Held(state),
            ReceivedState::Unread(text) => Verdict::HeldUnread(text),
        },
        ("same", CodeChange::Claim(..) | CodeChange::Offer(_)) => Verdict::Same,
        ("absent", CodeChange::Remove { .. } | CodeChange::Expire { .. }) => Verdict::Absent,
        _ => return Err(nonsense("a change")),
    };
    Ok(Changed { verdict, echo })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_a_scan_is_read_back() {
        let address = |host: &str| ServerAddress { host: host.to_owned(), port: 7_001 };
        let scan = Scan { masters: vec![address("10.0.0.1"), address("::1")], cursor: u64::MAX.to_string() };
        let text = scan.to_json().to_string();
        assert_eq!(Scan::from_json(&serde_json::from_str(&text).unwrap()), Some(scan));
        for malformed in [json!({}), json!({"masters": [["a", 70_000]], "cursor": "0"}), json!({"masters": []})] {
            assert_eq!(Scan::from_json(&malformed), None, "{malformed}");
        }
    }
}
