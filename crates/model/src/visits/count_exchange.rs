//! The exchange of batches through Redis, without Redis: what a node publishes, what it reads, and when it asks for a
//! snapshot.
//!
//! Redis keeps a bounded window of the stream of each origin, and the number of the last batch of each. It may lose any of
//! that: then each node publishes again what it has. A node that misses a batch asks for a snapshot, which the origin
//! answers, or after some seconds any node that has more.
//!
//! Instants are passed in, as the time since the boot of the machine. `services::visits` does what this decides, and so
//! does the simulator of the fleet (`tests/fleet_sim/counts.rs`). [`super::batches`] decides which batches count, and
//! [`super::entries`] has their form in a stream.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use carom_limits::{VISITS_ENTRY_BYTES, VISITS_STREAM_BYTES, VISITS_UNSENT_BYTES};

use super::batches::VisitBatch;
use super::entries;
use super::origins::{OriginId, OriginSlot};

/// Time for which a batch may be missing before a snapshot is asked for. A node whose stream Redis has lost publishes it
/// again within that time.
const GAP_TIME: Duration = Duration::from_secs(3);

/// Time after news of an origin for which its stream is read, even if Redis names no later batch. The node may have
/// been killed before it named its last ones.
const READ_TIME: Duration = Duration::from_secs(10);

/// Time after which a node tells Redis the number of another origin. Those that are alive do so themselves.
const LAG_TIME: Duration = Duration::from_secs(5);

/// Time after which a node answers a request for the visits of another one.
const OTHERS_AFTER: Duration = Duration::from_secs(3);

/// Age from which a request counts as left behind by a node that is gone. A node that waits repeats its request sooner.
pub const STALE_AFTER: Duration = Duration::from_secs(45);

/// Time without progress after which a node repeats its request.
const REPEAT_AFTER: Duration = Duration::from_secs(20);

/// An entry for the stream of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitEntry {
    /// The number of the last batch in it, which is its identifier.
    pub last: u64,
    /// The batches of the origin.
    pub bytes: Vec<u8>,
    /// The number of the first batch that the stream should keep.
    pub oldest: u64,
}

/// The batches of this node on their way to its stream in Redis.
#[derive(Clone, Debug)]
pub struct OwnStream {
    /// Batches that Redis has, so that they can be published again, then those that it lacks.
    window: VecDeque<VisitBatch>,
    window_bytes: usize,
    /// The number of the last batch that Redis has.
    published: u64,
    /// True if Redis may have more batches than that.
    is_unsure: bool,
    /// The number of this node that Redis was last told.
    noted: u64,
}

impl Default for OwnStream {
    fn default() -> OwnStream {
        OwnStream { window: VecDeque::new(), window_bytes: 0, published: 0, is_unsure: true, noted: 0 }
    }
}

impl OwnStream {
    /// True if Redis may have other batches of this node than the node believes: it must [`OwnStream::compare`] first.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Compares with the last batch that Redis has of this node, by its stream or its note. Returns false if another
    /// directory has the identity, or this directory is an older copy. Then the node needs another identity, under
    /// which nothing is published yet. `synced` is the number of the last synced batch that this node has counted, and
    /// `in_stream` the last one in the stream.
    pub fn compare(&mut self, synced: u64, in_stream: u64, noted: u64) -> bool {
        self.is_unsure = false;
        let synced = synced.max(self.window.back().map_or(0, |batch| batch.number));
        let is_ours = in_stream.max(noted) <= synced;
        if is_ours {
            self.published = in_stream;
        } else {
            *self = OwnStream { is_unsure: false, ..OwnStream::default() };
        }
        is_ours
    }

    /// Adds synced batches.
    pub fn add(&mut self, batches: Vec<VisitBatch>) {
        for batch in batches {
            self.window_bytes += batch.content.len();
            self.window.push_back(batch);
        }
        self.bound();
    }

