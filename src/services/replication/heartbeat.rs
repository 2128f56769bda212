//! The heartbeat thread. Every second it tells Redis that this node is alive, and hears what the other nodes have seen
//! of the counters. It also hears which nodes are gone, so that one of the remaining nodes takes over their leases, and notes
//! the names of all others. `twins` finds another process with the name of this node.

mod departures;
mod handover;
mod silence;
mod twins;

use std::collections::BTreeMap;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{CodeLength, CounterValue, Run};

use self::departures::Departures;
use self::silence::UnansweredBeats;
use self::twins::Twins;
use super::agreement::{self, HeartbeatAcks, OtherNode};
use super::context::{FleetContext, note_answered, note_error};
use super::eviction::EvictionWatch;
use super::known_nodes::KnownNodes;
use crate::bridge::WriterOrder;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{Heartbeat, HeartbeatReply, Redis, RedisError, StateExpiry};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::replication::Partition;
use carom_model::replication::confirmations::{Confirmations, DeliveryReport};
use carom_model::replication::known_members::ListedMember;
use carom_model::replication::members::{Members, NodeId};
use carom_model::replication::passing::PassedBeats;
use carom_model::replication::round_trips::RoundTrips;
use carom_model::visits::grants::{GrantHolders, GrantIntroduction};
use carom_store::links::{Links, StoreError};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::MemberStats;

/// Interval between two heartbeats.
const EVERY: Duration = Duration::from_secs(1);

/// Interval between two heartbeats while Redis does not answer, short enough to notice its return soon.
const EVERY_WHILE_AWAY: Duration = Duration::from_millis(250);

/// Interval between two heartbeats while something waits for them. A client may wait for confirmations, here or on
/// another node. A node that has just started may wait until the others have heard of it, and visits until this node
/// has heard of the others.
const EVERY_WHILE_ASKED: Duration = Duration::from_millis(100);

/// Timeout of a heartbeat.
const BEAT_TIME: Duration = Duration::from_millis(500);

/// Interval at which the time of the last heartbeat is stored for the next process.
const WRITE_DOWN_EVERY: Duration = Duration::from_secs(10);

/// Starts the thread.
pub(super) fn start(
    fleet: &FleetContext,
    known: KnownNodes,
    lengths: Vec<CodeLength>,
    reclaimed: Sender<Run>,
    writer: SyncSender<WriterOrder>,
) -> io::Result<JoinHandle<()>> {
    update_retention(fleet);
    let first = getrandom::u64().map_err(io::Error::other)?;
    let instance = getrandom::u64().map_err(io::Error::other)?;
    let heart = HeartbeatThread {
        redis: fleet.redis()?,
        fleet: fleet.clone(),
        lengths,
        members: Members::default(),
        twins: Twins::new(instance, fleet.settings.admin_listen, fleet.settings.lock_file.clone()),
        known,
        confirmations: Confirmations::new(first),
        passing: Confirmations::new(first),
        heard: BTreeMap::new(),
        passed: PassedBeats::default(),
        holders: stored_holders(&fleet.links),
        departures: Departures::resume(fleet.links.grant_holders().unwrap_or_default()),
        introduction: GrantIntroduction::default(),
        is_asked: false,
        reclaimed,
        written_down: None,
        has_joined: false,
        is_new: fleet.links.page(&[], 1).is_ok_and(|page| page.is_empty()),
        round_trips: RoundTrips::default(),
        eviction: EvictionWatch::default(),
        unanswered: UnansweredBeats::default(),
        _writer: writer,
    };
    let thread = threads::start(Priority::Awaited, "redis-beat", move || heart.run())?;
    fleet.view.set_heartbeat_thread(thread.thread().clone());
    Ok(thread)
}

/// Returns an identifier of the current boot of the machine; empty if it cannot be read.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

