//! The relay between two sites. It reads the streams of the other site's Redis, and offers each state to the Redis of
//! its own site. The streams there bring the state to the nodes.
//!
//! Every node runs this thread, and one of them at a time holds the lease of the relay. It stores its position in a stream
//! once its own Redis has decided on every state before it, and has had the time to replicate them. So a relay that takes
//! over, or whose Redis may have lost something, reads some states twice, and leaves out none. Where a position was lost,
//! it offers every state that the other Redis has of that partition, and stores a position after that.
//!
//! * `comparison` compares the states of partitions whose positions were lost, which `lost_positions` keeps;
//! * `offers` offers states and settles conflicts by [`carom_model::replication::sites`];
//! * `gaps` marks this site if states may have expired before the relay read them;
//! * `freshness` tells this node up to when its site has heard of the other one, and `contact` is what it remembers;
//! * `damage` reports damaged notes and positions, and replaces them;
//! * `settings` compares the settings of the two sites.

mod comparison;
mod contact;
mod damage;
mod freshness;
mod gaps;
mod lost_positions;
mod offers;
mod settings;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use self::contact::SiteContact;
use self::lost_positions::{LostPositions, PartitionComparison};
use super::context::{FleetContext, SiteSetup, note_error};
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{OtherSpace, READ_TOGETHER_MAX, Redis, RedisError, SiteNotes};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::SETTLE_TIME;
use carom_model::replication::follow::{self, StreamEntry, StreamPosition, StreamRead};
use carom_model::replication::sites::{HeldPositions, read_of_pass};
use carom_model::replication::state::NoState;
use carom_model::replication::{Partition, State};

/// Time after which another node takes over the relay of a node that is gone.
const LEASE_TIME: Duration = Duration::from_secs(3);

/// Interval between two renewals of the lease, and between two looks at the code space of the other site.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Interval between two reads of the other site's streams while they are quiet.
const POLL: Duration = Duration::from_millis(50);

/// Interval between two turns of a node that is not the relay, or that gets no answer.
const POLL_WHILE_IDLE: Duration = Duration::from_millis(250);

/// Time for which a position is held back after this site has decided on the states before it. A failover that takes back less
/// than this loses none of them.
const HELD_FOR: Duration = Duration::from_secs(10);

/// Number of entries read from one stream at once while streams have more than [`READ_TOGETHER_MAX`].
const READ_COUNT: usize = 64;

/// Timeout of the Redis of this site. No client waits for it.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the Redis of the other site.
const OTHER_TIME: Duration = Duration::from_secs(2);

/// Starts the thread; `None` if the fleet has one site.
pub(super) fn start(fleet: &FleetContext) -> io::Result<Option<JoinHandle<()>>> {
    let Some(site) = fleet.settings.site.clone() else { return Ok(None) };
    let relay = Relay {
        own: fleet.redis()?,
        other: fleet.other_redis(&site)?,
        // 0 stands for no relay.
        id: getrandom::u64().map_err(io::Error::other)?.max(1),
        fleet: fleet.clone(),
        site,
        renewed: None,
        is_relay: false,
        space: None,
        notes: SiteNotes::default(),
        positions: HashMap::new(),
        held: HeldPositions::default(),
        losses: Losses::default(),
        lost: LostPositions::default(),
        comparison: None,
        other_may_have_lost: None,
        has_more: false,
        compared: None,
        contact: SiteContact::default(),
    };
    let names = (relay.site.name.clone(), relay.site.other.clone());
    // The thread starts once, so the names are not set yet.
    let _ = fleet.stats.fleet.site.names.set(names);
    threads::start(Priority::Long, "redis-relay", move || relay.run()).map(Some)
}

