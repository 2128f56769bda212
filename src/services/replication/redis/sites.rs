//! Requests of the relay between two sites: its lease, its positions in the streams of the other site, and what the
//! nodes of this site hear of the other one.

use std::time::Duration;

use carom_redis::{Question, RedisError, Value, cmd, text};
use carom_shards::CodeLength;

use super::client::{KeyGroup, Redis, Script, nonsense, pairs};
use carom_model::replication::Partition;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::sites::{decode_position, encode_position};

/// The hash with the notes of the relay.
const NOTES: &str = "site";

/// The hash with the positions in the streams of the other site.
const PLACES: &str = "site:places";

/// The notes of the relay in the Redis of its site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SiteNotes {
    /// The identity of the process that ended the last pass; 0 before the first.
    pub relay: u64,
    /// Number of passes over all streams of the other site, to their ends, that this process has ended.
    pub passes: u64,
    /// The highest counter value of each length that any node of the other site was known to have leased.
    pub floors: Vec<(CodeLength, u64)>,
    /// The time at which the last pass began, in milliseconds since 1970 UTC by the clock of the other Redis; 0 before the
    /// first.
    pub read_ms: u64,
    /// True if this site may lack states that the other Redis no longer has.
    pub may_lack: bool,
}

/// What the Redis of the other site says of its code space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherSpace {
    /// The fingerprint of its code secret; `None` before its first node.
    pub fingerprint: Option<String>,
    /// The name of its site; `None` before its first relay.
    pub site: Option<String>,
    /// The highest counter value of each length that any of its nodes has reported.
    pub floors: Vec<(CodeLength, u64)>,
    /// The present time, in milliseconds since 1970 UTC by its clock.
    pub now_ms: u64,
}

