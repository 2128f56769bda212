//! The visit log of a fleet, without Redis and without a disk. This module has the entries of its streams, the part of
//! each origin that a node has, and the spans of time in which it may lack visits.
//!
//! A node numbers the blocks of its own log from 1 and without gaps, and appends them to a stream of its own. All other
//! nodes take the next number of each origin, skip lower ones, and note a *gap* before a higher one. `services::visit_log`
//! does what this decides.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use carom_limits::{VISIT_LOG_GAPS_MAX, VISIT_LOG_ORIGINS_MAX, VISIT_LOG_STREAM_BYTES, VISIT_LOG_STREAM_ENTRIES};
use xxhash_rust::xxh3::xxh3_64;

use super::origins::OriginId;
use super::tally::{push_number, take_bytes, take_number};
use crate::formats::dates::INSTANT_MS_MAX;

/// Time by which the visits of two blocks may overlap, in milliseconds: cores hand them over within a second.
const OVERLAP_MS: u64 = 5_000;

/// Bytes that Redis needs for an entry besides its content.
const ENTRY_OVERHEAD: usize = 128;

/// Age at which an entry leaves the stream. Entries from before a comparison leave together, so they may stay twice as long.
const ENTRY_KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The version of an entry that this version of carom writes. All versions begin with the same numbers.
const ENTRY_VERSION: u8 = 1;

/// The highest number of a block. Redis may hold anything, and each block has a successor.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// A span of time, including both ends, in milliseconds since 1970 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogSpan {
    /// The first instant.
    pub from_ms: u64,
    /// The last instant.
    pub to_ms: u64,
}

impl LogSpan {
    /// Returns the shortest span that has both.
    #[must_use]
    pub fn with(self, other: LogSpan) -> LogSpan {
        LogSpan { from_ms: self.from_ms.min(other.from_ms), to_ms: self.to_ms.max(other.to_ms) }
    }

    /// True if both have an instant in common.
    pub fn touches(self, other: LogSpan) -> bool {
        self.from_ms <= other.to_ms && other.from_ms <= self.to_ms
    }

    /// Returns the span between two blocks. Visits beside them may be missing, too.
    fn between(before_ms: u64, behind_ms: u64) -> LogSpan {
        let (from_ms, to_ms) = (before_ms.min(behind_ms), behind_ms.max(before_ms));
        LogSpan { from_ms: from_ms.saturating_sub(OVERLAP_MS), to_ms: to_ms.saturating_add(OVERLAP_MS) }
    }
}

/// The spans of time in which a log may lack visits: in order, and without an instant in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogGaps(Vec<LogSpan>);

impl LogGaps {
    /// Adds a span. Beyond [`VISIT_LOG_GAPS_MAX`] spans, the two that are closest become one.
    pub fn add(&mut self, mut span: LogSpan) {
        self.0.retain(|of| {
            let touches = of.touches(span);
            if touches {
                span = span.with(*of);
            }
            !touches
        });
        let place = self.0.partition_point(|of| of.from_ms < span.from_ms);
        self.0.insert(place, span);
        while self.0.len() > VISIT_LOG_GAPS_MAX {
            let distance = |at: &usize| self.0[at + 1].from_ms - self.0[*at].to_ms;
            let Some(at) = (0..self.0.len() - 1).min_by_key(distance) else { return };
            self.0[at] = self.0[at].with(self.0[at + 1]);
            self.0.remove(at + 1);
        }
        debug_assert!(self.0.is_sorted_by(|one, next| one.to_ms < next.from_ms), "spans overlap");
    }

    /// True if a visit of this span may be missing.
    pub fn touch(&self, span: LogSpan) -> bool {
        self.0.iter().any(|of| of.touches(span))
    }

    /// Removes spans that end before an instant: no query reaches them.
    pub fn forget_before(&mut self, oldest_ms: u64) {
        self.0.retain(|span| span.to_ms >= oldest_ms);
    }

    /// Returns the spans, oldest first.
    pub fn spans(&self) -> &[LogSpan] {
        &self.0
    }
}

/// An entry of a stream: blocks of one origin with consecutive numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The number of the first block.
    pub first: u64,
    /// The span of the visits in it.
    pub span: LogSpan,
    /// The bytes of all entries that the origin had published before.
    pub published: u64,
    /// The blocks, as they are on the disk of the origin.
    pub blocks: Vec<Vec<u8>>,
}

