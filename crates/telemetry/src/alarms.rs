//! A closed list of alarms for operators, and those of a node that are active or were lately.
//!
//! Scripts, metrics and the runbook refer to an alarm by its name. A name keeps its meaning forever.
//! `docs/src/operate/runbook.md` has a section for each.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use carom_limits::ALARMS_KEPT;

/// A condition that an operator should know of: a state that lasts until it is cleared, or an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it, and the runbook at length")]
pub enum Alarm {
    AccessLogFailed,
    AllowListEntries,
    AllowListMalformed,
    AllowListUnkept,
    AllowListUnreadable,
    AppsUnreadable,
    AppsUnshared,
    BlockListEntries,
    BlockListMalformed,
    BlockListUnkept,
    BlockListUnreadable,
    BypassDrops,
    BypassInterfaceDown,
    BypassOff,
    CertificateEnds,
    CertificateRefused,
    CodesFailed,
    CodesUsedUp,
    CompareFailed,
    Conflict,
    CounterRegressed,
    DiskFull,
    DomainHidden,
    DuplicateNode,
    EventsSinkFailed,
    FleetBehind,
    GeoFileInvalid,
    IdTableMoved,
    LeaseLost,
    MemoryFull,
    MemoryLimitLow,
    NewerFormat,
    OtherKey,
    RedisAway,
    RedisEvicts,
    RedisRefuses,
    SettingsDiffer,
    SiteAway,
    SiteLacks,
    StoreDamaged,
    StoreFailed,
    StreamDamaged,
    VisitLogDamaged,
    VisitLogFailed,
    VisitsDamaged,
    VisitsDropped,
    VisitsFailed,
    VisitsMissing,
}

impl Alarm {
    /// Every alarm, ordered by name.
    pub const ALL: [Alarm; MEANINGS.len()] = {
        let mut all = [Alarm::AccessLogFailed; MEANINGS.len()];
        let mut at = 0;
        while at < MEANINGS.len() {
            all[at] = MEANINGS[at].0;
            assert!(all[at] as usize == at, "the table of meanings is in the order of the enum");
            at += 1;
        }
        all
    };

    /// Returns the name of the alarm in the status, in metrics, in the log and in the runbook.
    pub const fn name(self) -> &'static str {
        match self {
            Alarm::AccessLogFailed => "access_log_failed",
            Alarm::AllowListEntries => "allow_list_entries",
            Alarm::AllowListMalformed => "allow_list_malformed",
            Alarm::AllowListUnkept => "allow_list_unkept",
            Alarm::AllowListUnreadable => "allow_list_unreadable",
            Alarm::AppsUnreadable => "apps_unreadable",
            Alarm::AppsUnshared => "apps_unshared",
            Alarm::BlockListEntries => "block_list_entries",
            Alarm::BlockListMalformed => "block_list_malformed",
            Alarm::BlockListUnkept => "block_list_unkept",
            Alarm::BlockListUnreadable => "block_list_unreadable",
            Alarm::BypassDrops => "bypass_drops",
            Alarm::BypassInterfaceDown => "bypass_interface_down",
            Alarm::BypassOff => "bypass_off",
            Alarm::CertificateEnds => "certificate_ends",
            Alarm::CertificateRefused => "certificate_refused",
            Alarm::CodesFailed => "codes_failed",
            Alarm::CodesUsedUp => "codes_used_up",
            Alarm::CompareFailed => "compare_failed",
            Alarm::Conflict => "conflict",
            Alarm::CounterRegressed => "counter_regressed",
            Alarm::DiskFull => "disk_full",
            Alarm::DomainHidden => "domain_hidden",
            Alarm::DuplicateNode => "duplicate_node",
            Alarm::EventsSinkFailed => "events_sink_failed",
            Alarm::FleetBehind => "fleet_behind",
            Alarm::GeoFileInvalid => "geo_file_invalid",
            Alarm::IdTableMoved => "id_table_moved",
            Alarm::LeaseLost => "lease_lost",
            Alarm::MemoryFull => "memory_full",
            Alarm::MemoryLimitLow => "memory_limit_low",
            Alarm::NewerFormat => "newer_format",
            Alarm::OtherKey => "other_key",
            Alarm::RedisAway => "redis_away",
            Alarm::RedisEvicts => "redis_evicts",
            Alarm::RedisRefuses => "redis_refuses",
            Alarm::SettingsDiffer => "settings_differ",
            Alarm::SiteAway => "site_away",
            Alarm::SiteLacks => "site_lacks",
            Alarm::StoreDamaged => "store_damaged",
            Alarm::StoreFailed => "store_failed",
            Alarm::StreamDamaged => "stream_damaged",
            Alarm::VisitLogDamaged => "visit_log_damaged",
            Alarm::VisitLogFailed => "visit_log_failed",
            Alarm::VisitsDamaged => "visits_damaged",
            Alarm::VisitsDropped => "visits_dropped",
            Alarm::VisitsFailed => "visits_failed",
            Alarm::VisitsMissing => "visits_missing",
        }
    }

    /// Returns how urgent the alarm is.
    pub const fn severity(self) -> Severity {
        match self {
            Alarm::CodesFailed
            | Alarm::DiskFull
            | Alarm::DuplicateNode
            | Alarm::FleetBehind
            | Alarm::OtherKey
            | Alarm::StoreDamaged
            | Alarm::StoreFailed
            | Alarm::VisitsFailed => Severity::Critical,
            Alarm::CodesUsedUp | Alarm::CounterRegressed | Alarm::IdTableMoved => Severity::Notice,
            _ => Severity::Warning,
        }
    }

    /// Returns true if the alarm ends when its cause is gone, false if it stays until the node restarts.
    pub const fn clears_by_itself(self) -> bool {
        !matches!(
            self,
            Alarm::BypassOff
                | Alarm::CompareFailed
                | Alarm::Conflict
                | Alarm::CounterRegressed
                | Alarm::DomainHidden
                | Alarm::IdTableMoved
                | Alarm::LeaseLost
                | Alarm::MemoryFull
                | Alarm::StoreDamaged
                | Alarm::StoreFailed
                | Alarm::StreamDamaged
                | Alarm::VisitLogDamaged
                | Alarm::VisitsDamaged
                | Alarm::VisitsFailed
        )
    }

    /// Returns the condition that raises the alarm, as a sentence.
    pub const fn meaning(self) -> &'static str {
        MEANINGS[self as usize].1
    }
}

