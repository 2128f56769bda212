//! The follower thread. It reads the streams of changes, and delivers the outbox to Redis. It compares every partition
//! whose position in its stream was lost, and keeps only recent states in Redis.
//!
//! The thread takes turns between these, in small pieces, so that none blocks the others. It sleeps on the queue of
//! deliveries for at most [`POLL`], which bounds how old a change of another node can get before this node sees it.

mod compare;
mod deliver;
mod grants;
mod progress;
mod retain;
mod set_aside;
mod slugs;
mod unread;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::progress::{Compare, Rereading, Retaining, SetAside, SlugScan};
use super::context::{FleetContext, ShuttingDown, note_error};
use crate::bridge::fleet_view::{FollowFence, since_boot};
use crate::bridge::{StreamBatch, StreamChange, WriterOrder};
use crate::services::replication::redis::{READ_TOGETHER_MAX, Redis, RedisError};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::replication::follow::{self, StreamEntry, StreamPosition, StreamRead};
use carom_model::replication::outbox::Delivery;
use carom_model::replication::state::{NoState, ReceivedState};
use carom_model::replication::{EntryId, PARTITIONS, Partition, State};
use carom_store::links::StoreError;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;

/// Interval between two reads of the streams while they are quiet.
const POLL: Duration = Duration::from_millis(50);

/// Interval between two reads until the node has the changes that it had missed, and so becomes ready.
const POLL_AT_START: Duration = Duration::from_millis(5);

/// Longest time from the start of this thread for which a node waits for these changes, API keys and saved rules before it
/// becomes ready.
const CATCH_UP_TIME: Duration = Duration::from_secs(60);

/// Interval between two reads while Redis does not answer.
const POLL_WHILE_AWAY: Duration = Duration::from_millis(250);

/// Number of entries read from one stream at once while streams have more than [`READ_TOGETHER_MAX`]: about a hundred
/// microseconds of a server's time.
const READ_COUNT: usize = 512;

/// Interval between two ticks for the writer.
const TICK_EVERY: Duration = Duration::from_secs(2);

/// Time after which an expected entry that was not seen counts as lost.
const LATE: Duration = Duration::from_secs(5);

/// Largest number of orders that wait for the writer, each of a few hundred links.
const ORDERS_MAX: u64 = 64;

/// Timeout of reads and deliveries. No client waits for them, only other nodes.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Prepares the thread, and connects to nothing yet.
pub(super) fn prepare(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
    deliveries: Receiver<Delivery>,
) -> io::Result<Follower> {
    let mut follower = Follower {
        redis: fleet.redis()?,
        fleet: fleet.clone(),
        writer,
        deliveries,
        queue: VecDeque::new(),
        set_aside: SetAside::default(),
        positions: HashMap::new(),
        has_more: false,
        compare: None,
        rereading: Rereading::default(),
        retaining: Retaining::default(),
        slug_scan: None,
        slots_moved: None,
        started: Instant::now(),
        unmarked: Cell::new(None),
        must_compare: Vec::new(),
        expected: HashMap::new(),
        ending: HashMap::new(),
        ticked: Instant::now(),
        dropped: 0,
        orders_sent: Cell::new(0),
        fence: RefCell::new(None),
        start_fence: None,
        measure_after: Duration::ZERO,
        nonce: getrandom::u64().map_err(io::Error::other)?,
    };
    follower.read_positions().map_err(io::Error::other)?;
    Ok(follower)
}

