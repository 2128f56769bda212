//! The consequence of a gap in which states of the other site may have expired, as in `relay/gaps.rs` of the program.

use carom_model::replication::follow::StreamPosition;
use carom_model::replication::sites::{READ_LONG_AGO_MS, may_have_missed, missing_since, needs_copies};

use super::{Guard, Site, World, slugs_of};

/// The time at which states begin to expire.
const EXPIRING_MS: u64 = 1_000;

impl World {
    /// Checks the first contact of a site. Its nodes are no copies.
    pub(super) fn meet_first(&mut self, site: usize) {
        let (now, retention_ms) = (self.now, self.retention_ms);
        let Site { relay, met_ms, has_values, .. } = &mut self.sites[site];
        if relay.read_ms > 0 || *met_ms > 0 {
            return;
        }
        let is_late = needs_copies(EXPIRING_MS, now, retention_ms, u64::from(*has_values));
        *has_values = true;
        if is_late {
            self.note_lack(site);
        } else if self.guard != Some(Guard::Contact) {
            *met_ms = now;
        }
    }

    /// True if states of the other site may have expired before `now_ms` and since its relay last had nothing to read.
    fn may_have_missed(&self, site: usize, now_ms: u64) -> bool {
        let Site { relay, met_ms, .. } = &self.sites[site];
        may_have_missed(missing_since(relay.read_ms, *met_ms), now_ms, self.retention_ms)
    }

    /// The position of a relay in a stream is lost: all states are to be compared.
    pub(super) fn note_lost(&mut self, site: usize, part: usize) {
        let now = self.now;
        let end = self.sites[1 - site].redis.data.end(part, now);
        let relay = &mut self.sites[site].relay;
        relay.lost[part] = Some((end, slugs_of(part).collect()));
        let clock_ms = relay.clock_ms;
        if self.may_have_missed(site, clock_ms) && self.guard != Some(Guard::Lack) {
            self.note_lack(site);
        }
    }

    /// All states of a stream were compared after its position was lost.
    pub(super) fn end_comparison(&mut self, site: usize, part: usize, end: StreamPosition) {
        let relay = &mut self.sites[site].relay;
        relay.to_store = Some((part, end));
        // An operator may have completed a site that was marked before.
        let is_marked = relay.read_ms == READ_LONG_AGO_MS;
        let is_checked = !is_marked && !matches!(self.guard, Some(Guard::Lack | Guard::Compared));
        if is_checked && self.may_have_missed(site, self.now) {
            self.note_lack(site);
        }
    }

    /// A relay notes that its site may lack states, unless Redis has lost its notes.
    fn note_lack(&mut self, site: usize) {
        let Site { redis, relay, .. } = &mut self.sites[site];
        if redis.relay == relay.id {
            (redis.may_lack, relay.read_ms, redis.read_ms) = (true, READ_LONG_AGO_MS, READ_LONG_AGO_MS);
        }
    }
}