/// An entry as it was read from a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadEntry {
    /// An entry whose blocks this version can read.
    Known(LogEntry),
    /// An entry of a later version: the number of its first block, and the span of its visits.
    Later(u64, LogSpan),
    /// Bytes that are not an entry.
    Damaged,
}

impl LogEntry {
    /// Returns the number of the last block, which is the identifier of the entry.
    pub fn last(&self) -> u64 {
        self.first + (self.blocks.len() as u64).saturating_sub(1)
    }

    /// Returns the bytes of the entry, which end with a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![ENTRY_VERSION];
        for number in [self.first, self.span.from_ms, self.span.to_ms, self.published] {
            push_number(number, &mut out);
        }
        for block in &self.blocks {
            push_number(block.len() as u64, &mut out);
            out.extend_from_slice(block);
        }
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }
}

impl ReadEntry {
    /// True if nodes write entries with this identifier. Any other one is left out.
    pub fn is_number(last: u64) -> bool {
        (1..=NUMBER_MAX).contains(&last)
    }

    /// Reads an entry with this identifier.
    pub fn read(bytes: &[u8], last: u64) -> ReadEntry {
        ReadEntry::try_read(bytes, last).unwrap_or(ReadEntry::Damaged)
    }

    fn try_read(bytes: &[u8], last: u64) -> Option<ReadEntry> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        if xxh3_64(content) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (version, mut rest) = content.split_first()?;
        let mut number = || take_number(&mut rest);
        let [first, from_ms, to_ms, published] = [number()?, number()?, number()?, number()?];
        let span = LogSpan { from_ms, to_ms };
        if !(1..=last).contains(&first) || last > NUMBER_MAX || from_ms > to_ms || to_ms > INSTANT_MS_MAX {
            return None;
        }
        if *version != ENTRY_VERSION {
            return Some(ReadEntry::Later(first, span));
        }
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            blocks.push(take_bytes(&mut rest)?.to_vec());
        }
        let is_whole = blocks.len() as u64 == last - first + 1;
        is_whole.then_some(ReadEntry::Known(LogEntry { first, span, published, blocks }))
    }
}

/// The description of an origin that all nodes see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogNote {
    /// The number of the last block in its stream.
    pub number: u64,
    /// The last visit of that block, in milliseconds since 1970 UTC.
    pub last_ms: u64,
    /// The span of visits that the origin has logged and does not publish, such as those from before its fleet.
    pub lacking: Option<LogSpan>,
    /// The name of the node.
    pub node: String,
}

impl LogNote {
    /// Parses the text of a description; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<LogNote> {
        let mut words = text.splitn(5, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let [of_block, last_ms, from_ms, to_ms] = [number()?, number()?, number()?, number()?];
        let lacking = (from_ms <= to_ms && to_ms > 0).then_some(LogSpan { from_ms, to_ms });
        if of_block > NUMBER_MAX || last_ms > INSTANT_MS_MAX {
            return None;
        }
        Some(LogNote { number: of_block, last_ms, lacking, node: words.next().unwrap_or_default().to_owned() })
    }

    /// Returns the text of the description.
    pub fn to_text(&self) -> String {
        let LogSpan { from_ms, to_ms } = self.lacking.unwrap_or(LogSpan { from_ms: 0, to_ms: 0 });
        format!("{} {} {from_ms} {to_ms} {}", self.number, self.last_ms, self.node)
    }
}

/// The position up to which a log has the blocks of an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OriginPosition {
    /// The number of the last block.
    pub number: u64,
    /// The last visit of the blocks so far, in milliseconds since 1970 UTC.
    pub last_ms: u64,
}

/// The knowledge of a node about its own log and those of the other nodes. It is stored beside the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedLogState {
    own: OriginId,
    lacking: Option<LogSpan>,
    positions: BTreeMap<OriginId, OriginPosition>,
    gaps: LogGaps,
    /// The number of the last sealed segment whose blocks the positions count.
    sealed: u64,
    /// True if an earlier state was lost: the log may have blocks of origins that have no position here.
    was_lost: bool,
}

