//! Requests of the relay between two sites: its lease, its positions in the streams of the other site, and its notes.
//! From the notes, the nodes of this site hear of the other one.

use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};
use carom_shards::CodeLength;

use super::client::{KeyGroup, Redis, Script, nonsense, pairs};
use super::space::HeartbeatReply;
use carom_model::replication::Partition;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::sites::{READ_LONG_AGO_MS, decode_position, encode_position};

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
    /// The time at which the last pass began, in milliseconds since 1970 UTC by the clock of the other Redis. 0 before
    /// the first pass; [`READ_LONG_AGO_MS`] while this site may lack states, or if the note is damaged.
    pub read_ms: u64,
    /// The time of the first contact to the other site, in milliseconds since 1970 UTC by the same clock; 0 if it is not
    /// known. A gap before the end of the first pass begins there.
    pub met_ms: u64,
    /// True if this site may lack states that the other Redis no longer has.
    pub may_lack: bool,
    /// The name of the other site, if an operator has given it up.
    pub given_up: Option<String>,
    /// The fields whose values are damaged. The other values stand for the worst that these fields may have said.
    pub damaged: Vec<String>,
}

impl SiteNotes {
    /// Decodes the fields of the hash. A field that an unknown version has written is ignored.
    fn of(fields: Vec<(String, String)>) -> SiteNotes {
        let mut notes = SiteNotes::default();
        for (field, value) in fields {
            let is_whole = match field.as_str() {
                "relay" => value.parse::<u64>().map(|relay| notes.relay = relay).is_ok(),
                "passes" => value.parse::<u64>().map(|passes| notes.passes = passes).is_ok(),
                "read" => {
                    let read_ms = value.parse::<u64>();
                    notes.read_ms = *read_ms.as_ref().unwrap_or(&READ_LONG_AGO_MS);
                    read_ms.is_ok()
                }
                "met" => {
                    let met_ms = value.parse::<u64>();
                    notes.met_ms = *met_ms.as_ref().unwrap_or(&READ_LONG_AGO_MS);
                    met_ms.is_ok()
                }
                "lacks" => {
                    notes.may_lack = value != "0";
                    value == "0" || value == "1"
                }
                "given_up" => {
                    notes.given_up = Some(value);
                    true
                }
                other if other.starts_with("floor:") => {
                    floor(other, &value).map(|floor| notes.floors.push(floor)).is_some()
                }
                other if other.starts_with("start:") => value.parse::<u64>().is_ok(),
                _ => true,
            };
            if !is_whole {
                notes.damaged.push(field);
            }
        }
        notes
    }

    /// True if the value of a field is damaged.
    pub fn is_damaged(&self, field: &str) -> bool {
        self.damaged.iter().any(|damaged| damaged == field)
    }

    /// Returns the damaged fields with the highest counter values of the other site.
    pub fn damaged_floors(&self) -> Vec<String> {
        self.damaged.iter().filter(|field| field.starts_with("floor:")).cloned().collect()
    }
}

/// The positions of the relay in the streams of the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SitePositions {
    /// The position in each stream that has one.
    pub known: Vec<(Partition, StreamPosition)>,
    /// The streams whose positions are damaged.
    pub damaged: Vec<Partition>,
}

impl SitePositions {
    /// Decodes the fields of the hash. Fields that name no partition are ignored.
    fn of(fields: Vec<(String, String)>) -> SitePositions {
        let mut positions = SitePositions::default();
        for (field, text) in fields {
            let Some(partition) = Partition::all().find(|of| of.0.to_string() == field) else { continue };
            match decode_position(&text) {
                Some(position) => positions.known.push((partition, position)),
                None => positions.damaged.push(partition),
            }
        }
        positions
    }
}

/// The code space of a site, as its Redis describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherSpace {
    /// The fingerprint of its code secret; `None` before its first node.
    pub fingerprint: Option<String>,
    /// The name of its site; `None` before its first relay.
    pub site: Option<String>,
    /// The highest counter value of each length that any of its nodes has reported.
    pub floors: Vec<(CodeLength, u64)>,
    /// The fields with such values that are damaged. A damaged value is not known, and must not count as 0.
    pub damaged_floors: Vec<String>,
    /// The time since which states expire, in milliseconds since 1970 UTC by its clock; 0 if they do not, and
    /// [`READ_LONG_AGO_MS`] if the field is damaged.
    pub expiring_ms: u64,
    /// The present time, in milliseconds since 1970 UTC by its clock.
    pub now_ms: u64,
}