struct HeartbeatThread {
    fleet: FleetContext,
    redis: Redis,
    lengths: Vec<CodeLength>,
    members: Members,
    twins: Twins,
    /// The members that this node knows, and those of which Redis may lack links.
    known: KnownNodes,
    /// The reports of the other nodes on the delivery of their links.
    confirmations: Confirmations,
    /// Reports of the other nodes on what they have passed in the streams, for the same heartbeats.
    passing: Confirmations,
    /// The number of the last heartbeat of each other node.
    heard: BTreeMap<NodeId, u64>,
    /// The heartbeats of the other nodes after which this node has read all streams to their ends.
    passed: PassedBeats,
    /// The other nodes that may hold granted visits of limited links.
    holders: GrantHolders,
    /// The other nodes that were stopped and have left their grants.
    departures: Departures,
    /// The introduction of this process to the other nodes.
    introduction: GrantIntroduction,
    /// True if another node waits for heartbeats of this node.
    is_asked: bool,
    reclaimed: Sender<Run>,
    written_down: Option<Instant>,
    has_joined: bool,
    /// True if the node started without links and has not compared them yet: it has nothing that Redis may lack.
    is_new: bool,
    /// The round trips of the last heartbeats.
    round_trips: RoundTrips,
    eviction: EvictionWatch,
    /// The heartbeats since the last answer of Redis.
    unanswered: UnansweredBeats,
    /// Keeps the writer running until the last heartbeat, and so the thread that grants visits, to which it sends changes.
    _writer: SyncSender<WriterOrder>,
}

impl HeartbeatThread {
    fn run(mut self) {
        while !self.fleet.is_stopping() {
            let heard = if self.twins.gives_way() { self.look_for_twin() } else { self.beat() };
            if !heard {
                // Without Redis, nobody knows what this node has missed.
                self.fleet.stats.fleet.has_caught_up.store(true, Ordering::Release);
            }
            let is_settling = self.fleet.stats.fleet.grants.is_settling.load(Ordering::Acquire);
            let is_urgent = self.is_asked || self.is_asking() || is_settling;
            if heard && !is_urgent {
                self.eviction.look(&mut self.redis, &self.fleet.stats.alarms, BEAT_TIME);
            }
            std::thread::park_timeout(if !heard {
                EVERY_WHILE_AWAY
            } else if is_urgent {
                EVERY_WHILE_ASKED
            } else {
                EVERY
            });
        }
        self.send_last_heartbeat();
    }

    /// Sends the last heartbeat, by which the other nodes know that this node counts no more visits.
    fn send_last_heartbeat(&mut self) {
        if self.twins.gives_way() {
            // It would say that of the other process.
            return;
        }
        self.leave_grants();
        let Ok(seen) = self.seen() else { return };
        let number = self.begin(since_boot());
        let passed = self.passed_beats();
        let acks = HeartbeatAcks { number, heard: &self.heard, passed, is_asking: false };
        let restoring = self.restoring();
        let about =
            agreement::about(&self.fleet.settings, &self.fleet.stats, (restoring, true), &acks, &self.twins.describe());
        self.send(about, number, &seen).map(drop).unwrap_or_else(|error| tracing::debug!(%error, "no last heartbeat"));
    }

    /// True if this node waits for heartbeats of the others: a client waits for confirmations, or this process for its introduction.
    fn is_asking(&self) -> bool {
        self.fleet.view.has_doubts() || self.awaits_introduction()
    }

    /// Begins a heartbeat, on which other nodes will report. Returns its number.
    fn begin(&mut self, now: Duration) -> u64 {
        let (number, passing) = (self.confirmations.begin(now), self.passing.begin(now));
        assert_eq!(number, passing, "the reports on one heartbeat would be taken for those on another");
        number
    }

    /// Returns the number of partitions in which Redis may lack links that this node is about to bring back.
    fn restoring(&self) -> u64 {
        // A node that is behind brings back only the changes in its outbox, which it counts by themselves.
        let restores = !self.is_new && !self.fleet.view.is_behind();
        if restores { self.fleet.stats.fleet.comparing.get() } else { 0 }
    }

    fn send(&mut self, about: String, number: u64, seen: &[(CodeLength, u64)]) -> Result<HeartbeatReply, RedisError> {
        let settings = &self.fleet.settings;
        let (expiring_ms, expires) = self.fleet.retention.expiring(self.fleet.stats.fleet.format.get());
        let (node, fingerprint) = (&settings.node, &settings.fingerprint);
        let expiry = match (self.fleet.home.stores_all_links(), expires) {
            (false, _) => StateExpiry::Forbidden,
            (true, true) => StateExpiry::On,
            (true, false) => StateExpiry::Off,
        };
        let epoch = &format!("{number:016x}");
        let beat = Heartbeat { node, about, fingerprint, seen, expiring_ms, expiry, epoch };
        self.redis.beat(&beat, BEAT_TIME)
    }

