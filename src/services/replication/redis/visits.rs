//! Requests about visit counts that nodes exchange: one stream of batches per origin, the list of origins, and snapshots.

use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};

use super::client::{KeyGroup, Redis, nonsense, pairs};
use super::streams::raw_entries;
use carom_limits::VISITS_CHUNKS_HELD;
use carom_model::replication::{PARTITIONS, Partition};
use carom_model::visits::origins::OriginId;

/// Time for which Redis keeps the stream of an origin without a new entry.
const STREAM_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time for which chunks of a snapshot wait for the node that asked for it.
const CHUNKS_KEPT: Duration = Duration::from_secs(60);

/// Time for which no other node answers a request for a snapshot.
const CLAIM_KEPT: Duration = Duration::from_secs(600);

/// The hash with the origins whose counts an operator gives up.
const FORGOTTEN: &str = "visits:forgotten";

/// The origins and requests that all nodes see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisitNotes {
    /// Each origin with its description.
    pub origins: Vec<(OriginId, String)>,
    /// The requests for snapshots, by the origin that asks.
    pub wanted: Vec<(OriginId, String)>,
    /// The origins whose counts an operator gives up. They are not among the others.
    pub forgotten: Vec<OriginId>,
}

/// Entries of the stream of an origin, as one site gives them to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginEntries {
    /// The number of the first entry that the stream has, or 0 for an empty stream.
    pub first: u64,
    /// The entries that were asked for, each with the number of its last batch or block.
    pub entries: Vec<(u64, Vec<u8>)>,
}

impl Redis {
    /// Returns the group of the keys of an origin.
    pub(super) fn group_of_origin(origin: OriginId) -> KeyGroup {
        KeyGroup::Partition(Partition((origin.0 % u64::from(PARTITIONS)) as u8))
    }

    pub(super) fn visit_stream(&self, origin: OriginId) -> String {
        format!("{}:v:{origin}", self.tag(Redis::group_of_origin(origin)))
    }

    /// Appends an entry to a stream of an origin, with the number of its last batch or block as its identifier. Removes
    /// entries before `oldest`.
    pub(super) fn append_entry(
        &mut self,
        (origin, stream): (OriginId, String),
        (last, entry): (u64, &[u8]),
        oldest: u64,
        within: Duration,
    ) -> Result<(), RedisError> {
        let mut add = cmd("XADD");
        add.arg(&stream).arg("MINID").arg("~").arg(format!("{oldest}-0")).arg(format!("{last}-0")).arg("b").arg(entry);
        let expire = cmd("PEXPIRE").arg(&stream).arg(STREAM_KEPT.as_millis() as u64).to_owned();
        let together = vec![RedisCommand::Plain(add), RedisCommand::Plain(expire)];
        let route = self.route(Redis::group_of_origin(origin));
        self.client.ask_groups(vec![(route, together)], within).remove(0).map(|_| ())
    }

    /// Returns up to `count` entries of a stream of an origin, from the one with the batch or block `from` on.
    pub(super) fn entries_from(
        &mut self,
        (origin, stream): (OriginId, String),
        from: u64,
        count: usize,
        within: Duration,
    ) -> Result<Vec<(u64, Vec<u8>)>, RedisError> {
        let mut range = cmd("XRANGE");
        range.arg(stream).arg(format!("{from}-0")).arg("+").arg("COUNT").arg(count);
        let answer = self.ask(Redis::group_of_origin(origin), RedisCommand::Plain(range), within)?;
        Ok(visit_entries(&answer))
    }

    /// Appends an entry to the stream of an origin. Its identifier is the number of its last batch, so an entry is
    /// appended once only. Entries before the batch `oldest` are removed.
    ///
    /// # Errors
    /// [`RedisError`]; refused if the stream has this batch already.
    pub fn publish_visits(
        &mut self,
        origin: OriginId,
        last: u64,
        entry: &[u8],
        oldest: u64,
        within: Duration,
    ) -> Result<(), RedisError> {
        let stream = self.visit_stream(origin);
        self.append_entry((origin, stream), (last, entry), oldest, within)
    }

