//! The settings and the state that the threads of a fleet share.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carom_shards::Code;

use super::home::StateHome;
use super::retention::{BEHIND, Retention};
use crate::bridge::Mailboxes;
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::services::replication::redis::{Redis, RedisError, RedisSettings};
use carom_model::replication::members::Lease;
use carom_model::replication::round_trips::RedisTimeout;
use carom_model::replication::sites::SiteShare;
use carom_model::replication::state::{NoState, ReceivedState, StateHead};
use carom_model::replication::{State, rules};
use carom_store::links::{Links, StoreError};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// The settings that must be the same on all nodes, by the name of their group, each as a fingerprint.
pub type SettingFingerprints = BTreeMap<&'static str, String>;

/// Reason that clients get whose request a node refuses because another process has its name.
const GIVES_WAY: &str =
    "another process has the name of this node; it accepts writes once the other one has ended (alarm duplicate_node)";

/// Time after a command that Redis has rejected in which the alarm stays. A thread repeats such a command sooner, and Redis may
/// answer heartbeats between two attempts.
const REFUSES_FOR: Duration = Duration::from_secs(5);

/// The node is shutting down, so the writer takes no more orders.
pub(super) struct ShuttingDown;

/// The settings of a node of a fleet.
#[derive(Clone, Debug)]
pub struct FleetSetup {
    /// The addresses and credentials of Redis.
    pub redis: Arc<RedisSettings>,
    /// The name of this node.
    pub node: String,
    /// The admin listener of this node, as it is set, by which people tell processes apart.
    pub admin_listen: SocketAddr,
    /// The lock file of the data directory, in this boot of the machine. Another process with the same text has ended, since
    /// this one holds the lock. `None` if it is unknown.
    pub lock_file: Option<String>,
    /// Timeout of Redis, after which it counts as away.
    pub answer_time: RedisTimeout,
    /// Time for which a request for an unknown code waits for Redis.
    pub look_up_time: RedisTimeout,
    /// True if the node creates links with generated codes and deletes links while Redis does not answer. Custom slugs
    /// and changes of links always need Redis.
    pub accept_without_redis: bool,
    /// Time of silence after which another node takes over the counter values of a node.
    pub reclaim_after: Duration,
    /// Time after its last use for which an equivalent link still answers a create; `None` turns that off.
    pub dedupe: Option<Duration>,
    /// Time for which Redis keeps a state after its last change; `None` for forever.
    pub retention: Option<Duration>,
    /// The fingerprint of the code secret.
    pub fingerprint: String,
    /// The settings that must be the same on all nodes.
    pub agreed: SettingFingerprints,
    /// The sites of the fleet; `None` for one site.
    pub site: Option<SiteSetup>,
}

/// The two sites of a fleet, from the view of a node of one of them.
#[derive(Clone, Debug)]
pub struct SiteSetup {
    /// The name of the site of this node.
    pub name: String,
    /// The name of the other site.
    pub other: String,
    /// The addresses and credentials of the other site's Redis.
    pub redis: Arc<RedisSettings>,
}

/// The state that the threads of a fleet share.
#[derive(Clone)]
pub struct FleetContext {
    /// The settings of the fleet, which do not change.
    pub settings: Arc<FleetSetup>,
    /// The store, to read from.
    pub links: Links,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The lease of this node: while it lasts, leased counter values may be used without asking Redis.
    pub lease: Arc<Mutex<Lease>>,
    /// The knowledge about the fleet that decides between 404 and 503.
    pub view: Arc<FleetView>,
    /// The home of the states of links.
    pub home: StateHome,
    /// The retention of Redis, and whether this node has what Redis no longer has.
    pub retention: Arc<Retention>,
    /// True once no codes of an earlier process are left that may belong to another node.
    pub is_resumed: Arc<AtomicBool>,
    /// True once the node is shutting down.
    pub stop: Arc<AtomicBool>,
}

impl FleetContext {
    /// True if the threads should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the timeout of a create, change or delete in Redis, by the round trips of the last heartbeats.
    pub(super) fn answer_time(&self) -> Duration {
        self.settings.answer_time.at(self.round_trip())
    }

    fn round_trip(&self) -> Duration {
        Duration::from_micros(self.stats.fleet.round_trip_us.get())
    }

    /// Returns the time for which a request for an unknown code waits for Redis.
    pub(super) fn look_up_time(&self) -> Duration {
        self.home.look_up_time(self.settings.look_up_time.at(self.round_trip()), self.answer_time())
    }

    /// Returns the time for which expired links are kept, in milliseconds; `None` if their codes are not recycled.
    pub(super) fn keep_expired_ms(&self) -> Option<u64> {
        let fleet = &self.stats.fleet;
        fleet.recycles.load(Ordering::Acquire).then(|| fleet.keep_expired_ms.get())
    }