impl SharedLogState {
    /// Returns the state of a log whose state was lost or damaged: its visits up to now may be incomplete.
    pub fn lost(now_ms: u64) -> SharedLogState {
        let mut state = SharedLogState { was_lost: true, ..SharedLogState::default() };
        state.gaps.add(LogSpan { from_ms: 0, to_ms: now_ms });
        state
    }

    /// Returns the identity of the node's own log.
    pub fn own(&self) -> OriginId {
        self.own
    }

    /// True once the log has an identity.
    pub fn has_identity(&self) -> bool {
        self.own != OriginId::default()
    }

    /// Gives the log an identity. `lacking` is the span of visits that it has already and does not publish.
    pub fn identify(&mut self, id: OriginId, lacking: Option<LogSpan>) {
        assert!(!self.positions.contains_key(&id), "two logs would have one identity");
        (self.own, self.lacking) = (id, lacking);
        self.positions.insert(id, OriginPosition::default());
    }

    /// Ends the sharing of the log. Its next visits are those of another identity.
    pub fn leave(&mut self) {
        (self.own, self.lacking) = (OriginId::default(), None);
    }

    /// Gives the log another identity, because Redis has later blocks of the present one: the directory is an older
    /// copy. `common` is the last block that both copies have. This node then reads the later blocks as those of
    /// another node. The other nodes lack the visits that this node has logged since `common`.
    pub fn renew(&mut self, id: OriginId, common: OriginPosition, now_ms: u64) {
        let former = self.position(self.own);
        let has_more = former.number > common.number;
        if has_more {
            // Two directories have used these numbers. After a crash, the log may take one for the other.
            self.gaps.add(LogSpan::between(common.last_ms, now_ms));
        }
        self.positions.insert(self.own, common);
        self.identify(id, has_more.then(|| LogSpan::between(common.last_ms, now_ms)));
    }

    /// Returns the number of the last sealed segment whose blocks the positions count.
    pub fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Notes that the positions count the blocks of all sealed segments up to a number.
    pub fn note_sealed(&mut self, segment: u64) {
        self.sealed = self.sealed.max(segment);
    }

    /// Returns the span of own visits that other nodes cannot get.
    pub fn lacking(&self) -> Option<LogSpan> {
        self.lacking
    }

    /// Returns how far the log has the blocks of an origin.
    pub fn position(&self, id: OriginId) -> OriginPosition {
        self.positions.get(&id).copied().unwrap_or_default()
    }

    /// True if the log knows an origin.
    pub fn knows(&self, id: OriginId) -> bool {
        self.positions.contains_key(&id)
    }

    /// Iterates over all origins.
    pub fn positions(&self) -> impl Iterator<Item = (OriginId, OriginPosition)> {
        self.positions.iter().map(|(id, position)| (*id, *position))
    }

    /// Returns the spans in which visits may be missing.
    pub fn gaps(&self) -> &LogGaps {
        &self.gaps
    }

    /// Notes that visits of a span may be missing.
    pub fn add_gap(&mut self, span: LogSpan) {
        self.gaps.add(span);
    }

    /// Removes gaps that no query reaches.
    pub fn forget_before(&mut self, oldest_ms: u64) {
        self.gaps.forget_before(oldest_ms);
    }

    /// Notes that the log has all blocks of an origin up to a number.
    pub fn reach(&mut self, id: OriginId, number: u64, last_ms: u64) {
        let position = self.positions.entry(id).or_default();
        position.number = position.number.max(number);
        position.last_ms = position.last_ms.max(last_ms);
    }

    /// Registers an origin with its description. Returns true if the state changed and must be stored before blocks of the
    /// origin. Beyond twice [`VISIT_LOG_ORIGINS_MAX`] origins, the one with the oldest visits is forgotten: Redis has fewer,
    /// so it does not come back.
    pub fn meet(&mut self, id: OriginId, note: &LogNote) -> bool {
        if self.knows(id) {
            return false;
        }
        if self.positions.len() >= 2 * VISIT_LOG_ORIGINS_MAX {
            let others = self.positions.iter().filter(|(of, _)| **of != self.own);
            if let Some(oldest) = others.min_by_key(|(_, position)| position.last_ms).map(|(of, _)| *of) {
                self.positions.remove(&oldest);
            }
        }
        note.lacking.into_iter().for_each(|span| self.gaps.add(span));
        // The log may have these blocks already, or it may not.
        let skipped = if self.was_lost { note.number } else { 0 };
        if skipped > 0 {
            self.gaps.add(LogSpan { from_ms: 0, to_ms: note.last_ms });
        }
        self.positions.insert(id, OriginPosition { number: skipped, last_ms: 0 });
        true
    }