struct Relay {
    fleet: FleetContext,
    site: SiteSetup,
    /// The Redis of this site.
    own: Redis,
    /// The Redis of the other site.
    other: Redis,
    /// The identity of this process as a relay.
    id: u64,
    /// The time of the last renewal of the lease.
    renewed: Option<Instant>,
    is_relay: bool,
    /// The code space of the other site, and the time at which it was read.
    space: Option<(Instant, OtherSpace)>,
    notes: SiteNotes,
    /// The position in each stream of the other site. A stream whose position was lost has no entry.
    positions: HashMap<Partition, StreamPosition>,
    /// The positions that are not stored yet.
    held: HeldPositions,
    /// The signs of losses that this relay has taken into account.
    losses: Losses,
    /// The streams whose positions were lost.
    lost: LostPositions,
    /// The comparison in progress; `None` before it begins.
    comparison: Option<PartitionComparison>,
    /// The time at which the other Redis may last have lost states: a position in a stream was lost, or a connection.
    other_may_have_lost: Option<Instant>,
    /// True if a stream had more entries than were read last.
    has_more: bool,
    /// The time at which the settings of the sites were last compared.
    compared: Option<Instant>,
    contact: SiteContact,
}

/// The signs that the Redis of a site may have lost states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Losses {
    /// The time at which the connections to the Redis of this site were last disturbed.
    own: Option<Instant>,
    /// The time at which the connections to the other Redis were last disturbed.
    other: Option<Instant>,
    /// The number of positions that this node has lost in the streams of its site.
    gaps: u64,
}

/// A reason why a turn was not finished.
enum RelayFailure {
    /// The Redis of this site did not answer, or refused.
    Own(RedisError),
    /// The Redis of the other site did not answer, or refused.
    Other(RedisError),
    /// Both servers answer, but the relay cannot continue: the sites do not fit together, or one has states of a
    /// later version.
    Blocked(String),
}

impl Relay {
    fn run(mut self) {
        while !self.fleet.is_stopping() {
            let wait = self.turn();
            std::thread::park_timeout(wait);
        }
    }

    /// Does one turn. Returns the time to wait for the next one.
    fn turn(&mut self) -> Duration {
        if !self.fleet.has_same_code_secret() {
            // The Redis of this node may belong to another fleet by now, which must get nothing of this one.
            (self.is_relay, self.renewed) = (false, None);
            self.show_role();
            return POLL_WHILE_IDLE;
        }
        let done = self.work();
        if let Err(failure) = &done {
            self.note_failure(failure);
            self.show_role();
        }
        self.report_contact();
        done.unwrap_or(POLL_WHILE_IDLE)
    }

    fn work(&mut self) -> Result<Duration, RelayFailure> {
        self.read_notes()?;
        self.notice_losses();
        self.renew()?;
        if !self.is_relay {
            return Ok(POLL_WHILE_IDLE);
        }
        self.store_due()?;
        self.read_space()?;
        self.compare_settings();
        let is_held = self.read_streams()?;
        if self.has_more || self.compare()? {
            return Ok(Duration::ZERO);
        }
        if is_held || !self.lost.is_empty() {
            return Err(later_version());
        }
        self.end_pass()?;
        Ok(POLL)
    }

    /// Begins again from the stored positions if the Redis of a site may have lost states that it had accepted from this
    /// relay.
    fn notice_losses(&mut self) {
        let gaps = self.fleet.stats.fleet.gaps.get();
        let losses = Losses { own: self.own.last_disturbance(), other: self.other.last_disturbance(), gaps };
        if losses.other != self.losses.other {
            // A new master may lack states that this relay had not read yet. No position shows that.
            self.other_may_have_lost = Some(Instant::now());
        }
        if losses != self.losses {
            (self.losses, self.is_relay, self.renewed) = (losses, false, None);
        }
    }