    /// True if leased counter values may be used without asking Redis.
    pub fn lease_holds(&self) -> bool {
        self.lease().holds(since_boot())
    }

    /// Returns a copy of the lease.
    pub(super) fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the fleet is known to have the same code secret, which is the condition for sharing anything.
    pub fn has_same_code_secret(&self) -> bool {
        self.stats.fleet.same_code_secret.load(Ordering::Acquire)
    }

    /// Checks whether Redis may be asked for a change that a client wants.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn may_change(&self) -> Result<(), &'static str> {
        if !self.has_same_code_secret() {
            return Err("the code secret of the fleet is not known yet");
        }
        if self.stats.writes_refused.load(Ordering::Acquire) {
            // The writer tells the client why. Redis must not get a change that a client will hear was refused.
            return Err("the store does not accept writes");
        }
        self.refusal().map_or(Ok(()), Err)
    }

    /// Returns the reason for which this node accepts no writes of clients, whether Redis answers or not; `None` if it
    /// accepts them.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        if self.stats.fleet.gives_way.load(Ordering::Acquire) {
            return Some(GIVES_WAY);
        }
        self.view.is_behind().then_some(BEHIND)
    }

    /// Returns a connection to Redis for one thread, which is opened on first use.
    ///
    /// # Errors
    /// If the certificates for Redis cannot be used, or the operating system refuses something.
    pub(super) fn redis(&self) -> io::Result<Redis> {
        let redis = Redis::new(Arc::clone(&self.settings.redis)).map_err(io::Error::other)?;
        let share = self.settings.site.as_ref().map(|site| SiteShare::of(&site.name, &site.other));
        Ok(redis.with_retention(self.retention.state_ms()).with_share(share))
    }

    /// Returns a connection to the Redis of the other site for one thread, which is opened on first use.
    ///
    /// # Errors
    /// Like [`FleetContext::redis`].
    pub(super) fn other_redis(&self, site: &SiteSetup) -> io::Result<Redis> {
        let redis = Redis::new(Arc::clone(&site.redis)).map_err(io::Error::other)?;
        Ok(redis.with_retention(self.retention.state_ms()))
    }

    /// Returns the state of a code in the store of this node; `None` if the store has none, or none that can be read.
    pub(super) fn stored_state(&self, code: &Code) -> Option<State> {
        State::from_value(*code, &self.links.get(code).ok()??)
    }

    /// Returns the state of a code on this node, for a request to a Redis that may no longer have it; `None` while Redis
    /// keeps all states.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot tell. Redis must not be asked then: it would give the code away. The error was
    /// counted and logged.
    pub(super) fn state_for_redis(&self, code: &Code) -> Result<Option<State>, StoreError> {
        if !self.retention.may_have_expired() {
            return Ok(None);
        }
        let read = || match self.links.get(code)? {
            None => Ok(None),
            Some(value) => match State::from_value(*code, &value) {
                Some(state) => Ok(Some(state)),
                None => Err(StoreError::Damaged(format!("the record of {code} cannot be decoded"))),
            },
        };
        read().inspect_err(|error| {
            self.stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "the store cannot tell whether a code is free, so Redis is not asked for it");
        })
    }

    /// True if this node has marked a code, or has a record of it that only a later version can decode, and Redis has lost
    /// that state: `theirs`, the state in Redis, is earlier or absent. The state may be an acknowledged link, so the code is
    /// neither missing nor free, and `theirs` is out of date. Also true if the store cannot tell.
    pub(super) fn has_lost_marked(&self, code: &Code, theirs: Option<&ReceivedState>) -> bool {
        self.knows_lost_marked(code, theirs).unwrap_or(true)
    }

    /// Decides like [`FleetContext::has_lost_marked`], but returns an error if the store cannot tell.
    ///
    /// # Errors
    /// If the store cannot tell. The error was counted and logged.
    pub(super) fn knows_lost_marked(&self, code: &Code, theirs: Option<&ReceivedState>) -> Result<bool, StoreError> {
        has_lost_marked(&self.links, code, theirs).inspect_err(|error| {
            self.stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "the store cannot tell whether a later version has changed this code");
        })
    }
}

fn has_lost_marked(links: &Links, code: &Code, theirs: Option<&ReceivedState>) -> Result<bool, StoreError> {
    // Only a later version can serve a state that this one cannot decode, so its age makes no difference.
    if matches!(theirs, Some(ReceivedState::Unread(_))) {
        return Ok(false);
    }
    let mine = match links.unread(code)? {
        // No version can decode a damaged text, and its head may be damaged, too. Such a mark would keep the code for ever.
        Some(text) if matches!(State::from_text(*code, &text), Err(NoState::Damaged)) => return Ok(false),
        Some(text) => StateHead::of(&text),
        None => match newer_record(links, code)? {
            Some(head) => Some(head),
            None => return Ok(false),
        },
    };
    let Some(ReceivedState::Known(theirs)) = theirs else { return Ok(true) };
    Ok(!rules::follows(mine.as_ref(), theirs))
}