impl OtherSpace {
    /// Reads the fields of a code space, at a time in milliseconds since 1970 UTC. Ignores fields that a later version may
    /// write.
    fn of(fields: Vec<(String, String)>, now_ms: u64) -> OtherSpace {
        let mut space = OtherSpace { now_ms, ..OtherSpace::default() };
        for (field, value) in fields {
            match field.as_str() {
                "fingerprint" => space.fingerprint = Some(value),
                "site" => space.site = Some(value),
                "expiring" => space.expiring_ms = value.parse().unwrap_or(READ_LONG_AGO_MS),
                _ => match floor(&field, &value) {
                    Some(floor) => space.floors.push(floor),
                    None if length_of(&field).is_some() => space.damaged_floors.push(field),
                    None => {}
                },
            }
        }
        space
    }
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
    pub fn site_positions(&mut self, within: Duration) -> Result<SitePositions, RedisError> {
        let get = cmd("HGETALL").arg(self.space(PLACES)).to_owned();
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(get), within)?;
        Ok(SitePositions::of(pairs(&answer)))
    }

    /// Returns the keys of the notes and of the positions of the relay, as an operator sees them.
    pub fn site_keys(&self) -> [String; 2] {
        [NOTES, PLACES].map(|name| self.space(name))
    }

    /// Returns the notes of the relay.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn site_notes(&mut self, within: Duration) -> Result<SiteNotes, RedisError> {
        let get = cmd("HGETALL").arg(self.space(NOTES)).to_owned();
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(get), within)?;
        Ok(SiteNotes::of(pairs(&answer)))
    }

    /// Removes damaged notes.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn remove_site_notes(&mut self, fields: &[String], within: Duration) -> Result<(), RedisError> {
        if fields.is_empty() {
            return Ok(());
        }
        let remove = cmd("HDEL").arg(self.space(NOTES)).arg(fields).to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(remove), within).map(drop)
    }

    /// Makes a process the relay whose notes count.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn take_relay(&mut self, relay: u64, within: Duration) -> Result<(), RedisError> {
        let mut put = cmd("HSET").arg(self.space(NOTES)).to_owned();
        put.arg("relay").arg(relay).arg("passes").arg(0);
        self.ask(KeyGroup::Space, RedisCommand::Plain(put), within).map(drop)
    }

    /// Stores where the counters of this site begin, unless that is stored: above every value that the other site has leased.
    /// `damaged` are the damaged notes, which count as not stored.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn begin_counters(
        &mut self,
        floors: &[(CodeLength, u64)],
        damaged: &[String],
        within: Duration,
    ) -> Result<(), RedisError> {
        let key = self.space(NOTES);
        let begin = |length: CodeLength| {
            let floor = floors.iter().find(|(of, _)| *of == length).map_or(0, |(_, floor)| *floor);
            let field = format!("start:{length}");
            let put = if damaged.contains(&field) { "HSET" } else { "HSETNX" };
            RedisCommand::Plain(cmd(put).arg(&key).arg(field).arg(floor).to_owned())
        };
        let together: Vec<RedisCommand> = CodeLength::MIN.and_longer().map(begin).collect();
        self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0).map(drop)
    }

    /// Stores notes and positions of a relay. Returns false if Redis has lost its earlier ones, or another relay has taken
    /// over: then nothing was stored, and the relay must read them again.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused. The relay may then read some entries twice.
    pub fn put_site_notes(
        &mut self,
        notes: &SiteNotes,
        positions: &[(Partition, StreamPosition)],
        within: Duration,
    ) -> Result<bool, RedisError> {
        let mut fields =
            vec![("passes".to_owned(), notes.passes.to_string()), ("read".to_owned(), notes.read_ms.to_string())];
        fields.extend(notes.floors.iter().map(|(length, floor)| (format!("floor:{length}"), floor.to_string())));
        if notes.met_ms > 0 {
            fields.push(("met".to_owned(), notes.met_ms.to_string()));
        }
        if notes.may_lack {
            // Only an operator takes it back.
            fields.push(("lacks".to_owned(), "1".to_owned()));
        }
        let count = fields.len();
        fields.extend(positions.iter().map(|(of, position)| (of.0.to_string(), encode_position(position))));
        let pairs = fields.into_iter().flat_map(|(field, value)| [field, value]);
        let arguments = [notes.relay.to_string(), count.to_string()].into_iter().chain(pairs);
        let keys = vec![self.space(NOTES), self.space(PLACES)];
        let script = Script::Notes.call(keys, arguments.map(String::into_bytes).collect());
        self.ask(KeyGroup::Space, script, within).map(|answer| answer == Value::Int(1))
    }

    /// Removes the mark that this site may lack states, once an operator has brought them. Returns false if the site is not
    /// marked.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn complete_site(&mut self, within: Duration) -> Result<bool, RedisError> {
        let script = Script::Complete.call(vec![self.space(NOTES)], Vec::new());
        self.ask(KeyGroup::Space, script, within).map(|answer| answer == Value::Int(1))
    }

    /// Gives up the other site: nodes without a site may lease values from here on. `above` has, of each length that the
    /// other site has used, a value above all that it may have leased. Returns false if it was given up before.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn give_up_site(
        &mut self,
        other: &str,
        above: &[(CodeLength, u64)],
        within: Duration,
    ) -> Result<bool, RedisError> {
        let counters = above.iter().map(|(length, _)| self.space(&format!("counter:{length}")));
        let keys = [NOTES, "space"].map(|name| self.space(name)).into_iter().chain(counters).collect();
        let pairs = above.iter().flat_map(|(length, value)| [length.to_string(), value.to_string()]);
        let arguments = std::iter::once(other.to_owned()).chain(pairs).map(String::into_bytes).collect();
        let script = Script::GiveUp.call(keys, arguments);
        self.ask(KeyGroup::Space, script, within).map(|answer| answer == Value::Int(1))
    }

    /// Forgets a site that was given up, for another one in its place. Returns false if a relay has done so before.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn begin_site(&mut self, given_up: &str, within: Duration) -> Result<bool, RedisError> {
        let keys = [NOTES, PLACES, "space"].map(|name| self.space(name)).to_vec();
        let script = Script::BeginSite.call(keys, vec![given_up.as_bytes().to_vec()]);
        self.ask(KeyGroup::Space, script, within).map(|answer| answer == Value::Int(1))
    }

    /// Reads the description of the code space of this Redis.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn other_space(&mut self, within: Duration) -> Result<OtherSpace, RedisError> {
        let get = cmd("HGETALL").arg(self.space("space")).to_owned();
        let answers = self.ask_space(vec![get, cmd("TIME")], within)?;
        let [space, time] = &answers[..] else { return Err(nonsense("the code space of a site")) };
        Ok(OtherSpace::of(pairs(space), time_ms(time)?))
    }

    /// Reads the last heartbeats of all nodes of this Redis, without sending one. Also returns the present time, in
    /// milliseconds since 1970 UTC by its clock.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn heartbeats(&mut self, within: Duration) -> Result<(HeartbeatReply, u64), RedisError> {
        let beats = cmd("ZRANGE").arg(self.space("beats")).arg(0).arg(-1).arg("WITHSCORES").to_owned();
        let nodes = cmd("HGETALL").arg(self.space("nodes")).to_owned();
        let answers = self.ask_space(vec![beats, nodes, cmd("TIME")], within)?;
        let [beats, nodes, time] = &answers[..] else { return Err(nonsense("the heartbeats of a site")) };
        let beats = pairs(beats).into_iter().filter_map(|(node, beat)| Some((node, beat.parse().ok()?))).collect();
        Ok((HeartbeatReply { beats, about: pairs(nodes), ..HeartbeatReply::default() }, time_ms(time)?))
    }

    /// Sends commands about the space together.
    pub(super) fn ask_space(
        &mut self,
        commands: Vec<carom_redis::Cmd>,
        within: Duration,
    ) -> Result<Vec<Value>, RedisError> {
        let together = commands.into_iter().map(RedisCommand::Plain).collect();
        self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0)
    }
}