    /// Returns the next entry that Redis lacks; `None` if it has all.
    pub fn next_entry(&self) -> Option<VisitEntry> {
        let first = self.window.partition_point(|batch| batch.number <= self.published);
        let (mut bytes, mut last) = (entries::begin(), None);
        for batch in self.window.range(first..) {
            if last.is_some() && bytes.len() + batch.content.len() > VISITS_ENTRY_BYTES {
                break;
            }
            entries::push_batch(batch, &mut bytes);
            last = Some(batch.number);
        }
        Some(VisitEntry { last: last?, bytes, oldest: self.oldest() })
    }

    /// Returns the number of the first batch that the stream should keep. Batches of earlier processes stay as long as there
    /// is room: other nodes may lack them, and a fold has removed them from the count log. Their sizes are unknown here, so
    /// they count as the mean of the window.
    fn oldest(&self) -> u64 {
        let room = VISITS_STREAM_BYTES.saturating_sub(self.window_bytes);
        let earlier = room * self.window.len() / self.window_bytes.max(1);
        let first = self.window.front().map_or(1, |batch| batch.number);
        first.saturating_sub(earlier as u64).max(1)
    }

    /// Notes that Redis has the entry with this last batch, or has had it and lost it: nodes that miss it get a snapshot.
    pub fn sent(&mut self, last: u64) {
        self.published = last;
        self.bound();
    }

    /// True if Redis lacks batches of this node, as far as the node knows.
    pub fn is_behind(&self) -> bool {
        self.window.back().is_some_and(|batch| batch.number > self.published)
    }

    /// Notes that the entry that was sent may be there, or be one that Redis has already.
    pub fn doubt(&mut self) {
        self.is_unsure = true;
    }

    /// Drops the oldest batches: those that Redis has beyond its window, and others beyond the bound on memory.
    fn bound(&mut self) {
        while let Some(batch) = self.window.front() {
            let most = if batch.number <= self.published { VISITS_STREAM_BYTES } else { VISITS_UNSENT_BYTES };
            if self.window_bytes <= most {
                break;
            }
            self.window_bytes -= batch.content.len();
            self.window.pop_front();
        }
    }

    /// Hears the number of this node in Redis. Returns true if Redis was emptied, or has lost writes: then the node must
    /// publish before it notes a number.
    pub fn hear(&mut self, known: u64) -> bool {
        let is_forgotten = known < self.noted;
        if is_forgotten {
            self.noted = 0;
            self.is_unsure = true;
        }
        is_forgotten
    }

    /// Returns the number that Redis must be told; `None` if it knows. `synced` is the number of the last synced batch.
    /// It counts while this process has no batches: those of earlier processes are in the stream, or only in a
    /// snapshot.
    pub fn number_to_note(&mut self, synced: u64, known: u64) -> Option<u64> {
        let number = if self.window.is_empty() { synced } else { self.published };
        let is_news = number > known;
        if is_news {
            self.noted = number;
        }
        is_news.then_some(number)
    }
}

/// The reason why counts of an origin, or those of a whole node, are missing on this node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CountsLack {
    /// Batches have not arrived. If they do not come, a snapshot replaces them.
    Missing,
    /// This node stores no counts now: its disk is full or has failed, or its memory has no room for more of them.
    Unstored,
    /// No slot is free for the origin, or for a snapshot of it.
    NoSlot,
    /// The next batches are in a format of a later version.
    Newer,
    /// The node sends no heartbeats.
    Silent,
    /// The node cannot send its counts.
    Unsent,
}

impl CountsLack {
    /// All reasons.
    pub const ALL: [CountsLack; 6] = [
        CountsLack::Missing,
        CountsLack::Unstored,
        CountsLack::NoSlot,
        CountsLack::Newer,
        CountsLack::Silent,
        CountsLack::Unsent,
    ];

    /// Returns the name of the reason in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            CountsLack::Missing => "missing",
            CountsLack::Unstored => "unstored",
            CountsLack::NoSlot => "noSlot",
            CountsLack::Newer => "newer",
            CountsLack::Silent => "silent",
            CountsLack::Unsent => "unsent",
        }
    }
}

