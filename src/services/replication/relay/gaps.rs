//! Gaps in what the relay has read of the other site. If states may have expired there before the relay read them, the
//! relay marks this site. The mark stays until an operator has brought the states.

use super::{OTHER_TIME, REDIS_TIMEOUT, Relay, RelayFailure};
use crate::services::replication::redis::{OtherSpace, SiteNotes};
use carom_model::replication::Partition;
use carom_model::replication::sites::{READ_LONG_AGO_MS, may_have_missed, missing_since, needs_copies};

impl Relay {
    /// Checks the first contact of this site to an older one. Unless the nodes of this site were filled with copies, notes that
    /// they may lack states. Otherwise notes the time: a gap before the end of the first pass begins there.
    pub(super) fn check_first_contact(&mut self, space: &OtherSpace) -> Result<(), RelayFailure> {
        let is_met = self.notes.read_ms > 0 || self.notes.met_ms > 0;
        // Positions of some partitions are stored while others are still compared for the first time.
        if is_met || Partition::all().all(|of| self.positions.contains_key(&of)) {
            return Ok(());
        }
        let ours = self.own.other_space(REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        let seen = ours.floors.iter().map(|(_, floor)| *floor).max().unwrap_or(0);
        if needs_copies(space.expiring_ms, space.now_ms, self.retention_ms(), seen) {
            return self.note_lack();
        }
        self.store_changed(|notes| notes.met_ms = space.now_ms)?;
        self.contact.met_ms = space.now_ms;
        Ok(())
    }

    /// Checks the length of a gap that was found. If states may have expired in it, notes that this site may lack them.
    pub(super) fn check_gap(&mut self) -> Result<(), RelayFailure> {
        let now_ms = self.space.as_ref().map_or(0, |(_, space)| space.now_ms);
        if self.may_have_missed(now_ms) { self.note_lack() } else { Ok(()) }
    }

    /// Checks the length of a gap again at the end of a comparison. The process may have been suspended before it had read all
    /// states, for so long that some expired.
    pub(super) fn check_comparison(&mut self) -> Result<(), RelayFailure> {
        // An operator may have completed the site since it was marked.
        let is_marked = self.notes.read_ms == READ_LONG_AGO_MS;
        if is_marked || self.retention_ms() == 0 {
            return Ok(());
        }
        // The time that the relay has may be from before the suspension.
        let space = self.other.other_space(OTHER_TIME).map_err(RelayFailure::Other)?;
        if self.may_have_missed(space.now_ms) { self.note_lack() } else { Ok(()) }
    }

    /// Notes that this site may lack states, until an operator has brought them.
    pub(super) fn note_lack(&mut self) -> Result<(), RelayFailure> {
        self.contact.may_lack = true;
        let stored = self.store_changed(|notes| (notes.read_ms, notes.may_lack) = (READ_LONG_AGO_MS, true));
        self.notes.may_lack = false;
        stored
    }

    /// Stores changed notes. If that fails, the relay keeps the notes from before, so that it decides again.
    fn store_changed(&mut self, change: impl FnOnce(&mut SiteNotes)) -> Result<(), RelayFailure> {
        let before = self.notes.clone();
        change(&mut self.notes);
        self.store(&[]).inspect_err(|_| self.notes = before)
    }

    fn may_have_missed(&self, now_ms: u64) -> bool {
        let since_ms = missing_since(self.notes.read_ms, self.notes.met_ms);
        may_have_missed(since_ms, now_ms, self.retention_ms())
    }

    fn retention_ms(&self) -> u64 {
        self.fleet.settings.retention.map_or(0, |retention| retention.as_millis() as u64)
    }
}