    /// Sends one heartbeat. Returns true if it was answered.
    fn beat(&mut self) -> bool {
        let seen = match self.seen() {
            Ok(seen) => seen,
            Err(error) => {
                tracing::error!(%error, "the stored code counters cannot be read");
                return false;
            }
        };
        self.is_new &= self.fleet.stats.fleet.comparing.get() > 0;
        let sent = since_boot();
        let restoring = self.restoring();
        let number = self.begin(sent);
        let (passed, is_asking) = (self.passed_beats(), self.is_asking());
        let acks = HeartbeatAcks { number, heard: &self.heard, passed, is_asking };
        let about = agreement::about(
            &self.fleet.settings,
            &self.fleet.stats,
            (restoring, false),
            &acks,
            &self.twins.describe(),
        );
        let begun = Instant::now();
        let answer = self.send(about, number, &seen);
        match answer {
            Ok(heard) if heard.fingerprint != self.fleet.settings.fingerprint => {
                self.stop_sharing(&heard.fingerprint);
                false
            }
            Ok(heard) => {
                let median = self.round_trips.add(begun.elapsed());
                self.fleet.stats.fleet.round_trip_us.set(median.as_micros() as u64);
                self.hear(&heard, (number, sent), &seen);
                true
            }
            Err(error) => {
                self.note_away(&error);
                false
            }
        }
    }

    /// Notes that Redis did not answer.
    fn note_away(&mut self, error: &RedisError) {
        note_error(&self.fleet.stats, error);
        update_retention(&self.fleet);
        let stats = &self.fleet.stats;
        stats.fleet.connected.store(false, Ordering::Release);
        self.unanswered.note_failure(&stats.alarms, error);
    }

    /// Stops all sharing until the fleet in Redis has the code secret of this node. Redirects continue.
    fn stop_sharing(&self, theirs: &str) {
        let stats = &self.fleet.stats;
        stats.fleet.same_code_secret.store(false, Ordering::Release);
        stats.fleet.connected.store(false, Ordering::Release);
        let ours = &self.fleet.settings.fingerprint;
        let text = format!(
            "Redis belongs to a fleet whose code secret has the fingerprint {theirs}, but this node's has {ours}; this node exchanges nothing with it; check whether another fleet uses this Redis, or whether Redis lost its data"
        );
        stats.alarms.raise(Alarm::OtherKey, text);
    }

    /// Returns the highest counter value of each length that this node knows.
    fn seen(&self) -> Result<Vec<(CodeLength, u64)>, StoreError> {
        let links = &self.fleet.links;
        let mark = |length: &CodeLength| Ok((*length, links.high_water(length.get())?.max(links.floor(length.get())?)));
        self.lengths.iter().map(mark).collect()
    }

    /// Takes the answer to the heartbeat with that number, which was sent at the instant `sent`, since boot.
    fn hear(&mut self, heard: &HeartbeatReply, (number, sent): (u64, Duration), seen: &[(CodeLength, u64)]) {
        self.join();
        self.twins.observe(&self.fleet.settings.node, heard, since_boot());
        self.publish_twin();
        // First: from `connected` on, other threads ask Redis for changes.
        self.measure(heard);
        let stats = &self.fleet.stats;
        stats.fleet.connected.store(true, Ordering::Release);
        stats.fleet.same_code_secret.store(true, Ordering::Release);
        stats.alarms.clear(Alarm::OtherKey);
        self.unanswered.note_answer(&stats.alarms);
        let now = since_boot();
        note_answered(stats, now);
        self.confirm_lease(sent, now);
        self.members.observe(&heard.marks(), (sent, now), self.fleet.settings.reclaim_after);
        agreement::compare(&self.fleet, heard);
        let live = agreement::retentions_of_live(heard, &self.fleet.settings.node);
        self.fleet.retention.agree(stats.fleet.format.get(), live);
        self.store_heard(heard, sent, seen);
        let mut others = agreement::others(heard, &self.fleet.settings.node);
        // Before the awaited nodes are added, which have no heartbeat: they stay among those that hold grants.
        self.hear_holders(&others, (sent, now));
        self.note_members(heard, &mut others, (sent, now));
        // While a node restores its links, Redis may lack acknowledged ones.
        let others_restore = others.iter().any(|other| other.is_restoring);
        self.fleet.view.note_heartbeat(heard.floors.iter().copied(), others_restore, sent);
        self.hear_passed(&others, number, now);
        self.hear_reports(others, number, now);
        self.show_fleet(heard, now);
        self.take_over(heard, now);
    }