    /// Returns the number of the last batch in the stream of an origin, or 0 for an empty stream.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn last_visits(&mut self, origin: OriginId, within: Duration) -> Result<u64, RedisError> {
        let mut last = cmd("XREVRANGE");
        last.arg(self.visit_stream(origin)).arg("+").arg("-").arg("COUNT").arg(1);
        let answer = self.ask(Redis::group_of_origin(origin), RedisCommand::Plain(last), within)?;
        Ok(visit_entries(&answer).first().map_or(0, |(last, _)| *last))
    }

    /// Returns entries of the stream of an origin, from the one with the batch `from` on: the number of the last batch of
    /// each, and its bytes.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn visits_from(
        &mut self,
        origin: OriginId,
        from: u64,
        count: usize,
        within: Duration,
    ) -> Result<Vec<(u64, Vec<u8>)>, RedisError> {
        let stream = self.visit_stream(origin);
        self.entries_from((origin, stream), from, count, within)
    }

    /// Returns for each of these origins the entries of its stream from the one with that batch on, at most `count`. For a
    /// relay, which asks for all of them at once, and keeps as much as the streams do.
    ///
    /// Each result has the error of its own stream: a server did not answer, or refused.
    pub fn visits_of_origins(
        &mut self,
        from: &[(OriginId, u64)],
        count: usize,
        within: Duration,
    ) -> Vec<Result<OriginEntries, RedisError>> {
        let stream =
            |(origin, from): &(OriginId, u64)| (Redis::group_of_origin(*origin), self.visit_stream(*origin), *from);
        let streams = from.iter().map(stream).collect();
        self.entries_of_streams(streams, count, within)
    }

    /// Reads streams whose identifiers are numbers, each from a number on.
    pub(super) fn entries_of_streams(
        &mut self,
        streams: Vec<(KeyGroup, String, u64)>,
        count: usize,
        within: Duration,
    ) -> Vec<Result<OriginEntries, RedisError>> {
        let range = |stream: &str, from: &str, count: usize| {
            RedisCommand::Plain(cmd("XRANGE").arg(stream).arg(from).arg("+").arg("COUNT").arg(count).to_owned())
        };
        let together = streams.into_iter().map(|(place, stream, from)| {
            let ranges = vec![range(&stream, "-", 1), range(&stream, &format!("{from}-0"), count)];
            (self.route(place), ranges)
        });
        let together = together.collect();
        let answers = self.client.ask_groups(together, within).into_iter();
        let behind = |answer: Vec<Value>| {
            let [first, found] = &answer[..] else { return Err(nonsense("a stream of an origin")) };
            let first = visit_entries(first).first().map_or(0, |(first, _)| *first);
            Ok(OriginEntries { first, entries: visit_entries(found) })
        };
        answers.map(|answer| answer.and_then(behind)).collect()
    }

    /// Sets the descriptions of origins.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn note_visits(&mut self, set: &[(OriginId, String)], within: Duration) -> Result<(), RedisError> {
        if set.is_empty() {
            return Ok(());
        }
        let mut put = cmd("HSET").arg(self.space("visits")).to_owned();
        for (origin, about) in set {
            put.arg(origin.to_string()).arg(about);
        }
        self.ask(KeyGroup::Space, RedisCommand::Plain(put), within).map(|_| ())
    }

    /// Returns the descriptions of all origins, the requests for snapshots, and the origins whose counts are given up.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn visit_notes(&mut self, within: Duration) -> Result<VisitNotes, RedisError> {
        let get = |name: &str| RedisCommand::Plain(cmd("HGETALL").arg(self.space(name)).to_owned());
        let together = ["visits", "visits:wanted", FORGOTTEN].map(get).into();
        let answers = self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0)?;
        let [origins, wanted, forgotten] = &answers[..] else { return Err(nonsense("visit notes")) };
        let notes = |value: &Value| -> Vec<(OriginId, String)> {
            pairs(value).into_iter().filter_map(|(id, about)| Some((id.parse().ok()?, about))).collect()
        };
        let forgotten: Vec<OriginId> = notes(forgotten).into_iter().map(|(id, _)| id).collect();
        let mut origins = notes(origins);
        origins.retain(|(id, _)| !forgotten.contains(id));
        Ok(VisitNotes { origins, wanted: notes(wanted), forgotten })
    }

    /// Takes an origin off the list of those whose counts are given up.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn keep_visits(&mut self, origin: OriginId, within: Duration) -> Result<(), RedisError> {
        let command = cmd("HDEL").arg(self.space(FORGOTTEN)).arg(origin.to_string()).to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(command), within).map(|_| ())
    }

    /// Asks all nodes for a snapshot; `None` takes the request back.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn want_visits(&mut self, me: OriginId, what: Option<&str>, within: Duration) -> Result<(), RedisError> {
        let wanted = self.space("visits:wanted");
        let command = match what {
            Some(what) => cmd("HSET").arg(wanted).arg(me.to_string()).arg(what).to_owned(),
            None => cmd("HDEL").arg(wanted).arg(me.to_string()).to_owned(),
        };
        self.ask(KeyGroup::Space, RedisCommand::Plain(command), within).map(|_| ())
    }

    /// Claims a request for a snapshot. Returns true if no other node has.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn claim_wanted(&mut self, request: &str, within: Duration) -> Result<bool, RedisError> {
        let key = self.space(&format!("visits:given:{request}"));
        let set = cmd("SET").arg(key).arg("1").arg("NX").arg("PX").arg(CLAIM_KEPT.as_millis() as u64).to_owned();
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(set), within)?;
        Ok(text(&answer) == "OK" || matches!(answer, Value::Okay))
    }

    /// Returns the number of chunks of a snapshot that Redis can hold now.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn room_for_chunks(&mut self, request: &str, within: Duration) -> Result<usize, RedisError> {
        let command = cmd("LLEN").arg(self.chunks(request)).to_owned();
        match self.ask(KeyGroup::Space, RedisCommand::Plain(command), within)? {
            Value::Int(len) => Ok(VISITS_CHUNKS_HELD.saturating_sub(len.max(0) as usize)),
            _ => Err(nonsense("a list of chunks")),
        }
    }

    /// Adds a chunk of a snapshot.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn put_chunk(&mut self, request: &str, chunk: &[u8], within: Duration) -> Result<(), RedisError> {
        let key = self.chunks(request);
        let push = cmd("RPUSH").arg(&key).arg(chunk).to_owned();
        let expire = cmd("PEXPIRE").arg(&key).arg(CHUNKS_KEPT.as_millis() as u64).to_owned();
        let together = vec![RedisCommand::Plain(push), RedisCommand::Plain(expire)];
        let mut answers = self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within);
        answers.remove(0).map(|_| ())
    }

    /// Removes and returns the next chunk of a snapshot. Returns `None` until the sender has added one.
    ///
    /// # Errors
    /// [`RedisError`]; the chunk may be lost then.
    pub fn take_chunk(&mut self, request: &str, within: Duration) -> Result<Option<Vec<u8>>, RedisError> {
        let command = cmd("LPOP").arg(self.chunks(request)).to_owned();
        match self.ask(KeyGroup::Space, RedisCommand::Plain(command), within)? {
            Value::Nil => Ok(None),
            Value::BulkString(chunk) => Ok(Some(chunk)),
            _ => Err(nonsense("a chunk")),
        }
    }

    fn chunks(&self, request: &str) -> String {
        self.space(&format!("visits:chunks:{request}"))
    }
}

/// Decodes the entries of a stream of visits, whose identifiers are numbers.
pub(super) fn visit_entries(answer: &Value) -> Vec<(u64, Vec<u8>)> {
    let entry = |(id, fields): (&Value, &[Value])| {
        let [_, Value::BulkString(bytes)] = fields else { return None };
        Some((text(id).split_once('-')?.0.parse().ok()?, bytes.clone()))
    };
    raw_entries(answer).filter_map(entry).collect()
}