/// The other origins, as far as Redis tells of them.
#[derive(Clone, Debug, Default)]
pub struct OtherOrigins {
    /// The time since which each origin lacks a batch.
    gaps: HashMap<OriginId, Duration>,
    /// The time since which batches of each origin wait in Redis for another reason than a missing one.
    held: HashMap<OriginId, (CountsLack, Duration)>,
    /// The last known number of each origin in Redis.
    known: HashMap<OriginId, u64>,
    /// The last time when the number of each origin was a new one.
    news: HashMap<OriginId, Duration>,
    /// The time since which Redis has a lower number of an origin than counts here.
    lagging: HashMap<OriginId, Duration>,
    /// The last time when a snapshot of each origin was asked for or its stream could not be read, until no batch of it is
    /// missing.
    tried: HashMap<OriginId, Duration>,
}

impl OtherOrigins {
    /// Hears the numbers of all origins in Redis.
    pub fn hear(&mut self, numbers: impl IntoIterator<Item = (OriginId, u64)>, now: Duration) {
        let numbers: HashMap<OriginId, u64> = numbers.into_iter().collect();
        for (id, number) in &numbers {
            if self.known.get(id) != Some(number) {
                self.news.insert(*id, now);
            }
        }
        self.known = numbers;
    }

    /// Returns the number of an origin in Redis, or 0.
    pub fn known_of(&self, id: OriginId) -> u64 {
        self.known.get(&id).copied().unwrap_or(0)
    }

    /// True if Redis has lost the number of another origin, and the origin does not restore it itself: then this node notes
    /// it. `counted` is the number of the last batch that counts here.
    pub fn must_note(&mut self, id: OriginId, counted: u64, now: Duration) -> bool {
        let is_lost = counted > self.known_of(id);
        let is_due = is_lost && now.saturating_sub(*self.lagging.entry(id).or_insert(now)) >= LAG_TIME;
        if !is_lost || is_due {
            self.lagging.remove(&id);
        }
        is_due
    }

    /// True if the stream of an origin must be read.
    pub fn is_read(&self, id: OriginId, counted: u64, now: Duration) -> bool {
        let has_news = self.news.get(&id).is_some_and(|since| now.saturating_sub(*since) < READ_TIME);
        has_news || counted < self.known_of(id)
    }

    /// Notes that no batch of an origin is missing.
    pub fn is_whole(&mut self, id: OriginId) {
        self.gaps.remove(&id);
        self.held.remove(&id);
        self.tried.remove(&id);
    }

    /// Notes that batches of an origin wait in Redis, for a reason that no snapshot of the origin ends.
    pub fn hold(&mut self, id: OriginId, why: CountsLack, now: Duration) {
        self.gaps.remove(&id);
        let held = self.held.entry(id).or_insert((why, now));
        if held.0 != why {
            *held = (why, now);
        }
    }

    /// True if batches of an origin wait in Redis.
    pub fn is_held(&self, id: OriginId) -> bool {
        self.held.contains_key(&id)
    }

    /// Notes that a batch of an origin is missing. Returns true if a snapshot should be asked for.
    pub fn is_late(&mut self, id: OriginId, now: Duration) -> bool {
        self.held.remove(&id);
        now.saturating_sub(*self.gaps.entry(id).or_insert(now)) >= GAP_TIME
    }

    /// Returns the last time at which this node asked for a snapshot of an origin, or could not read its stream, since
    /// it began to lack batches. Origins are read in the order of these times, so that none of them keeps the others
    /// waiting. A node receives one snapshot at a time, and no node may have the batch that one origin lacks. Likewise,
    /// the server of one stream may be away.
    pub fn tried(&self, id: OriginId) -> Option<Duration> {
        self.tried.get(&id).copied()
    }