impl Redis {
    /// Takes or keeps the lease of the relay for that time. Returns true if the node has it.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn hold_relay(&mut self, node: &str, lasts: Duration, within: Duration) -> Result<bool, RedisError> {
        let arguments = vec![node.as_bytes().to_vec(), lasts.as_millis().to_string().into_bytes()];
        let script = Script::Relay.call(vec![self.space("site:relay")], arguments);
        self.ask(KeyGroup::Space, script, within).map(|answer| answer == Value::Int(1))
    }

    /// Gives the site of this Redis its name, unless it has one. Returns its name.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn name_site(&mut self, name: &str, within: Duration) -> Result<String, RedisError> {
        let space = self.space("space");
        let set = cmd("HSETNX").arg(&space).arg("site").arg(name).to_owned();
        let get = cmd("HGET").arg(&space).arg("site").to_owned();
        let answers = self.ask_space(vec![set, get], within)?;
        answers.last().map(text).ok_or_else(|| nonsense("the name of a site"))
    }

    /// Returns the positions of the relay in the streams of the other site.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn site_positions(&mut self, within: Duration) -> Result<Vec<(Partition, StreamPosition)>, RedisError> {
        let get = cmd("HGETALL").arg(self.space(PLACES)).to_owned();
        let answer = self.ask(KeyGroup::Space, Question::Plain(get), within)?;
        let position = |(field, text): (String, String)| {
            let partition = Partition::all().find(|of| of.0.to_string() == field)?;
            Some((partition, decode_position(&text)?))
        };
        Ok(pairs(&answer).into_iter().filter_map(position).collect())
    }

    /// Stores positions of the relay.
    ///
    /// # Errors
    /// [`RedisError`]; the relay then reads some entries twice, which changes nothing.
    pub fn put_site_positions(
        &mut self,
        positions: &[(Partition, StreamPosition)],
        within: Duration,
    ) -> Result<(), RedisError> {
        let fields = positions.iter().map(|(of, position)| (of.0.to_string(), encode_position(position)));
        let fields: Vec<(String, String)> = fields.collect();
        self.put_fields(PLACES, &fields, within)
    }

    /// Returns the notes of the relay.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn site_notes(&mut self, within: Duration) -> Result<SiteNotes, RedisError> {
        let get = cmd("HGETALL").arg(self.space(NOTES)).to_owned();
        let answer = self.ask(KeyGroup::Space, Question::Plain(get), within)?;
        let mut notes = SiteNotes::default();
        for (field, value) in pairs(&answer) {
            match field.as_str() {
                "relay" => notes.relay = value.parse().unwrap_or(0),
                "passes" => notes.passes = value.parse().unwrap_or(0),
                "read" => notes.read_ms = value.parse().unwrap_or(0),
                "lacks" => notes.may_lack = value == "1",
                _ => notes.floors.extend(floor(&field, &value)),
            }
        }
        Ok(notes)
    }

    /// Stores the notes of the relay. The first one also stores where the counters of this site begin: above all that the
    /// other site had leased by then.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn put_site_notes(&mut self, notes: &SiteNotes, within: Duration) -> Result<(), RedisError> {
        let key = self.space(NOTES);
        let floor_of = |length: CodeLength| notes.floors.iter().find(|(of, _)| *of == length).map_or(0, |(_, at)| *at);
        let start = |length: CodeLength| {
            cmd("HSETNX").arg(&key).arg(format!("start:{length}")).arg(floor_of(length)).to_owned()
        };
        let mut commands: Vec<_> = CodeLength::MIN.and_longer().map(start).collect();
        let mut put = cmd("HSET").arg(&key).to_owned();
        put.arg("relay").arg(notes.relay).arg("passes").arg(notes.passes).arg("read").arg(notes.read_ms);
        if notes.may_lack {
            // Only an operator takes it back.
            put.arg("lacks").arg("1");
        }
        for (length, at) in &notes.floors {
            put.arg(format!("floor:{length}")).arg(*at);
        }
        commands.push(put);
        self.ask_space(commands, within).map(drop)
    }

    /// Reads what the Redis of a site says of its code space.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn other_space(&mut self, within: Duration) -> Result<OtherSpace, RedisError> {
        let get = cmd("HGETALL").arg(self.space("space")).to_owned();
        let answers = self.ask_space(vec![get, cmd("TIME")], within)?;
        let [space, Value::Array(time)] = &answers[..] else { return Err(nonsense("the code space of a site")) };
        let number = |at: usize| time.get(at).and_then(|part| text(part).parse::<u64>().ok());
        let (Some(seconds), Some(micros)) = (number(0), number(1)) else { return Err(nonsense("TIME")) };
        let mut other = OtherSpace { now_ms: seconds * 1_000 + micros / 1_000, ..OtherSpace::default() };
        for (field, value) in pairs(space) {
            match field.as_str() {
                "fingerprint" => other.fingerprint = Some(value),
                "site" => other.site = Some(value),
                _ => other.floors.extend(floor(&field, &value)),
            }
        }
        Ok(other)
    }

    fn put_fields(&mut self, name: &str, fields: &[(String, String)], within: Duration) -> Result<(), RedisError> {
        if fields.is_empty() {
            return Ok(());
        }
        let mut put = cmd("HSET").arg(self.space(name)).to_owned();
        for (field, value) in fields {
            put.arg(field).arg(value);
        }
        self.ask(KeyGroup::Space, Question::Plain(put), within).map(drop)
    }

    /// Sends commands about the space together.
    fn ask_space(&mut self, commands: Vec<carom_redis::Cmd>, within: Duration) -> Result<Vec<Value>, RedisError> {
        let together = commands.into_iter().map(Question::Plain).collect();
        self.client.ask_together(vec![(self.route(KeyGroup::Space), together)], within).remove(0)
    }
}

/// Decodes a field with the highest counter value of a length.
fn floor(field: &str, value: &str) -> Option<(CodeLength, u64)> {
    let length = CodeLength::new(field.strip_prefix("floor:")?.parse().ok()?)?;
    Some((length, value.parse().ok()?))
}
