//! Requests about the streams of changes, one for each partition.

use std::time::{Duration, Instant};

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};
use carom_shards::Code;

use super::client::{KeyGroup, Redis, Script, nonsense};
use carom_model::link::Version;
use carom_model::replication::follow::{StreamEntry, StreamPosition};
use carom_model::replication::{EntryId, Partition};

/// Largest number of entries of each stream that one command reads: a server does nothing else meanwhile. 64 streams of
/// 16 entries take it about 300 microseconds.
pub const READ_TOGETHER_MAX: usize = 16;

/// Time after a refusal for which each stream is read with a command of its own. The refusal may have been for a moment
/// only, or its cause may be removed.
const APART_FOR: Duration = Duration::from_secs(60);

impl Redis {
    /// Reads at most `count` entries of each stream from a position, inclusive. Up to [`READ_TOGETHER_MAX`] they come
    /// with one command, if one server has all streams: a node that polls quiet streams sends one command instead of 64.
    pub fn read(
        &mut self,
        from: &[(Partition, StreamPosition)],
        count: usize,
        within: Duration,
    ) -> Vec<Result<Vec<StreamEntry>, RedisError>> {
        let is_refused = self.together_refused.is_some_and(|at| at.elapsed() < APART_FOR);
        if from.len() > 1 && count <= READ_TOGETHER_MAX && !is_refused && self.client.has_single_server() {
            match self.read_together(from, count, within) {
                Ok(streams) => return streams.into_iter().map(Ok).collect(),
                Err(error @ RedisError::Unavailable { .. }) => {
                    return from.iter().map(|_| Err(error.clone())).collect();
                }
                // One stream is of another type, which must not hide the others; or the server became a cluster; or its
                // user may not run XREAD.
                Err(RedisError::Refused(_)) => self.together_refused = Some(Instant::now()),
            }
        }
        self.read_apart(from, count, within)
    }

    fn read_apart(
        &mut self,
        from: &[(Partition, StreamPosition)],
        count: usize,
        within: Duration,
    ) -> Vec<Result<Vec<StreamEntry>, RedisError>> {
        let questions: Vec<_> = from
            .iter()
            .map(|(partition, position)| {
                let mut range = cmd("XRANGE");
                range.arg(self.stream(*partition)).arg(position.id.to_string()).arg("+").arg("COUNT").arg(count);
                (KeyGroup::Partition(*partition), RedisCommand::Plain(range))
            })
            .collect();
        self.ask_all(questions, within).into_iter().map(|answer| Ok(entries(&answer?))).collect()
    }

    fn read_together(
        &mut self,
        from: &[(Partition, StreamPosition)],
        count: usize,
        within: Duration,
    ) -> Result<Vec<Vec<StreamEntry>>, RedisError> {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(count).arg("STREAMS");
        let names: Vec<String> = from.iter().map(|(partition, _)| self.stream(*partition)).collect();
        for name in &names {
            read.arg(name);
        }
        for (_, position) in from {
            // XREAD begins after an identifier, and the entry at the position is to be checked.
            read.arg(position.id.before().to_string());
        }
        let answer = self.ask(KeyGroup::Partition(from[0].0), RedisCommand::Plain(read), within)?;
        by_stream(&names, &answer).ok_or_else(|| nonsense("XREAD"))
    }

    /// Returns at most `count` entries of a stream behind this one, or from its beginning on.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn entries_behind(
        &mut self,
        partition: Partition,
        behind: Option<EntryId>,
        count: usize,
        within: Duration,
    ) -> Result<Vec<StreamEntry>, RedisError> {
        let from = behind.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
        let mut range = cmd("XRANGE");
        range.arg(self.stream(partition)).arg(from).arg("+").arg("COUNT").arg(count);
        Ok(entries(&self.ask(KeyGroup::Partition(partition), RedisCommand::Plain(range), within)?))
    }

    /// Returns the ends of streams. An empty stream gets an entry that only marks a position.
    pub fn ends(&mut self, partitions: &[Partition], within: Duration) -> Vec<Result<StreamPosition, RedisError>> {
        let mut ends = self.last_entries(partitions, within);
        let empty: Vec<Partition> =
            partitions.iter().zip(&ends).filter(|(_, end)| matches!(end, Ok(None))).map(|(of, _)| *of).collect();
        if !empty.is_empty() {
            let questions: Vec<_> = empty
                .iter()
                .map(|partition| {
                    let mut add = cmd("XADD");
                    add.arg(self.stream(*partition)).arg("*").arg("c").arg("").arg("v").arg("");
                    (KeyGroup::Partition(*partition), RedisCommand::Plain(add))
                })
                .collect();
            self.ask_all(questions, within);
            ends = self.last_entries(partitions, within);
        }
        let nobody = || RedisError::Refused("a stream stays empty".to_owned());
        ends.into_iter().map(|end| end?.ok_or_else(nobody)).collect()
    }

    /// Removes the entries of streams that are older than `kept`, except the last of each.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer for a stream, or refused.
    pub fn trim(&mut self, partitions: &[Partition], kept: Duration, within: Duration) -> Result<(), RedisError> {
        let kept_ms = kept.as_millis().to_string();
        let trim = |partition: &Partition| {
            let script = Script::Trim.call(vec![self.stream(*partition)], vec![kept_ms.clone().into_bytes()]);
            (KeyGroup::Partition(*partition), script)
        };
        let questions = partitions.iter().map(trim).collect();
        self.ask_all(questions, within).into_iter().try_for_each(|answer| answer.map(drop))
    }

    fn last_entries(
        &mut self,
        partitions: &[Partition],
        within: Duration,
    ) -> Vec<Result<Option<StreamPosition>, RedisError>> {
        let questions: Vec<_> = partitions
            .iter()
            .map(|partition| {
                let mut last = cmd("XREVRANGE");
                last.arg(self.stream(*partition)).arg("+").arg("-").arg("COUNT").arg(1);
                (KeyGroup::Partition(*partition), RedisCommand::Plain(last))
            })
            .collect();
        let answers = self.ask_all(questions, within).into_iter();
        answers.map(|answer| Ok(entries(&answer?).first().map(StreamPosition::of))).collect()
    }
}