pub(super) struct Follower {
    fleet: FleetContext,
    redis: Redis,
    writer: SyncSender<WriterOrder>,
    deliveries: Receiver<Delivery>,
    /// The changes to deliver to Redis.
    queue: VecDeque<Delivery>,
    /// Deliveries whose records cannot be sent now.
    set_aside: SetAside,
    /// The position of the node in each stream. A stream whose position was lost has no entry.
    positions: HashMap<Partition, StreamPosition>,
    /// True if a stream had more entries than were read last.
    has_more: bool,
    compare: Option<Compare>,
    rereading: Rereading,
    retaining: Retaining,
    /// The scan of all codes for chosen slugs, in a shared home of links; `None` before its first piece and after its end.
    slug_scan: Option<SlugScan>,
    /// The last time at which slots of the cluster moved, and kept that scan from counting.
    slots_moved: Option<Instant>,
    /// The start of the thread.
    started: Instant,
    /// An instant since boot at which no code was marked, and after which none was to be marked.
    unmarked: Cell<Option<Duration>>,
    must_compare: Vec<Partition>,
    /// Stream entries that a comparison has made and that were not read back yet. Never an empty set.
    expected: HashMap<Partition, BTreeSet<EntryId>>,
    /// Partitions whose comparison only waits for its entries, with the time when that wait began.
    ending: HashMap<Partition, Instant>,
    /// The time of the last tick for the writer.
    ticked: Instant,
    /// Number of orders that the writer had dropped when the positions were last read.
    dropped: u64,
    /// Number of orders sent to the writer.
    orders_sent: Cell<u64>,
    /// The fence behind all orders that may change what cores have; `None` until one is sent behind the last order.
    fence: RefCell<Option<Arc<FollowFence>>>,
    /// The fence behind the changes that the node had missed at its start; `None` before these are read.
    start_fence: Option<Arc<FollowFence>>,
    /// The instant since boot at which this process lost a position, or had read all codes of Redis. A comparison goes
    /// on only once the lag was measured after that.
    measure_after: Duration,
    /// A random number of this process.
    nonce: u64,
}

/// The urgency of the next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    Busy,
    Quiet,
    Away,
}

impl Follower {
    /// Starts the thread. All links must have been read back before, or older states would overwrite newer changes of
    /// other nodes.
    pub(super) fn start(self) -> io::Result<JoinHandle<()>> {
        threads::start(Priority::Awaited, "redis-follow", move || self.run())
    }

