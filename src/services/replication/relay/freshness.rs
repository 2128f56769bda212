//! The freshness of a site: up to which instant it has the changes of the other site, by the notes of its relay. Raises
//! the alarms of sites.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{REDIS_TIMEOUT, Relay, RelayFailure};
use crate::bridge::fleet_view::since_boot;
use carom_telemetry::alarms::Alarm;

/// Interval between two looks at the notes.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time without news of the other site before the alarm. A take-over of the relay and a gap take less.
const SILENT_TIME: Duration = Duration::from_secs(15);

impl Relay {
    /// Reads the notes of the relay if they are due. Notes in the view of the fleet up to which instant this site has the
    /// changes of the other one.
    pub(super) fn read_notes(&mut self) -> Result<(), RelayFailure> {
        if self.contact.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return self.stop_if_given_up();
        }
        self.contact.looked = Some(Instant::now());
        let begun = since_boot();
        let notes = self.own.site_notes(REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        self.contact.given_up.clone_from(&notes.given_up);
        if notes.given_up.is_some() {
            return self.stop_if_given_up();
        }
        self.notice_damage(&notes.damaged);
        self.contact.may_lack = notes.may_lack;
        // Redis may lose both times before this node takes over.
        if !notes.is_damaged("read") {
            self.contact.read.hear(notes.relay, notes.passes, notes.read_ms);
        }
        self.contact.met_ms = self.contact.met_ms.max(notes.met_ms);
        let heard = self.contact.hearing.look(begun, notes.relay, notes.passes);
        // Without its counter values, codes of the other site would count as unused.
        let is_known = !notes.may_lack && notes.relay > 0 && notes.damaged_floors().is_empty();
        if let Some(at) = heard.filter(|_| is_known) {
            self.fleet.view.note_other_site(notes.floors, at);
            if let Some(at) = Instant::now().checked_sub(since_boot().saturating_sub(at)) {
                self.fleet.stats.fleet.site.hear(at);
            }
        }
        Ok(())
    }

    /// Ends the work of this node as a relay if the other site was given up. If another site has taken its place, the first
    /// relay of this site forgets what it knew of the old one.
    fn stop_if_given_up(&mut self) -> Result<(), RelayFailure> {
        let Some(given_up) = self.contact.given_up.clone() else { return Ok(()) };
        (self.is_relay, self.renewed) = (false, None);
        if given_up == self.site.other {
            let text = format!(
                "the site {given_up} was given up; remove fleet.site, fleet.other_site and fleet.other_redis from the settings of this node, and restart it"
            );
            return Err(RelayFailure::Blocked(text));
        }
        if self.own.begin_site(&given_up, REDIS_TIMEOUT).map_err(RelayFailure::Own)? {
            tracing::info!(site = self.site.other, given_up, "another site takes the place of one that was given up");
        }
        self.contact.given_up = None;
        Ok(())
    }

    /// Shows by counters and alarms whether this site gets the changes of the other one.
    pub(super) fn report_contact(&mut self) {
        let stats = &self.fleet.stats;
        let is_current = self.fleet.view.hears_other_site();
        stats.fleet.site.is_current.store(is_current, Ordering::Release);
        stats.fleet.site.may_lack.store(self.contact.may_lack, Ordering::Release);
        let other = &self.site.other;
        if self.contact.may_lack {
            let text = format!(
                "this site may lack links of the site {other}, whose Redis no longer has all of them; fill the nodes of this site from a node of that one, as the runbook describes, then run `carom fleet site-complete` on one of them"
            );
            stats.alarms.raise(Alarm::SiteLacks, text);
        } else {
            stats.alarms.clear(Alarm::SiteLacks);
        }
        if is_current || self.contact.may_lack {
            (self.contact.silent_since, self.contact.failure) = (None, None);
            stats.alarms.clear(Alarm::SiteAway);
            return;
        }
        let silent = self.contact.silent_since.get_or_insert_with(Instant::now);
        if silent.elapsed() >= SILENT_TIME {
            let reason =
                self.contact.failure.as_deref().unwrap_or("the relay, another node of this site, reports no progress");
            let text = format!(
                "this site has no contact to the site {other}: {reason}; unknown slugs return 503 until it has"
            );
            stats.alarms.raise(Alarm::SiteAway, text);
        }
    }
}