    /// Looks whether another process with the name of this node still sends heartbeats, without sending one. Returns true if
    /// Redis answered.
    fn look_for_twin(&mut self) -> bool {
        // It confirms nothing.
        self.is_asked = false;
        self.begin_introduction();
        match self.redis.heartbeats(BEAT_TIME) {
            Ok((heard, _)) => {
                self.twins.look(&self.fleet.settings.node, &heard, since_boot());
                self.publish_twin();
                update_retention(&self.fleet);
                let stats = &self.fleet.stats;
                stats.fleet.connected.store(true, Ordering::Release);
                self.unanswered.note_answer(&stats.alarms);
                true
            }
            Err(error) => {
                self.note_away(&error);
                false
            }
        }
    }

    /// Tells the other threads whether this node accepts writes and may get visits, and the operator about another process
    /// with its name.
    fn publish_twin(&self) {
        let stats = &self.fleet.stats;
        stats.fleet.grants.is_alone.store(self.twins.is_alone(since_boot()), Ordering::Release);
        stats.fleet.gives_way.store(self.twins.gives_way(), Ordering::Release);
        match self.twins.problem(&self.fleet.settings.node) {
            Some(text) => stats.alarms.raise(Alarm::DuplicateNode, text),
            None => stats.alarms.clear(Alarm::DuplicateNode),
        }
    }

    /// Measures how far this node has followed the streams, by the clock of Redis.
    fn measure(&self, heard: &HeartbeatReply) {
        let FleetContext { settings, view, links, retention, .. } = &self.fleet;
        // A state that awaits an upgrade may expire in Redis before that.
        let followed = view.followed_at().filter(|_| !awaits_upgrade(links));
        let beat_ms = heard.heartbeat_of(&settings.node).map(|(beat_ms, _)| beat_ms);
        retention.hear(&agreement::retentions(heard), (heard.expiring_ms, beat_ms), followed);
        update_retention(&self.fleet);
    }

    /// Notes in the store that it belongs to a fleet, once and before the first code is leased. From then on, codes may
    /// not come from the store's own counter.
    fn join(&mut self) {
        let links = &self.fleet.links;
        if self.has_joined || self.fleet.stats.writes_refused.load(Ordering::Acquire) {
            return;
        }
        let note = || {
            if !links.has_joined_fleet()? {
                let mut batch = links.batch();
                batch.join_fleet();
                links.commit(batch)?;
                links.sync()?;
            }
            Ok::<(), StoreError>(())
        };
        match note() {
            Ok(()) => self.has_joined = true,
            Err(error) => tracing::error!(%error, "cannot record that this node belongs to a fleet"),
        }
    }

    /// Extends the lease of this node, unless other nodes may have taken over its codes meanwhile.
    fn confirm_lease(&self, sent: Duration, now: Duration) {
        let mut lease = self.fleet.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.confirm(sent, now);
        if lease.is_lost() {
            let text = "this node had no contact with Redis for so long that others may have taken over its codes; until a restart, it creates no links while Redis is unavailable";
            self.fleet.stats.alarms.raise(Alarm::LeaseLost, text.to_owned());
        }
    }

    /// Stores what others have seen of the counters, and from time to time the time of the last heartbeat.
    fn store_heard(&mut self, heard: &HeartbeatReply, sent: Duration, seen: &[(CodeLength, u64)]) {
        let links = &self.fleet.links;
        let mut batch = links.batch();
        for (length, floor) in &heard.floors {
            let is_higher = seen.iter().any(|(of, seen)| of == length && floor > seen);
            if is_higher && *floor <= length.codes() {
                batch.set_floor(length.get(), *floor);
            }
        }
        // The next process decides by this time which codes are still its own. No time is stored while codes of an earlier
        // process are still to be discarded, or if this process came back too late: then none of them are.
        let is_own = self.fleet.is_resumed.load(Ordering::Acquire) && !self.fleet.lease().is_lost();
        if is_own && self.written_down.is_none_or(|at| at.elapsed() >= WRITE_DOWN_EVERY) {
            batch.set_last_contact(&boot_id(), sent);
            self.written_down = Some(Instant::now());
        }
        self.fleet.retention.keep(links, &mut batch);
        if !batch.is_empty()
            && !self.fleet.stats.writes_refused.load(Ordering::Acquire)
            && let Err(error) = links.commit(batch)
        {
            tracing::error!(%error, "cannot store the state of the fleet");
        }
    }