    fn run(mut self) {
        self.started = Instant::now();
        if self.decode_kept().is_err() {
            return;
        }
        while !self.fleet.is_stopping() {
            let Ok(pace) = self.turn() else { return };
            let wait = match pace {
                Pace::Busy => continue,
                _ if !self.has_caught_up() => POLL_AT_START,
                Pace::Quiet => POLL,
                Pace::Away => POLL_WHILE_AWAY,
            };
            match self.deliveries.recv_timeout(wait) {
                Ok(delivery) => self.queue.push_back(delivery),
                Err(RecvTimeoutError::Timeout) => {}
                // The writer has ended. Undelivered changes stay in the outbox.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// True once the cores have every change that was in the streams at the start, or the node does not wait for that.
    fn has_caught_up(&self) -> bool {
        self.fleet.stats.fleet.has_caught_up.load(Ordering::Acquire)
    }

    /// Lets the node become ready, as far as the streams are concerned.
    fn end_catching_up(&self) {
        self.fleet.stats.fleet.has_caught_up.store(true, Ordering::Release);
    }

    /// Lets the node become ready after [`CATCH_UP_TIME`]. The writer, or the thread of keys or rules, may wait for its disk, and
    /// the node serves what it has.
    fn bound_waits(&self) {
        if self.started.elapsed() >= CATCH_UP_TIME {
            self.fleet.stats.fleet.end_waits();
        }
    }

    /// Does one piece of each kind of work.
    fn turn(&mut self) -> Result<Pace, ShuttingDown> {
        self.queue.extend(self.deliveries.try_iter());
        let stats = &self.fleet.stats;
        let is_refused = stats.writes_refused.load(Ordering::Acquire);
        if is_refused {
            self.end_catching_up();
        }
        self.bound_waits();
        if is_refused || !stats.fleet.same_code_secret.load(Ordering::Acquire) {
            return Ok(Pace::Away);
        }
        if stats.fleet.orders_dropped.get() != self.dropped {
            if self.read_positions().is_err() {
                return Ok(Pace::Away);
            }
            if self.send_to_writer(WriterOrder::Resumed).is_err() {
                return Err(ShuttingDown);
            }
        }
        if self.ticked.elapsed() >= TICK_EVERY {
            self.ticked = Instant::now();
            // An expected entry that was lost may have an identifier ahead of all that come.
            self.expected.retain(|of, _| self.ending.get(of).is_none_or(|since| since.elapsed() < LATE));
            self.ending.retain(|_, since| since.elapsed() < LATE);
            let is_due = self.fleet.home.drops_settled_states() || self.fleet.stats.fleet.outbox.get() > 0;
            if is_due && self.send_to_writer(WriterOrder::Tick).is_err() {
                return Err(ShuttingDown);
            }
        }
        let mut pace = Pace::Quiet;
        // Each kind by itself: in a cluster, one server may be away.
        for work in [Self::read, Self::deliver, Self::try_set_aside, Self::compare, Self::read_again, Self::retain] {
            match work(self) {
                Ok(true) if pace == Pace::Quiet => pace = Pace::Busy,
                Ok(_) => {}
                Err(Stopped::Ended) => return Err(ShuttingDown),
                Err(Stopped::RedisError(error)) => {
                    note_error(&self.fleet.stats, &error);
                    pace = Pace::Away;
                }
            }
        }
        Ok(pace)
    }

    /// Reads the positions from the store, at the start and after the writer has dropped orders.
    fn read_positions(&mut self) -> Result<(), StoreError> {
        self.dropped = self.fleet.stats.fleet.orders_dropped.get();
        self.positions.clear();
        self.must_compare.clear();
        self.expected.clear();
        self.ending.clear();
        self.compare = None;
        self.fence.replace(None);
        // Deliveries that are waiting may concern dropped orders, so the outbox is read again.
        self.queue = self.fleet.links.outbox()?.into();
        self.set_aside = SetAside::default();
        for partition in Partition::all() {
            if let Some(position) = self.fleet.links.position(partition)? {
                self.positions.insert(partition, position);
            }
            if self.fleet.links.must_compare(partition)? {
                self.must_compare.push(partition);
            }
        }
        self.publish_comparing();
        Ok(())
    }

    /// Publishes the number of partitions still to be compared, including those without a position.
    fn publish_comparing(&self) {
        assert!(self.positions.len() <= usize::from(PARTITIONS), "a stream has a position that no partition has");
        let lost = usize::from(PARTITIONS) - self.positions.len();
        self.fleet.stats.fleet.comparing.set((self.must_compare.len() + lost) as u64);
    }

    /// Sends the writer an order. Blocks while too many wait: each may have hundreds of links.
    fn send_to_writer(&self, order: WriterOrder) -> Result<(), Stopped> {
        while self.orders_sent.get().saturating_sub(self.fleet.stats.fleet.orders_taken.get()) >= ORDERS_MAX {
            if self.fleet.is_stopping() {
                return Err(Stopped::Ended);
            }
            self.bound_waits();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.orders_sent.set(self.orders_sent.get() + 1);
        if !matches!(order, WriterOrder::Fence(_) | WriterOrder::Tick) {
            self.fence.replace(None);
        }
        self.writer.send(order).map_err(|_| Stopped::Ended)
    }

    /// Reads all streams once. Returns true if there may be more entries.
    fn read(&mut self) -> Result<bool, Stopped> {
        let mut places: Vec<(Partition, StreamPosition)> = self.positions.iter().map(|(of, at)| (*of, *at)).collect();
        places.sort_by_key(|(partition, _)| *partition);
        let begun = since_boot();
        let count = if self.has_more { READ_COUNT } else { READ_TOGETHER_MAX };
        let answers = self.redis.read(&places, count, REDIS_TIMEOUT);
        let (mut more, mut failure) = (false, None);
        for ((partition, position), answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(entries) => {
                    more |= entries.len() >= count;
                    self.take(partition, position, entries)?;
                }
                Err(error) => failure = Some(error),
            }
        }
        self.has_more = more;
        let lost: Vec<Partition> = Partition::all().filter(|of| !self.positions.contains_key(of)).collect();
        if !lost.is_empty() {
            match self.go_to_the_end(&lost) {
                // As for streams, a part of Redis is away.
                Err(Stopped::RedisError(error)) => _ = failure.get_or_insert(error),
                moved => moved?,
            }
        }
        if let Some(at) = self.redis.last_disturbance() {
            self.fleet.view.note_disturbance(since_boot().saturating_sub(at.elapsed()));
        }
        if failure.is_some() {
            // A node serves what it has while a part of Redis is away.
            self.end_catching_up();
        } else if !more && lost.is_empty() {
            self.catch_up()?;
            if self.must_compare.is_empty() {
                self.note_followed(begun)?;
            }
        }
        failure.map_or(Ok(more), |error| Err(Stopped::RedisError(error)))
    }

    /// Lets the node become ready once all cores have passed a fence behind the changes that it had missed. Other changes, which
    /// a comparison brings, are in no stream.
    fn catch_up(&mut self) -> Result<(), Stopped> {
        if self.has_caught_up() {
            return Ok(());
        }
        if let Some(fence) = self.start_fence.as_ref().filter(|fence| !fence.is_refused()) {
            if fence.is_passed() {
                self.end_catching_up();
            }
            return Ok(());
        }
        let view = Arc::clone(&self.fleet.view);
        // It proves nothing about the streams but this.
        let fence = Arc::new(FollowFence::new(view, Duration::ZERO, self.fleet.mailboxes.all().len()));
        self.send_to_writer(WriterOrder::Fence(Arc::clone(&fence)))?;
        self.start_fence = Some(fence);
        Ok(())
    }

    /// Notes that all streams were read to their ends since `begun`. The cores may not have all changes yet: then a fence
    /// follows them.
    fn note_followed(&self, begun: Duration) -> Result<(), Stopped> {
        let view = &self.fleet.view;
        // After a refusal, because Redis has yet to hear of a change of ours, another fence is sent.
        if let Some(fence) = self.fence.borrow().as_ref().filter(|fence| !fence.is_refused()) {
            if fence.is_passed() {
                view.note_followed(begun);
            }
            return Ok(());
        }
        let fence = Arc::new(FollowFence::new(Arc::clone(view), begun, self.fleet.mailboxes.all().len()));
        self.send_to_writer(WriterOrder::Fence(Arc::clone(&fence)))?;
        self.fence.replace(Some(fence));
        Ok(())
    }

    /// Handles the entries that were read from one stream.
    fn take(
        &mut self,
        partition: Partition,
        position: StreamPosition,
        entries: Vec<StreamEntry>,
    ) -> Result<(), Stopped> {
        match follow::check_position(Some(position), entries) {
            StreamRead::Quiet => Ok(()),
            StreamRead::Next(entries, to) => {
                self.check_off(partition, &entries, to)?;
                let fleet = &self.fleet.stats.fleet;
                fleet.followed.add(entries.len() as u64);
                fleet.lag_ms.set(unix_ms().saturating_sub(to.id.ms));
                let is_newer = entries.iter().any(|entry| entry.is_newer && entry.code.is_none());
                let entries =
                    entries.into_iter().map(|entry| (StreamPosition::of(&entry), self.decode(&entry))).collect();
                self.positions.insert(partition, to);
                self.send_to_writer(WriterOrder::Followed(StreamBatch { partition, entries, is_newer, to }))
            }
            StreamRead::Gap => {
                // No connection is lost when Redis is emptied. Other nodes may be about to bring back links that it had, and
                // that this node has not read or no longer has in memory.
                self.measure_after = since_boot();
                self.fleet.view.note_disturbance(self.measure_after);
                self.positions.remove(&partition);
                // Before the count: threads that find a lost position must find its comparison outstanding, too.
                self.publish_comparing();
                self.fleet.stats.fleet.gaps.add(1);
                self.fleet.view.wake_heartbeat();
                Ok(())
            }
        }
    }

    /// Decodes an entry. The code of an entry that cannot be decoded is marked: its old state must not be served.
    fn decode(&self, entry: &StreamEntry) -> Option<StreamChange> {
        let code = entry.code?;
        self.note_slug(&code);
        let state = match State::from_text(code, &entry.text) {
            Ok(state) if !entry.is_newer => ReceivedState::Known(state),
            Ok(_) | Err(NoState::Newer) => ReceivedState::Unread(entry.text.as_slice().into()),
            Err(NoState::Damaged) => {
                let text = format!(
                    "a stream entry for {code} was not written by carom or is damaged; the code is looked up in Redis"
                );
                self.fleet.stats.alarms.raise(Alarm::StreamDamaged, text);
                ReceivedState::Unread(entry.text.as_slice().into())
            }
        };
        if matches!(state, ReceivedState::Unread(_)) {
            self.note_marks();
        }
        Some(StreamChange { code, state, displaced: entry.displaced })
    }

    /// Moves to the end of streams in which this node has no position: it is new, or its position was lost. Everything
    /// before it must be compared. Returns the last error if a server does not answer, after it has moved in the others.
    fn go_to_the_end(&mut self, lost: &[Partition]) -> Result<(), Stopped> {
        let mut failure = None;
        let ready = self.end_grant_epochs(lost, &mut failure);
        for (&partition, end) in ready.iter().zip(self.redis.ends(&ready, REDIS_TIMEOUT)) {
            let Some(at) = end.map_err(|error| failure = Some(error.into())).ok() else { continue };
            self.positions.insert(partition, at);
            self.expected.remove(&partition);
            self.ending.remove(&partition);
            if !self.fleet.home.stores_all_links() {
                self.forget_slugs();
            } else if !self.must_compare.contains(&partition) {
                self.must_compare.push(partition);
            }
            // A comparison in progress may have passed codes that changed since.
            if let Some(compare) = &mut self.compare {
                compare.drop_partition(partition);
            }
            // Redis may have lost states of marked codes, which no comparison offers.
            self.rereading.restart();
            self.send_to_writer(WriterOrder::PositionLost { partition, at })?;
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Reasons why a piece of work was not finished.
enum Stopped {
    RedisError(RedisError),
    Ended,
}

impl From<RedisError> for Stopped {
    fn from(error: RedisError) -> Stopped {
        Stopped::RedisError(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::replication::testing::context;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn disk_that_hangs_keeps_no_node_from_being_ready() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        [&fleet.stats.ready, &fleet.stats.fleet.configured].iter().for_each(|is| is.store(true, Ordering::Release));
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        follower.started = Instant::now().checked_sub(CATCH_UP_TIME).unwrap();
        follower.orders_sent.set(ORDERS_MAX);
        let is_ready = std::thread::spawn(move || {
            let begun = Instant::now();
            while !fleet.stats.is_ready() && begun.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            fleet.stop.store(true, Ordering::Release);
            fleet.stats.is_ready()
        });
        assert!(follower.send_to_writer(WriterOrder::Tick).is_err(), "it waits until the node stops");
        assert!(is_ready.join().unwrap());
    }

    #[test]
    fn lost_positions_of_a_server_that_is_away_keep_no_node_from_being_ready() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        // No stream has a position yet, so no stream can fail to answer.
        assert!(follower.read().is_err(), "Redis does not name the ends of the others");
        assert!(follower.has_caught_up());
    }

    #[test]
    fn comparison_waits_until_the_lag_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        follower.must_compare.push(Partition(0));
        follower.measure_after = since_boot();
        // States expire. The process may have been suspended for a week before it found the lost position.
        fleet.retention.hear(&[], (5, Some(10)), None);
        assert!(matches!(follower.compare(), Ok(false)), "it compares with a Redis that may lack states");
        fleet.view.note_heartbeat([], false, follower.measure_after + Duration::from_millis(2));
        assert!(!matches!(follower.compare(), Ok(false)), "the lag is known");
    }

    #[test]
    fn lost_position_is_a_disturbance() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let entry = |seq: u64| StreamEntry {
            id: EntryId { ms: 1, seq },
            code: None,
            text: Vec::new(),
            displaced: None,
            is_newer: false,
        };
        let (partition, position) = (Partition(0), StreamPosition::of(&entry(1)));
        // FLUSHALL takes the stream away. Another node may have begun a new one.
        for (entries, is_lost) in [(vec![entry(1)], false), (vec![], true), (vec![entry(2)], true)] {
            follower.positions.insert(partition, position);
            let before = fleet.view.disturbed_ms();
            while since_boot().as_millis() as u64 <= before {
                std::thread::yield_now();
            }
            assert!(follower.take(partition, position, entries).is_ok());
            assert_eq!(fleet.view.disturbed_ms() > before, is_lost);
            assert_eq!(follower.positions.is_empty(), is_lost);
        }
    }
}