/// Decodes the answer to `TIME`: seconds and microseconds since 1970.
pub(super) fn time_ms(answer: &Value) -> Result<u64, RedisError> {
    let Value::Array(parts) = answer else { return Err(nonsense("TIME")) };
    let number = |at: usize| parts.get(at).and_then(|part| text(part).parse::<u64>().ok());
    let (Some(seconds), Some(micros)) = (number(0), number(1)) else { return Err(nonsense("TIME")) };
    Ok(seconds * 1_000 + micros / 1_000)
}

/// Decodes a field with the highest counter value of a length.
fn floor(field: &str, value: &str) -> Option<(CodeLength, u64)> {
    Some((length_of(field)?, value.parse().ok()?))
}

/// Returns the code length of a field with a highest counter value; `None` for other fields, and for lengths that this
/// version does not know.
fn length_of(field: &str) -> Option<CodeLength> {
    CodeLength::new(field.strip_prefix("floor:")?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::replication::EntryId;
    use carom_model::replication::sites::{may_have_missed, needs_copies};

    fn notes(fields: &[(&str, &str)]) -> SiteNotes {
        SiteNotes::of(fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn notes_without_damage_are_read_as_they_are() {
        let times = [("read", "900"), ("met", "800")];
        let fields = [("relay", "7"), ("passes", "3"), ("lacks", "0"), ("floor:7", "70"), ("start:7", "60")];
        let floors = vec![(CodeLength::DEFAULT, 70)];
        let read = notes(&[&times[..], &fields[..]].concat());
        assert_eq!(read, SiteNotes { relay: 7, passes: 3, read_ms: 900, met_ms: 800, floors, ..SiteNotes::default() });
        assert_eq!(notes(&[]), SiteNotes::default());
        assert_eq!(notes(&[("later", "?")]), SiteNotes::default(), "a later version wrote it");
    }

    #[test]
    fn each_damaged_note_is_named() {
        for field in ["relay", "passes", "read", "met", "lacks", "floor:7", "floor:x", "start:7"] {
            for value in ["", "?", "-1", "7 "] {
                let read = notes(&[(field, value)]);
                assert_eq!(read.damaged, [field], "{value:?}");
                assert!(read.is_damaged(field));
                assert_eq!(read.damaged_floors().len(), usize::from(field.starts_with("floor:")));
            }
        }
    }

    #[test]
    fn damaged_notes_hide_no_loss() {
        let damaged = notes(&[("read", "90O"), ("lacks", "?")]);
        assert!(damaged.may_lack, "an operator has to look");
        assert!(may_have_missed(damaged.read_ms, 1_000_000, 400));
        assert!(may_have_missed(notes(&[("met", "?")]).met_ms, 1_000_000, 400));
        assert!(!may_have_missed(notes(&[]).read_ms, 1_000_000, 400), "a site that begins");
    }

    #[test]
    fn damaged_counter_value_of_a_site_is_not_zero() {
        let fields = |fields: &[(&str, &str)]| {
            let owned = fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned()));
            OtherSpace::of(owned.collect(), 9)
        };
        let space = fields(&[("site", "lisbon"), ("floor:7", "70"), ("floor:999", "?"), ("server:7", "x")]);
        let floors = vec![(CodeLength::DEFAULT, 70)];
        let known = OtherSpace { site: Some("lisbon".to_owned()), floors, now_ms: 9, ..OtherSpace::default() };
        assert_eq!(space, known, "a later version may have longer codes");
        for value in ["", "?", "-1", "7 ", "7e3"] {
            let space = fields(&[("floor:7", value)]);
            assert_eq!((space.floors, space.damaged_floors), (Vec::new(), vec!["floor:7".to_owned()]), "{value:?}");
        }
    }

    #[test]
    fn damaged_time_of_expiry_hides_no_loss() {
        let expiring = |value: &str| {
            let space = OtherSpace::of(vec![("expiring".to_owned(), value.to_owned())], 1_000_000);
            needs_copies(space.expiring_ms, space.now_ms, 400, 0)
        };
        assert_eq!(["0", "999900", "1", "?", ""].map(expiring), [false, false, true, true, true]);
    }

    #[test]
    fn damaged_position_is_not_one_that_is_absent() {
        let position = StreamPosition { id: EntryId { ms: 5, seq: 7 }, check: 9 };
        let fields = [("0", encode_position(&position)), ("63", "5-7".to_owned()), ("nonsense", "?".to_owned())];
        let read = SitePositions::of(fields.map(|(field, text)| (field.to_owned(), text)).to_vec());
        assert_eq!(read, SitePositions { known: vec![(Partition(0), position)], damaged: vec![Partition(63)] });
        assert_eq!(SitePositions::of(Vec::new()), SitePositions::default());
    }
}