    /// Notes the names of all members. Those of which Redis may lack links count among the `others` as nodes that restore
    /// links, also while Redis has no heartbeat of them.
    fn note_members(&mut self, heard: &HeartbeatReply, others: &mut Vec<OtherNode>, (sent, now): (Duration, Duration)) {
        let passed = |node: &str| {
            let number = others.iter().find(|other| other.node == node)?.passed?;
            self.passing.sent(number)
        };
        let listed =
            heard.marks().into_iter().map(|(node, mark)| ListedMember { passed: passed(&node), node, mark }).collect();
        let names = self.known.take(&heard.epoch, listed, (sent, now), self.fleet.settings.reclaim_after);
        *self.fleet.stats.fleet.known.lock().unwrap_or_else(PoisonError::into_inner) = names;
        agreement::add_awaited(others, self.known.awaited());
    }

    /// Takes the reports of the other nodes on the delivery of their links, and remembers their heartbeats for the next
    /// report of this node.
    fn hear_reports(&mut self, others: Vec<OtherNode>, number: u64, now: Duration) {
        // The last heartbeat of a lost node may ask for ever.
        let is_live = |other: &OtherNode| self.heard.get(&other.node).copied() != other.number;
        self.is_asked = others.iter().any(|other| other.is_asking && is_live(other));
        self.heard = others.iter().filter_map(|other| Some((other.node.clone(), other.number?))).collect();
        let reports = others.into_iter().map(|other| (other.node, other.beat, other.report));
        if let Some(at) = self.confirmations.observe(number, reports, now, self.fleet.settings.reclaim_after) {
            self.fleet.view.confirm_delivered(at);
        }
    }

    /// Returns the numbers of the heartbeats of the other nodes after which this node has read all streams to their ends.
    fn passed_beats(&mut self) -> BTreeMap<NodeId, u64> {
        // A change that awaits an upgrade of this node is not passed.
        if let Some(at) = self.fleet.view.followed_at().filter(|_| !awaits_upgrade(&self.fleet.links)) {
            self.passed.follow(at);
        }
        self.passed.numbers()
    }

    /// Takes the reports of the other nodes on what they have passed in the streams. Names the nodes for which the
    /// codes of expired links wait.
    fn hear_passed(&mut self, others: &[OtherNode], number: u64, now: Duration) {
        let FleetContext { view, settings, stats, .. } = &self.fleet;
        self.passed.hear(others.iter().filter_map(|other| Some((other.node.clone(), other.number?))), now);
        let reports = others.iter().map(|other| {
            let report = other.passed.map(|heard| DeliveryReport { undelivered: 0, heard });
            (other.node.clone(), other.beat, report)
        });
        if let Some(at) = self.passing.observe(number, reports, now, settings.reclaim_after) {
            view.note_passed(at);
        }
        let late = view.awaited().map_or_else(Vec::new, |at| self.passing.missing(at));
        *stats.expiry.recycling_waits_for.lock().unwrap_or_else(PoisonError::into_inner) = late;
    }

    /// Notes the other nodes that may hold granted visits, and whether one of them waits for a report of this node. Call it
    /// before the numbers of their heartbeats are replaced.
    fn hear_holders(&mut self, others: &[OtherNode], (sent, now): (Duration, Duration)) {
        if !self.fleet.home.stores_all_links() {
            return;
        }
        self.departures.hear(others);
        self.find_left_grants(others);
        let FleetContext { links, settings, stats, .. } = &self.fleet;
        let holds = |other: &OtherNode| {
            let is_gone = self.departures.has_left(other) && departures::is_taken(&stats.fleet.grants, other);
            other.awaits_grants.is_some() && !is_gone
        };
        let present = others.iter().map(|other| (other.node.clone(), other.beat, holds(other)));
        // A node that joins with a copy of this store must wait for this node, too.
        let present = present.chain([(settings.node.clone(), 0, true)]);
        let is_unstored = self.holders.observe(present, (sent, now), settings.reclaim_after);
        // The names are on disk before this node counts with them: Redis may lose them together with the grants. While the
        // disk is full, they are not, and the next heartbeat tries again.
        if is_unstored && !stats.writes_refused.load(Ordering::Acquire) {
            let mut batch = links.batch();
            batch.set_grant_holders(self.holders.names());
            match links.commit(batch).and_then(|()| links.sync()) {
                Ok(()) => self.holders.note_stored(),
                Err(error) => tracing::error!(%error, "cannot store the names of the other nodes"),
            }
        }
        let heard = self.heard_by_holders(others);
        self.introduction.observe(heard, now);
        stats.fleet.grants.is_introduced.store(self.introduction.is_over(), Ordering::Release);
        // The last heartbeat of a lost node may wait for ever.
        let is_live = |other: &OtherNode| self.heard.get(&other.node).copied() != other.number;
        if others.iter().any(|other| other.awaits_grants == Some(true) && is_live(other)) {
            stats.fleet.grants.is_asked.store(true, Ordering::Release);
        }
        let names = self.holders.names().filter(|name| **name != settings.node).cloned().collect();
        let arrived = Instant::now();
        let sent = arrived.checked_sub(now.saturating_sub(sent)).unwrap_or(arrived);
        *stats.fleet.grants.others.lock().unwrap_or_else(PoisonError::into_inner) = Some((names, sent));
    }