/// Every alarm in the order of the enum, with the condition that raises it.
const MEANINGS: [(Alarm, &str); 48] = [
    (Alarm::AccessLogFailed, "The access log cannot be written; lines are dropped."),
    (Alarm::AllowListEntries, "Some entries of the dynamic allow list are not host names and are ignored."),
    (Alarm::AllowListMalformed, "The dynamic allow list is not a JSON object of strings and counts as empty."),
    (Alarm::AllowListUnkept, "The dynamic allow list cannot be saved; a restart would lose it."),
    (Alarm::AllowListUnreadable, "The source of the allow list is unavailable; the last valid list is used."),
    (Alarm::AppsUnreadable, "The API key file cannot be read or written; the known keys stay valid."),
    (Alarm::AppsUnshared, "Redis rejects a command on the API keys; key changes do not reach other nodes."),
    (Alarm::BlockListEntries, "Some entries of the dynamic block list are not host names and are ignored."),
    (Alarm::BlockListMalformed, "The dynamic block list is malformed; the last valid list is used."),
    (Alarm::BlockListUnkept, "The dynamic block list cannot be saved; a restart would lose it."),
    (Alarm::BlockListUnreadable, "The source of the block list is unavailable; the last valid list is used."),
    (
        Alarm::BypassDrops,
        "The kernel drops frames of kernel bypass, because a core is too slow; clients send them again.",
    ),
    (
        Alarm::BypassInterfaceDown,
        "The interface of kernel bypass is down or has no carrier; no client reaches the node through it.",
    ),
    (Alarm::BypassOff, "Kernel bypass is configured but not in use; the node serves over the kernel."),
    (Alarm::CertificateEnds, "A certificate in use expires within 14 days or has expired."),
    (Alarm::CertificateRefused, "New certificate files are unusable; the previous certificates stay in use."),
    (Alarm::CodesFailed, "No new slugs can be generated; creates fail once the prepared ones are used up."),
    (Alarm::CodesUsedUp, "90% of the slugs of the current length are used; once all are, new slugs get longer."),
    (Alarm::CompareFailed, "The store cannot be read, so links are not compared with Redis."),
    (Alarm::Conflict, "Two nodes created different links with the same slug; one link was dropped."),
    (Alarm::CounterRegressed, "The slug counter in Redis was behind the slugs in use; carom raised it."),
    (Alarm::DiskFull, "The disk of the data directory is nearly full; writes are refused."),
    (Alarm::DomainHidden, "Links created while the host of base_url was in domains.serve are unreachable."),
    (
        Alarm::DuplicateNode,
        "Two running processes have the same fleet.node; the one that joined later refuses writes and sends no heartbeats.",
    ),
    (Alarm::EventsSinkFailed, "A sink does not accept events; they are kept for events.keep and tried again."),
    (
        Alarm::FleetBehind,
        "This node may lack changes that Redis no longer has; it refuses writes until it has caught up.",
    ),
    (Alarm::GeoFileInvalid, "The file with locations of addresses is invalid; the last valid one is used."),
    (Alarm::IdTableMoved, "The table of unused slugs could not be opened and was replaced."),
    (Alarm::LeaseLost, "Other nodes may have taken over the slugs of this node; it creates no links without Redis."),
    (Alarm::MemoryFull, "A core has reached its limit of 32 GiB of link data; further links return 503."),
    (Alarm::MemoryLimitLow, "links.memory_limit is too low for this many links; unknown slugs are looked up on disk."),
    (
        Alarm::NewerFormat,
        "A newer version of carom has changed links in a way that this node cannot read; they return 503.",
    ),
    (Alarm::OtherKey, "Redis belongs to a fleet with another code secret; this node exchanges nothing with it."),
    (Alarm::RedisAway, "Redis does not answer; redirects continue."),
    (Alarm::RedisEvicts, "Redis may remove links and slugs of the fleet once its memory is full."),
    (Alarm::RedisRefuses, "Redis answers but rejects commands; changes are not synced."),
    (Alarm::SettingsDiffer, "Nodes of the fleet have different settings where all must have the same."),
    (Alarm::SiteAway, "This site has no contact to the other one; unknown slugs return 503 here."),
    (Alarm::SiteLacks, "This site may lack links of the other one; unknown slugs return 503."),
    (Alarm::StoreDamaged, "A record or block of the store cannot be read."),
    (Alarm::StoreFailed, "A write or sync failed; all writes are refused until a restart."),
    (Alarm::StreamDamaged, "A Redis stream contains an entry that carom cannot read; its slug is looked up in Redis."),
    (Alarm::VisitLogDamaged, "A part of the visit log cannot be read; lists leave out its visits."),
    (Alarm::VisitLogFailed, "Some visits are not logged; counts of visits continue."),
    (Alarm::VisitsDamaged, "Stored visit counts cannot be read; affected counts restart at zero."),
    (Alarm::VisitsDropped, "Some visits were not counted; visit counts are too low."),
    (Alarm::VisitsFailed, "Visits cannot be stored; links with maxVisits return 503."),
    (Alarm::VisitsMissing, "Visit counts of a node of the fleet are missing here; totals are too low."),
];