/// Sorts an answer of `XREAD` by the asked streams. One without entries after its position is not in the answer, and
/// neither is any if the answer is nil.
fn by_stream(names: &[String], answer: &Value) -> Option<Vec<Vec<StreamEntry>>> {
    let mut streams = vec![Vec::new(); names.len()];
    let answered = match answer {
        Value::Nil => &[][..],
        Value::Array(answered) => answered,
        _ => return None,
    };
    for stream in answered {
        let Value::Array(parts) = stream else { return None };
        let [name, found] = &parts[..] else { return None };
        let name = text(name);
        let at = names.iter().position(|asked| *asked == name)?;
        streams[at] = entries(found);
    }
    Some(streams)
}

/// The field of entries whose code has slashes, which versions before format 3 cannot read.
const SLASHES_FIELD: &str = "S";

/// Decodes the entries of a stream. An unreadable entry is left empty: its position still counts. A field with a capital
/// letter is one that a reader must understand.
pub(super) fn entries(answer: &Value) -> Vec<StreamEntry> {
    let entry = |(id, fields): (&Value, &[Value])| {
        let field = |name: &str| {
            let at = fields.chunks_exact(2).find(|pair| text(&pair[0]) == name)?;
            if let Value::BulkString(bytes) = &at[1] { Some(bytes.clone()) } else { None }
        };
        let code = field("c").and_then(|code| Code::from_key(&code).ok());
        let displaced = field("o").and_then(|text| version(&text));
        let is_capital = |name: &Value| {
            let name = text(name);
            name != SLASHES_FIELD && name.starts_with(|first: char| first.is_ascii_uppercase())
        };
        #[cfg(feature = "next-format")]
        let is_capital = |name: &Value| is_capital(name) && !carom_model::replication::formats::next::is_on();
        let is_newer = fields.chunks_exact(2).any(|pair| is_capital(&pair[0]));
        Some(StreamEntry {
            id: text(id).parse().ok()?,
            code,
            text: field("v").unwrap_or_default(),
            displaced,
            is_newer,
        })
    };
    raw_entries(answer).filter_map(entry).collect()
}

/// Returns the identifiers of the entries of a stream, with their fields.
pub(super) fn raw_entries(answer: &Value) -> impl Iterator<Item = (&Value, &[Value])> {
    let entries = if let Value::Array(entries) = answer { &entries[..] } else { &[] };
    entries.iter().filter_map(|entry| {
        let Value::Array(parts) = entry else { return None };
        let [id, Value::Array(fields)] = &parts[..] else { return None };
        Some((id, &fields[..]))
    })
}

/// Parses a version from the text of a state.
fn version(text: &[u8]) -> Option<Version> {
    carom_model::replication::state::version_of(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str) -> Value {
        Value::Array(vec![bulk(id), Value::Array(vec![bulk("c"), bulk(""), bulk("v"), bulk("state")])])
    }

    #[test]
    fn streams_are_told_apart_by_name() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let of = |name: &str, ids: &[&str]| {
            Value::Array(vec![bulk(name), Value::Array(ids.iter().copied().map(entry).collect())])
        };
        let ids = |answer: &Value| -> Option<Vec<Vec<String>>> {
            let streams = by_stream(&names, answer)?;
            Some(streams.iter().map(|stream| stream.iter().map(|entry| entry.id.to_string()).collect()).collect())
        };
        let answer = Value::Array(vec![of("c", &["1-0", "1-1"]), of("a", &["7-0"])]);
        let answered = [vec!["7-0"], vec![], vec!["1-0", "1-1"]];
        assert_eq!(ids(&answer).unwrap(), answered, "a stream that was emptied has no entries, which is a gap");
        assert_eq!(ids(&Value::Nil).unwrap(), [const { Vec::<String>::new() }; 3]);
        assert_eq!(ids(&Value::Array(vec![of("d", &["1-0"])])), None, "nobody asked for it");
        assert_eq!(ids(&Value::Int(1)), None);
        assert_eq!(ids(&Value::Array(vec![Value::Array(vec![bulk("a")])])), None);
    }
}