    /// Shows the members of the fleet and the servers of Redis to the operator.
    fn show_fleet(&self, heard: &HeartbeatReply, now: Duration) {
        let about = |node: &str| heard.about.iter().find(|(of, _)| of == node).map(|(_, about)| about.clone());
        let seen = Instant::now();
        let beat = |node: &str| heard.beats.iter().find(|(of, _)| of == node).map_or(0, |(_, beat)| *beat);
        let members = self.members.list(now).into_iter().map(|(node, silent)| MemberStats {
            about: about(&node).unwrap_or_default(),
            beat_ms: beat(&node),
            heard: seen.checked_sub(silent).unwrap_or(seen),
            node,
        });
        let fleet = &self.fleet.stats.fleet;
        *fleet.members.lock().unwrap_or_else(PoisonError::into_inner) = members.collect();
        let servers = self.redis.servers().into_iter().map(|(address, _)| address.to_string()).collect();
        *fleet.about.lock().unwrap_or_else(PoisonError::into_inner) = (self.fleet.settings.node.clone(), servers);
    }

    /// Takes over the leases of nodes that are gone.
    fn take_over(&mut self, heard: &HeartbeatReply, now: Duration) {
        // A node that is behind would not know which of the codes have a link.
        if self.fleet.view.is_behind() {
            return;
        }
        let me = self.fleet.settings.node.clone();
        for (gone, _) in self.members.gone(now, self.fleet.settings.reclaim_after) {
            let Some(watched) = heard.heartbeat_of(&gone).filter(|_| gone != me) else { continue };
            match self.redis.reclaim(&me, &gone, watched, BEAT_TIME) {
                Ok(leases) => {
                    tracing::warn!(
                        node = gone,
                        leases = leases.len(),
                        "took over the unused codes of a node that left the fleet"
                    );
                    for (length, start, len) in leases {
                        // Without a replenisher the node is shutting down.
                        let _ = self.reclaimed.send(Run { length, start: CounterValue(start), len });
                    }
                }
                Err(error) => note_error(&self.fleet.stats, &error),
            }
        }
    }
}

/// Determines whether this node may lack changes that Redis no longer has, and reports it to the other threads and the
/// operator.
fn update_retention(fleet: &FleetContext) {
    let stats = &fleet.stats;
    let status = if fleet.home.stores_all_links() {
        fleet.retention.status(stats.fleet.comparing.get() > 0)
    } else {
        fleet.retention.shared_home_status()
    };
    fleet.view.set_behind(status.is_behind);
    stats.fleet.retention_ms.set(status.retention.map_or(0, |retention| retention.as_millis() as u64));
    stats.fleet.may_have_expired.store(fleet.retention.may_have_expired(), Ordering::Release);
    stats.fleet.unfollowed_ms.set(status.lag_ms);
    stats.fleet.is_behind.store(status.is_behind, Ordering::Release);
    stats.fleet.needs_copy.store(status.needs_copy, Ordering::Release);
    if status.is_behind {
        stats.alarms.raise(Alarm::FleetBehind, status.describe(awaits_upgrade(&fleet.links)));
    } else {
        stats.alarms.clear(Alarm::FleetBehind);
    }
}

/// Returns the nodes that an earlier process knew to hold granted visits.
fn stored_holders(links: &Links) -> GrantHolders {
    let names = links.grant_holders().unwrap_or_else(|error| {
        tracing::error!(%error, "the names of the other nodes cannot be read");
        Vec::new()
    });
    GrantHolders::resume(names, since_boot())
}

/// True if Redis may have a state that only a later version can decode, and that this node has not kept; also if the store
/// cannot tell.
fn awaits_upgrade(links: &Links) -> bool {
    Partition::all().any(|partition| links.awaits_upgrade(partition).unwrap_or(true))
}