/// Returns the head of the record of a code, if only a later version can decode it.
fn newer_record(links: &Links, code: &Code) -> Result<Option<StateHead>, StoreError> {
    match links.get(code) {
        Ok(value) => Ok(value.and_then(|value| StateHead::if_newer(code, &value))),
        // Redis may have the link of a damaged record.
        Err(StoreError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Counts an error of Redis, and raises an alarm if Redis refused a command.
pub(in crate::services) fn note_error(stats: &NodeStats, error: &RedisError) {
    stats.fleet.errors.add_shared(1);
    if let RedisError::Refused(what) = error {
        stats.fleet.refused_ms.store(since_boot().as_millis() as u64, Ordering::Release);
        stats.alarms.raise(Alarm::RedisRefuses, format!("Redis answers but rejects commands: {what}"));
    }
}

/// Clears the alarm about rejected commands at `now`, since boot, unless Redis has just rejected one.
pub(super) fn note_answered(stats: &NodeStats, now: Duration) {
    let refused = Duration::from_millis(stats.fleet.refused_ms.load(Ordering::Acquire));
    if now.saturating_sub(refused) >= REFUSES_FOR {
        stats.alarms.clear(Alarm::RedisRefuses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::{Link, Origin, Version};

    #[test]
    fn heartbeats_between_rejected_commands_clear_no_alarm() {
        let stats = NodeStats::default();
        note_error(&stats, &RedisError::Refused("OOM".to_owned()));
        let refused = Duration::from_millis(stats.fleet.refused_ms.load(Ordering::Acquire));
        note_answered(&stats, refused + REFUSES_FOR / 2);
        assert!(stats.alarms.is_on(Alarm::RedisRefuses), "it would come and go every second");
        note_answered(&stats, refused + REFUSES_FOR);
        assert!(!stats.alarms.is_on(Alarm::RedisRefuses));
    }

    fn state(edit: u32) -> State {
        let version = Version { rev: 1, claim: 7, edit };
        State::Link(Arc::new(Link { version, ..carom_model::testing::link("abc", Origin::Custom) }))
    }

    /// The text of a state in a kind that this version does not know.
    fn newer(code: &Code, edit: u32) -> Vec<u8> {
        let mut text = state(edit).to_text(code);
        text[0] = b'Z';
        text
    }

    fn lost(links: &Links, code: &Code, theirs: Option<&ReceivedState>) -> bool {
        has_lost_marked(links, code, theirs).unwrap()
    }

    #[test]
    fn redis_has_lost_a_marked_state_if_its_own_is_earlier_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let code = Code::parse(b"abc").unwrap();
        let known = |edit| ReceivedState::Known(state(edit));
        assert!(!lost(&links, &code, None), "the code is not marked");
        let mark = |text: &[u8]| {
            let mut batch = links.batch();
            batch.mark_unread(&code, text);
            links.commit(batch).unwrap();
        };
        mark(&newer(&code, 2));
        assert!(lost(&links, &code, None), "only this node may have the link");
        assert!(lost(&links, &code, Some(&known(1))));
        for theirs in [known(2), known(3), ReceivedState::Known(state(2).deleted(9))] {
            assert!(!lost(&links, &code, Some(&theirs)), "{theirs:?}");
        }
        assert!(!lost(&links, &code, Some(&ReceivedState::Unread(newer(&code, 1).into()))));
        // A record in the store counts like a mark.
        let other = carom_model::testing::link("newer", Origin::Custom);
        let of_newer = |edit| {
            let version = Version { rev: 1, claim: 7, edit };
            State::Link(Arc::new(Link { version, ..other.clone() }))
        };
        let State::Link(stored) = of_newer(2) else { panic!("it is a link") };
        let mut batch = links.batch();
        batch.put(&other.code, &carom_model::testing::newer_record(&stored));
        links.commit(batch).unwrap();
        for (theirs, expected) in [(None, true), (Some(of_newer(1)), true), (Some(of_newer(3)), false)] {
            let theirs = theirs.map(ReceivedState::Known);
            assert_eq!(lost(&links, &other.code, theirs.as_ref()), expected, "{theirs:?}");
        }
        // A damaged text of a stream entry says nothing.
        let mut damaged = newer(&code, 9);
        *damaged.last_mut().unwrap() ^= 1;
        mark(&damaged);
        assert!(!lost(&links, &code, Some(&known(1))));
        assert!(!lost(&links, &code, None));
    }
}