    /// Prepares for blocks of an origin from `first` on, the earliest of which has visits from `from_ms` on. Returns true if
    /// blocks before them are missing: then the gap must be stored before the blocks.
    pub fn bridge(&mut self, id: OriginId, first: u64, from_ms: u64) -> bool {
        let before = self.position(id);
        if first <= before.number.saturating_add(1) {
            return false;
        }
        self.gaps.add(LogSpan::between(before.last_ms, from_ms));
        self.reach(id, first - 1, from_ms);
        true
    }

    /// Skips blocks of an origin up to a number, which the stream lacks or this version cannot read, and whose last visit
    /// is at `to_ms`. The gap must be stored.
    pub fn skip(&mut self, id: OriginId, number: u64, to_ms: u64) {
        assert!(number <= NUMBER_MAX, "the next block would have no number");
        self.gaps.add(LogSpan::between(self.position(id).last_ms, to_ms));
        self.reach(id, number, to_ms);
    }

    /// Returns the stored form: lines, the last of which is a checksum.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{arguments}");
        };
        line(format_args!("own {}", self.own));
        if let Some(LogSpan { from_ms, to_ms }) = self.lacking {
            line(format_args!("lacks {from_ms} {to_ms}"));
        }
        if self.sealed > 0 {
            line(format_args!("sealed {}", self.sealed));
        }
        if self.was_lost {
            line(format_args!("lost"));
        }
        for (id, OriginPosition { number, last_ms }) in &self.positions {
            line(format_args!("at {id} {number} {last_ms}"));
        }
        for LogSpan { from_ms, to_ms } in self.gaps.spans() {
            line(format_args!("gap {from_ms} {to_ms}"));
        }
        let sum = xxh3_64(text.as_bytes());
        let _ = writeln!(text, "sum {sum:016x}");
        text
    }

    /// Reads the stored form; `None` if it is damaged.
    pub fn decode(text: &str) -> Option<SharedLogState> {
        let (content, sum) = text.strip_suffix('\n')?.rsplit_once("sum ")?;
        if u64::from_str_radix(sum, 16).ok()? != xxh3_64(content.as_bytes()) {
            return None;
        }
        let mut state = SharedLogState::default();
        for line in content.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let span = |from: &str, to: &str| {
                let (from_ms, to_ms) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
                (from_ms <= to_ms).then_some(LogSpan { from_ms, to_ms })
            };
            match words[..] {
                ["own", id] => state.own = id.parse().ok()?,
                ["lacks", from, to] => state.lacking = Some(span(from, to)?),
                ["sealed", segment] => state.sealed = segment.parse().ok()?,
                ["lost"] => state.was_lost = true,
                ["at", id, number, last_ms] => {
                    let position = OriginPosition { number: number.parse().ok()?, last_ms: last_ms.parse().ok()? };
                    state.positions.insert(id.parse().ok()?, position);
                }
                ["gap", from, to] => state.gaps.add(span(from, to)?),
                _ => return None,
            }
        }
        Some(state)
    }
}

/// The stream of this node in Redis, as far as this node knows: the last published block, and the entries to trim.
#[derive(Clone, Debug)]
pub struct OwnLogStream {
    published: u64,
    is_unsure: bool,
    /// The bytes of all entries that this origin has published.
    total: u64,
    /// Bytes of the entries that were in the stream at the last comparison and are still there.
    earlier: usize,
    /// The time at which these must leave.
    earlier_until: Duration,
    /// The identifier, the bytes and the time of each entry of this process.
    window: VecDeque<(u64, usize, Duration)>,
    window_bytes: usize,
    /// The number of this node that Redis was last given.
    noted: u64,
}

impl Default for OwnLogStream {
    fn default() -> OwnLogStream {
        OwnLogStream {
            published: 0,
            is_unsure: true,
            total: 0,
            earlier: 0,
            earlier_until: Duration::ZERO,
            window: VecDeque::new(),
            window_bytes: 0,
            noted: 0,
        }
    }
}