/// The urgency of an [`Alarm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Users are affected, or data is at risk. Act now.
    Critical,
    /// Something is degraded. Act during working hours.
    Warning,
    /// Worth knowing; usually nothing to do.
    Notice,
}

impl Severity {
    /// Returns the severity in lower case, as the documentation and alert rules spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }
}

/// An alarm that was raised.
#[derive(Clone, Debug)]
pub struct Raised {
    /// The alarm that is on, or has happened.
    pub alarm: Alarm,
    /// The problem and its remedy.
    pub text: String,
    /// The instant at which the alarm was raised, in milliseconds since 1970 UTC.
    pub since_ms: u64,
    /// The instant at which the alarm was cleared, in milliseconds since 1970 UTC; `None` while it is active.
    pub cleared_ms: Option<u64>,
}

/// The alarms of a node, for services only: it takes a lock.
#[derive(Debug, Default)]
pub struct Alarms {
    list: Mutex<VecDeque<Raised>>,
    clock: Clock,
}

impl Alarms {
    /// Returns an empty list, whose alarms get their instants from this clock.
    pub fn new(clock: Clock) -> Alarms {
        Alarms { list: Mutex::default(), clock }
    }

    /// Raises an alarm and logs it. An alarm that is already active only gets a new text, which is not logged: its
    /// cause may have changed by now.
    pub fn raise(&self, alarm: Alarm, text: String) {
        let mut list = self.lock();
        if let Some(raised) = list.iter_mut().find(|raised| raised.alarm == alarm && raised.cleared_ms.is_none()) {
            raised.text = text;
            return;
        }
        add(&mut list, alarm, text.clone(), self.clock.unix_ms());
        // The consumer of the log may be slow. Releasing the lock first keeps it from delaying readers of the alarms.
        drop(list);
        tracing::warn!(alarm = alarm.name(), "{text}");
    }