    /// Takes or renews the lease of the relay. A node that takes it continues where the last one has stored its position.
    fn renew(&mut self) -> Result<(), RelayFailure> {
        if self.renewed.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
            return Ok(());
        }
        let now = Instant::now();
        let held = self.hold_lease();
        self.is_relay = matches!(held, Ok(true));
        if held.is_ok() {
            self.renewed = Some(now);
        }
        self.show_role();
        held.map(|_| ())
    }

    fn hold_lease(&mut self) -> Result<bool, RelayFailure> {
        let name = self.own.name_site(&self.site.name, REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        if name != self.site.name {
            let text =
                format!("the Redis of this node belongs to the site {name}, but fleet.site is {}", self.site.name);
            return Err(RelayFailure::Blocked(text));
        }
        let holds =
            self.own.hold_relay(&self.fleet.settings.node, LEASE_TIME, REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        if holds && !self.is_relay {
            self.take_over()?;
        }
        if !holds {
            // Another node compares the settings.
            self.tell_difference(None);
        }
        Ok(holds)
    }

    /// Shows whether this node is the relay, and whether `site_sync` may work: the other Redis is the right one, and no
    /// other node can have the lease.
    fn show_role(&self) {
        let stats = &self.fleet.stats.fleet.site;
        let holds = self.renewed.is_some_and(|at| at.elapsed() < LEASE_TIME);
        stats.is_relay.store(self.is_relay, Ordering::Release);
        stats.is_linked.store(self.is_relay && holds && self.space.is_some(), Ordering::Release);
    }

    /// Reads the positions and the notes of the last relay.
    fn take_over(&mut self) -> Result<(), RelayFailure> {
        // First: a Redis that later loses what this relay reads or stores has lost this, too.
        self.own.take_relay(self.id, REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        let stored = self.own.site_notes(REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        let positions = self.own.site_positions(REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        self.name_damaged_positions(&positions.damaged);
        self.positions = positions.known.into_iter().collect();
        // A relay that has only lost a connection logs nothing.
        if self.notes.relay != self.id {
            tracing::info!(
                site = self.site.other,
                streams = self.positions.len(),
                "this node is the relay of its site"
            );
        }
        // Redis may have lost the times of the last pass and of the first contact, which this process may remember.
        self.contact.read.hear(stored.relay, stored.passes, stored.read_ms);
        self.contact.met_ms = self.contact.met_ms.max(stored.met_ms);
        let (read_ms, met_ms) = (self.contact.read.at_ms, self.contact.met_ms);
        self.notes = SiteNotes { relay: self.id, passes: 0, read_ms, met_ms, may_lack: false, ..stored };
        self.space = None;
        self.compared = None;
        self.held = HeldPositions::default();
        self.lost.clear();
        self.comparison = None;
        self.mend_notes()
    }

    /// Reads the code space of the other site from time to time, and checks that it belongs to this fleet.
    fn read_space(&mut self) -> Result<(), RelayFailure> {
        if self.space.as_ref().is_some_and(|(at, _)| at.elapsed() < RENEW_EVERY) {
            return Ok(());
        }
        let is_first = self.space.is_none();
        let at = Instant::now();
        let space = self.other.other_space(OTHER_TIME).map_err(RelayFailure::Other)?;
        if let Err(unfit) = self.check(&space) {
            self.space = None;
            self.show_role();
            return Err(unfit);
        }
        self.contact.read.hear_clock(space.now_ms);
        self.contact.met_ms = self.contact.met_ms.min(space.now_ms);
        self.notes.read_ms = self.notes.read_ms.min(space.now_ms);
        self.notes.met_ms = self.notes.met_ms.min(space.now_ms);
        for (length, floor) in &space.floors {
            match self.notes.floors.iter_mut().find(|(of, _)| of == length) {
                Some((_, known)) => *known = (*known).max(*floor),
                None => self.notes.floors.push((*length, *floor)),
            }
        }
        if is_first {
            self.check_first_contact(&space)?;
            self.begin_counters()?;
        }
        self.space = Some((at, space));
        self.show_role();
        Ok(())
    }

    /// Checks that a Redis is the one of the other site.
    fn check(&self, space: &OtherSpace) -> Result<(), RelayFailure> {
        let (ours, other) = (&self.fleet.settings.fingerprint, &self.site.other);
        let text = match (&space.fingerprint, &space.site) {
            (Some(theirs), Some(site)) if theirs == ours && site == other => match &space.damaged_floors[..] {
                [] => return Ok(()),
                // The counters of this site would begin among values that the other one has leased.
                fields => format!(
                    "{} of {{carom}}:space in the Redis of the site {other} is damaged; the alarm redis_refuses of its nodes names the remedy",
                    fields.join(", ")
                ),
            },
            (None, _) => format!("no node of the site {other} has started yet"),
            (Some(theirs), _) if theirs != ours => format!("the site {other} has another code secret"),
            (_, None) => format!("no node of the site {other} has fleet.site set"),
            (_, Some(site)) => {
                format!("fleet.other_redis belongs to the site {site}, but fleet.other_site is {other}")
            }
        };
        Err(RelayFailure::Blocked(text))
    }

    /// Stores the notes, and positions that have moved. If Redis has lost the earlier ones, it may have lost states as well:
    /// then the relay begins again from what Redis has.
    fn store(&mut self, moved: &[(Partition, StreamPosition)]) -> Result<(), RelayFailure> {
        if self.own.put_site_notes(&self.notes, moved, REDIS_TIMEOUT).map_err(RelayFailure::Own)? {
            return Ok(());
        }
        self.is_relay = false;
        self.renewed = None;
        Err(RelayFailure::Blocked(
            "the Redis of this site has lost the progress of the relay, which starts again".to_owned(),
        ))
    }

    /// Moves to positions before which this site has decided on every state.
    fn move_to(&mut self, moved: Vec<(Partition, StreamPosition)>) {
        if !moved.is_empty() {
            self.positions.extend(moved.iter().copied());
            self.held.add(since_boot(), moved);
        }
    }

    /// Stores the positions that were held for long enough. A relay that takes over reads from there on.
    fn store_due(&mut self) -> Result<(), RelayFailure> {
        let (count, due) = self.held.due(since_boot(), HELD_FOR);
        if count > 0 {
            self.store(&due)?;
            self.held.forget(count);
        }
        Ok(())
    }

    /// Reads all streams of the other site once, and offers their states to the Redis of this one. Returns true if a state
    /// that only a later version can decode holds a stream.
    fn read_streams(&mut self) -> Result<bool, RelayFailure> {
        let new: Vec<Partition> =
            Partition::all().filter(|of| !self.positions.contains_key(of) && !self.lost.contains(*of)).collect();
        self.note_lost(&new)?;
        let mut places: Vec<(Partition, StreamPosition)> = self.positions.iter().map(|(of, at)| (*of, *at)).collect();
        places.sort_by_key(|(partition, _)| *partition);
        let count = if self.has_more { READ_COUNT } else { READ_TOGETHER_MAX };
        self.has_more = false;
        let (mut states, mut moved, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut full, mut is_newer, mut failure) = (BTreeSet::new(), false, None);
        let answers = if places.is_empty() { Vec::new() } else { self.other.read(&places, count, OTHER_TIME) };
        for ((partition, position), answer) in places.into_iter().zip(answers) {
            match answer.map(|entries| (entries.len(), follow::check_position(Some(position), entries))) {
                Err(error) => failure = Some(error),
                Ok((_, StreamRead::Quiet)) => {}
                Ok((_, StreamRead::Gap)) => gaps.push(partition),
                Ok((len, StreamRead::Next(entries, _))) => match self.decode(&entries, &mut states) {
                    Ok(to) => {
                        full.extend((len >= count).then_some(partition));
                        moved.extend(to.map(|to| (partition, to)));
                    }
                    Err(Undecoded::Damaged) => gaps.push(partition),
                    Err(Undecoded::Newer(to)) => {
                        is_newer = true;
                        moved.extend(to.map(|to| (partition, to)));
                    }
                },
            }
        }
        let held = self.offer(&states)?;
        moved.retain(|(of, _)| !held.contains(of));
        self.move_to(moved);
        // A stream that is held would be read again and again.
        self.has_more = full.iter().any(|of| !held.contains(of));
        gaps.iter().for_each(|of| _ = self.positions.remove(of));
        self.note_lost(&gaps)?;
        match failure {
            Some(error) => Err(RelayFailure::Other(error)),
            None => Ok(is_newer || !held.is_empty()),
        }
    }

    /// Decodes entries into `states`, in their order. Returns the position behind the last one.
    fn decode(
        &self,
        entries: &[StreamEntry],
        states: &mut Vec<(Code, State)>,
    ) -> Result<Option<StreamPosition>, Undecoded> {
        let mut to = None;
        for entry in entries {
            match entry.code.map(|code| (code, State::from_text(code, &entry.text))) {
                Some((code, Ok(state))) if !entry.is_newer => states.push((code, state)),
                Some((code, Err(NoState::Damaged))) => {
                    tracing::error!(%code, "a stream entry of the other site is damaged; its states are compared");
                    return Err(Undecoded::Damaged);
                }
                None if !entry.is_newer => {}
                Some((_, Ok(_) | Err(NoState::Newer))) | None => return Err(Undecoded::Newer(to)),
            }
            to = Some(StreamPosition::of(entry));
        }
        Ok(to)
    }

    /// Notes streams whose positions were lost, so that all states that the other Redis has of their partitions are offered.
    fn note_lost(&mut self, partitions: &[Partition]) -> Result<(), RelayFailure> {
        if partitions.is_empty() {
            return Ok(());
        }
        self.check_gap()?;
        self.other_may_have_lost = Some(Instant::now());
        self.fleet.stats.fleet.site.gaps.add(partitions.len() as u64);
        partitions.iter().for_each(|of| self.lost.add(*of));
        Ok(())
    }

    /// Notes that all streams were read to their ends. After a gap or a lost connection, the other Redis may lack states that
    /// its nodes are about to bring back.
    fn end_pass(&mut self) -> Result<(), RelayFailure> {
        // The connection may have been lost since the beginning of this turn.
        let is_disturbed = self.other.last_disturbance() != self.losses.other;
        if is_disturbed || self.other_may_have_lost.is_some_and(|at| at.elapsed() < SETTLE_TIME) {
            return Ok(());
        }
        let Some((_, space)) = &self.space else { return Ok(()) };
        self.notes.read_ms = read_of_pass(space.now_ms, self.contact.may_lack);
        self.notes.passes += 1;
        // First: a Redis that has lost the mark of this site refuses the notes, and what this process remembers then
        // brings the mark back.
        self.store(&[])?;
        self.contact.read.hear(self.id, self.notes.passes, self.notes.read_ms);
        Ok(())
    }

    /// Remembers why a turn was not finished, for the alarm.
    fn note_failure(&mut self, failure: &RelayFailure) {
        let text = match failure {
            RelayFailure::Own(error) => {
                note_error(&self.fleet.stats, error);
                format!("the Redis of this site: {error}")
            }
            RelayFailure::Other(error) => format!("the Redis of the site {}: {error}", self.site.other),
            RelayFailure::Blocked(text) => text.clone(),
        };
        self.contact.failure = Some(text);
    }
}

/// Returns the failure of a state that only a later version can decode. It holds its place in the stream.
fn later_version() -> RelayFailure {
    RelayFailure::Blocked(
        "one site has links of a later version; upgrade the nodes of the site with the older version".to_owned(),
    )
}

/// A stream entry that could not be decoded.
enum Undecoded {
    /// A state that another program wrote, or that was damaged.
    Damaged,
    /// A later version wrote it. Has the position of the entry before, if one was read.
    Newer(Option<StreamPosition>),
}