impl OwnLogStream {
    /// True if Redis may have other blocks of this node than the node believes: it must [`OwnLogStream::compare`] first.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Returns the number of the last block that Redis has.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Compares with the first and the last entry in the stream, each with its identifier, and with the number that Redis
    /// has noted. `logged` is the number of the last own block. `now` is the time since the boot of the machine, and
    /// `now_ms` that since 1970 UTC. Returns false if Redis has a later block: then the directory is an older copy, and the
    /// log needs another identity.
    pub fn compare(
        &mut self,
        logged: u64,
        ends: &[(u64, Vec<u8>)],
        noted: u64,
        (now, now_ms): (Duration, u64),
    ) -> bool {
        let in_stream = ends.last().map_or(0, |(last, _)| *last);
        if in_stream.max(noted) > logged {
            *self = OwnLogStream { is_unsure: false, ..OwnLogStream::default() };
            return false;
        }
        // The bytes before an entry, and its last visit.
        let about = |entry: &(u64, Vec<u8>)| match ReadEntry::read(&entry.1, entry.0) {
            ReadEntry::Known(known) => (known.published, known.span.to_ms),
            ReadEntry::Later(_, span) => (0, span.to_ms),
            ReadEntry::Damaged => (0, 0),
        };
        let (begin, oldest_ms) = ends.first().map_or((0, now_ms), about);
        let end = ends.last().map_or(0, |last| about(last).0.saturating_add(last.1.len() as u64));
        let age = Duration::from_millis(now_ms.saturating_sub(oldest_ms));
        (self.is_unsure, self.published) = (false, in_stream);
        let earlier = end.saturating_sub(begin).min(VISIT_LOG_STREAM_BYTES as u64) as usize;
        (self.total, self.earlier) = (end, earlier);
        self.earlier_until = now + ENTRY_KEPT.min((2 * ENTRY_KEPT).saturating_sub(age));
        (self.window, self.window_bytes) = (VecDeque::new(), 0);
        true
    }

    /// Returns the bytes of all entries so far, for the next one.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Makes room for an entry of so many bytes, and returns the identifier of the first entry that the stream should keep;
    /// 0 to keep all. Entries from before the last comparison leave together.
    pub fn make_room(&mut self, bytes: usize, now: Duration) -> u64 {
        let is_full = |of: &OwnLogStream| {
            let used = of.earlier + of.window_bytes + of.window.len() * ENTRY_OVERHEAD;
            used + bytes > VISIT_LOG_STREAM_BYTES || of.window.len() >= VISIT_LOG_STREAM_ENTRIES
        };
        let is_old = |at: Duration| now.saturating_sub(at) > ENTRY_KEPT;
        if is_full(self) || now > self.earlier_until {
            self.earlier = 0;
        }
        while is_full(self) || self.window.front().is_some_and(|(_, _, at)| is_old(*at)) {
            let Some((_, bytes, _)) = self.window.pop_front() else { break };
            self.window_bytes -= bytes;
        }
        if self.earlier > 0 { 0 } else { self.window.front().map_or(self.published + 1, |(id, _, _)| *id) }
    }

    /// Notes that Redis has the entry with this identifier.
    pub fn sent(&mut self, last: u64, bytes: usize, now: Duration) {
        assert!(last > self.published, "Redis refuses an entry that it has");
        self.published = last;
        self.total = self.total.saturating_add(bytes as u64);
        self.window_bytes += bytes;
        self.window.push_back((last, bytes, now));
    }

    /// Notes that the entry that was sent may be there or not.
    pub fn doubt(&mut self) {
        self.is_unsure = true;
    }

    /// Notes the number of this node in Redis. Returns the number that Redis must be given; `None` if it has that. A lower
    /// number shows that Redis has lost writes: then the node compares first.
    pub fn number_to_note(&mut self, known: Option<u64>) -> Option<u64> {
        if known.unwrap_or(0) < self.noted {
            (self.noted, self.is_unsure) = (0, true);
            return None;
        }
        if known.is_some_and(|known| known >= self.published) {
            return None;
        }
        self.noted = self.published;
        Some(self.published)
    }
}

#[cfg(test)]
mod tests;