    /// Notes that a snapshot of an origin is asked for, or that its stream could not be read.
    pub fn note_tried(&mut self, id: OriginId, now: Duration) {
        self.tried.insert(id, now);
    }

    /// Iterates over the origins of which counts are missing here, each with the reason and since when.
    pub fn lacks(&self) -> impl Iterator<Item = (OriginId, CountsLack, Duration)> {
        let gaps = self.gaps.iter().map(|(id, since)| (*id, CountsLack::Missing, *since));
        gaps.chain(self.held.iter().map(|(id, (why, since))| (*id, *why, *since)))
    }
}

/// A request for a snapshot, as all nodes see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotRequest {
    /// The origin that asks.
    pub by: OriginId,
    /// The name of the request.
    pub request: String,
    /// The origin whose counts are wanted.
    pub of: OriginId,
    /// The number of the last batch that the asking node has.
    pub after: u64,
    /// The site of the asking node, if the relay of that site has forwarded the request; `None` at the site itself.
    pub site: Option<String>,
}

impl SnapshotRequest {
    /// Parses the text of a request; `None` if it is malformed.
    pub fn parse(by: OriginId, text: &str) -> Option<SnapshotRequest> {
        let mut words = text.splitn(4, ' ');
        let (request, of, after) = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(SnapshotRequest { by, request, of, after, site: words.next().map(str::to_owned) })
    }

    /// Returns the text of a request.
    pub fn to_text(&self) -> String {
        let text = format!("{} {} {}", self.request, self.of, self.after);
        match &self.site {
            Some(site) => format!("{text} {site}"),
            None => text,
        }
    }
}

/// The requests for snapshots, with the time when each was first seen.
#[derive(Clone, Debug, Default)]
pub struct SeenRequests(HashMap<String, Duration>);

impl SeenRequests {
    /// Takes all requests that Redis has, and returns those that this node may answer.
    pub fn due(&mut self, own: OriginId, all: Vec<SnapshotRequest>, now: Duration) -> Vec<SnapshotRequest> {
        let wanted: Vec<SnapshotRequest> = all.into_iter().filter(|wanted| wanted.by != own).collect();
        self.0.retain(|request, _| wanted.iter().any(|wanted| wanted.request == *request));
        let mut due = Vec::new();
        for wanted in wanted {
            let age = now.saturating_sub(*self.0.entry(wanted.request.clone()).or_insert(now));
            let from = if wanted.of == own { Duration::ZERO } else { OTHERS_AFTER };
            if (from..=STALE_AFTER).contains(&age) {
                due.push(wanted);
            }
        }
        due
    }

    /// True if Redis had the request at the last call of [`SeenRequests::due`]. Otherwise the node that asked has everything,
    /// has given up, or asks again under another name: it takes no more chunks.
    pub fn is_wanted(&self, request: &str) -> bool {
        self.0.contains_key(request)
    }
}

/// A snapshot that this node receives.
#[derive(Clone, Debug)]
pub struct WantedSnapshot {
    /// The origin whose counts are wanted.
    pub origin: OriginId,
    /// The name of its node.
    pub node: String,
    /// The name of the request.
    pub request: String,
    /// The slot for its rows, from the first chunk on.
    pub slot: Option<OriginSlot>,
    /// True once Redis has the request.
    pub is_asked: bool,
    /// The number of the next chunk.
    next: u64,
    progressed: Duration,
}

impl WantedSnapshot {
    /// Wants the counts of an origin. The request has a random name.
    pub fn new(origin: OriginId, node: &str, request: String, now: Duration) -> WantedSnapshot {
        let node = node.to_owned();
        WantedSnapshot { origin, node, request, slot: None, is_asked: false, next: 0, progressed: now }
    }

    /// True if nothing has come for so long that the request must be repeated.
    pub fn is_stuck(&self, now: Duration) -> bool {
        now.saturating_sub(self.progressed) > REPEAT_AFTER
    }

    /// True if the chunk with this number comes next. Another one shows that chunks were lost, so that the request must be
    /// repeated.
    pub fn is_next(&self, number: u64) -> bool {
        number == self.next
    }