    /// Raises an alarm for an event, which may repeat: each is logged, and only the newest is kept.
    pub fn happened(&self, alarm: Alarm, text: String) {
        let mut list = self.lock();
        list.retain(|raised| raised.alarm != alarm);
        let said = text.clone();
        add(&mut list, alarm, text, self.clock.unix_ms());
        drop(list);
        tracing::warn!(alarm = alarm.name(), "{said}");
    }

    /// Clears an alarm, if it is active.
    pub fn clear(&self, alarm: Alarm) {
        let mut list = self.lock();
        let Some(raised) = list.iter_mut().find(|raised| raised.alarm == alarm && raised.cleared_ms.is_none()) else {
            return;
        };
        raised.cleared_ms = Some(self.clock.unix_ms());
        drop(list);
        tracing::info!(alarm = alarm.name(), "alarm cleared");
    }

    /// Returns true if an alarm is active.
    pub fn is_on(&self, alarm: Alarm) -> bool {
        self.lock().iter().any(|raised| raised.alarm == alarm && raised.cleared_ms.is_none())
    }

    /// Returns all alarms that are kept, newest last.
    pub fn list(&self) -> Vec<Raised> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Raised>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds an alarm to a list. A full list loses its oldest cleared alarm first, and an active one only if all are active.
fn add(list: &mut VecDeque<Raised>, alarm: Alarm, text: String, since_ms: u64) {
    if list.len() == ALARMS_KEPT {
        let oldest = list.iter().position(|raised| raised.cleared_ms.is_some()).unwrap_or(0);
        list.remove(oldest);
    }
    debug_assert!(list.len() < ALARMS_KEPT, "the oldest one made room");
    list.push_back(Raised { alarm, text, since_ms, cleared_ms: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_differ() {
        assert!(Alarm::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name() && pair[0] < pair[1]));
        let is_fit = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(Alarm::ALL.iter().all(|alarm| is_fit(alarm.name())));
    }

    #[test]
    fn an_alarm_that_is_on_says_what_is_wrong_now() {
        let alarms = Alarms::default();
        alarms.raise(Alarm::RedisAway, "one".to_owned());
        alarms.raise(Alarm::RedisAway, "two".to_owned());
        assert_eq!(alarms.list().iter().map(|raised| raised.text.as_str()).collect::<Vec<_>>(), ["two"]);
        assert!(alarms.is_on(Alarm::RedisAway));
        assert!(!alarms.is_on(Alarm::Conflict));
        alarms.clear(Alarm::RedisAway);
        assert!(!alarms.is_on(Alarm::RedisAway));
        alarms.raise(Alarm::RedisAway, "three".to_owned());
        assert_eq!(alarms.list().len(), 2);
        alarms.happened(Alarm::RedisAway, "four".to_owned());
        assert_eq!(alarms.list().len(), 1);
    }

    #[test]
    fn an_alarm_has_the_instants_of_its_clock() {
        let alarms = Alarms::new(Clock::new(|| 1_700_000_000_000));
        alarms.raise(Alarm::RedisAway, "it is away".to_owned());
        alarms.clear(Alarm::RedisAway);
        let raised = &alarms.list()[0];
        assert_eq!(raised.since_ms, 1_700_000_000_000);
        assert_eq!(raised.cleared_ms, Some(1_700_000_000_000));
    }

    #[test]
    fn one_that_is_on_is_not_forgotten_for_those_that_are_over() {
        let alarms = Alarms::default();
        alarms.raise(Alarm::DiskFull, "it is full".to_owned());
        for _ in 0..2 * ALARMS_KEPT {
            alarms.raise(Alarm::RedisAway, "it is away".to_owned());
            alarms.clear(Alarm::RedisAway);
        }
        assert!(alarms.is_on(Alarm::DiskFull));
        assert!(alarms.list().len() == ALARMS_KEPT);
    }
}