    /// Notes that the next chunk has come.
    pub fn progress(&mut self, now: Duration) {
        self.next += 1;
        self.progressed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visits::entries::batches_of;

    fn batch(number: u64, len: usize) -> VisitBatch {
        VisitBatch { number, hour: 490_000, content: vec![7; len] }
    }

    #[test]
    fn entries_have_what_redis_lacks() {
        let mut own = OwnStream::default();
        assert!(own.is_unsure());
        assert!(own.compare(0, 0, 0));
        assert!(!own.is_unsure());
        own.add(vec![batch(1, 10), batch(2, VISITS_ENTRY_BYTES), batch(3, 10)]);
        let numbers = |entry: &VisitEntry| -> Vec<u64> {
            batches_of(&entry.bytes, entry.last).unwrap().into_iter().map(|batch| batch.number).collect()
        };
        for expected in [[1], [2], [3]] {
            assert!(own.is_behind());
            let entry = own.next_entry().unwrap();
            assert_eq!((numbers(&entry), entry.oldest), (expected.to_vec(), 1));
            own.sent(entry.last);
        }
        assert_eq!((own.next_entry(), own.is_behind()), (None, false));
        // Redis was emptied: the window is published again.
        assert_eq!(own.number_to_note(3, 0), Some(3));
        assert!(own.hear(2));
        assert!(own.is_unsure());
        assert!(own.compare(3, 0, 0));
        assert_eq!(own.next_entry().map(|entry| entry.last), Some(1));
    }

    #[test]
    fn earlier_batches_stay_while_there_is_room() {
        const PART: usize = VISITS_STREAM_BYTES / 100;
        let mut own = OwnStream::default();
        assert!(own.compare(1_000, 999, 999));
        let mut oldest_after = |numbers: std::ops::RangeInclusive<u64>| {
            own.add(numbers.map(|number| batch(number, PART)).collect());
            let mut oldest = 0;
            while let Some(entry) = own.next_entry() {
                own.sent(entry.last);
                oldest = entry.oldest;
            }
            oldest
        };
        assert_eq!(oldest_after(1_000..=1_000), 901, "a hundred batches in all");
        assert_eq!(oldest_after(1_001..=1_050), 951, "batches of this process take the place of earlier ones");
        assert_eq!(oldest_after(1_051..=1_120), 1_021, "the window is full");
    }

    #[test]
    fn more_in_redis_than_here_is_of_another_directory() {
        let mut own = OwnStream::default();
        own.add(vec![batch(4, 1)]);
        assert!(own.compare(4, 4, 4));
        own.doubt();
        assert!(!own.compare(4, 4, 5));
        assert_eq!((own.is_unsure(), own.next_entry()), (false, None));
    }

    #[test]
    fn other_origins_are_read_as_long_as_there_is_news() {
        let (mut others, id, at) = (OtherOrigins::default(), OriginId(1), Duration::from_secs);
        others.hear([(id, 3)], at(0));
        assert!(others.is_read(id, 3, at(9)));
        assert!(!others.is_read(id, 3, at(10)));
        assert!(others.is_read(id, 2, at(10)));
        assert!(!others.is_late(id, at(10)));
        assert!(others.is_late(id, at(13)));
        others.is_whole(id);
        assert_eq!(others.lacks().count(), 0);
        others.hear([], at(20));
        assert!(!others.must_note(id, 3, at(20)));
        assert!(!others.must_note(id, 3, at(24)));
        assert!(others.must_note(id, 3, at(25)));
    }

    #[test]
    fn each_lack_has_its_reason_and_instant() {
        let (mut others, id, at) = (OtherOrigins::default(), OriginId(1), Duration::from_secs);
        let lacks = |others: &OtherOrigins| others.lacks().collect::<Vec<_>>();
        assert!(!others.is_late(id, at(1)));
        assert_eq!(lacks(&others), [(id, CountsLack::Missing, at(1))]);
        others.hold(id, CountsLack::Unstored, at(2));
        others.hold(id, CountsLack::Unstored, at(3));
        assert_eq!(lacks(&others), [(id, CountsLack::Unstored, at(2))]);
        assert!(others.is_held(id));
        others.hold(id, CountsLack::NoSlot, at(4));
        assert_eq!(lacks(&others), [(id, CountsLack::NoSlot, at(4))]);
        // A batch that the stream has lost meanwhile is missing from now on.
        assert!(!others.is_late(id, at(5)));
        assert!(!others.is_held(id));
        assert_eq!(lacks(&others), [(id, CountsLack::Missing, at(5))]);
        others.hold(id, CountsLack::Unstored, at(6));
        others.is_whole(id);
        assert!(lacks(&others).is_empty());
    }

    #[test]
    fn snapshots_are_asked_for_in_turn() {
        let (mut others, at) = (OtherOrigins::default(), Duration::from_secs);
        let ids = [1, 2, 3].map(OriginId);
        let first = |others: &OtherOrigins| ids.into_iter().min_by_key(|id| others.tried(*id)).unwrap();
        // No node has what is missing of any of them.
        for (seconds, expected) in [(0, ids[0]), (20, ids[1]), (40, ids[2]), (60, ids[0]), (80, ids[1])] {
            assert_eq!(first(&others), expected, "after {seconds} s");
            others.note_tried(expected, at(seconds));
        }
        others.is_whole(ids[1]);
        assert_eq!(first(&others), ids[1], "another gap of it is a new one");
    }

    #[test]
    fn requests_name_the_site_that_forwarded_them() {
        let by = OriginId(1);
        let own = SnapshotRequest { by, request: "r".to_owned(), of: OriginId(2), after: 7, site: None };
        let forwarded = SnapshotRequest { site: Some("berlin".to_owned()), ..own.clone() };
        assert_eq!(own.to_text(), format!("r {} 7", OriginId(2)));
        assert_eq!(forwarded.to_text(), format!("r {} 7 berlin", OriginId(2)));
        for request in [own.clone(), forwarded] {
            assert_eq!(SnapshotRequest::parse(by, &request.to_text()), Some(request));
        }
        // A later version may write more words. Then this is no site that is known here.
        let more = SnapshotRequest::parse(by, &format!("{} berlin more", own.to_text())).unwrap();
        assert_eq!(more.site.as_deref(), Some("berlin more"));
        assert_eq!(SnapshotRequest::parse(by, "r 2"), None);
    }

    #[test]
    fn origin_answers_at_once_and_others_later() {
        let at = Duration::from_secs;
        let request =
            SnapshotRequest { by: OriginId(1), request: "r".to_owned(), of: OriginId(2), after: 7, site: None };
        let mut seen = [1, 2, 3].map(|own| (OriginId(own), SeenRequests::default()));
        let mut due = |seconds| -> Vec<usize> {
            seen.iter_mut().map(|(own, seen)| seen.due(*own, vec![request.clone()], at(seconds)).len()).collect()
        };
        assert_eq!([due(0), due(3), due(45), due(46)], [[0, 1, 0], [0, 1, 1], [0, 1, 1], [0, 0, 0]]);
    }

    #[test]
    fn a_repeated_request_replaces_the_earlier_one() {
        let (by, of) = (OriginId(1), OriginId(2));
        let request = |name: &str| vec![SnapshotRequest { by, request: name.to_owned(), of, after: 7, site: None }];
        let (mut seen, late) = (SeenRequests::default(), 2 * STALE_AFTER);
        seen.due(OriginId(3), request("first"), Duration::ZERO);
        seen.due(OriginId(3), request("first"), late);
        assert!(seen.is_wanted("first"), "a long snapshot goes on");
        seen.due(OriginId(3), request("second"), late);
        assert!(!seen.is_wanted("first"));
        assert!(seen.is_wanted("second"));
    }
}
