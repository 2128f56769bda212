//! Forwards requests for snapshots of visit counts that no node of this site answers, and brings their chunks.

use super::forwards::at_other_site;
use super::{OTHER_TIME, REDIS_TIMEOUT, SiteSync};
use crate::services::replication::redis::{RedisError, VisitNotes};
use carom_model::visits::count_exchange::SnapshotRequest;

/// Number of chunks that are brought in one turn, each of 256 KiB.
const CHUNKS_TOGETHER: usize = 2;

impl SiteSync {
    /// Forwards requests of this site, and removes forwarded ones that were answered or given up.
    pub(super) fn forward_wanted(&mut self, ours: &VisitNotes, theirs: &VisitNotes) -> Result<(), RedisError> {
        let Some(site) = &self.fleet.settings.site else { return Ok(()) };
        let steps = self.forwards.steps(&site.name, &requests(ours), &requests(theirs));
        for origin in steps.taken_back {
            self.other.want_visits(origin, None, OTHER_TIME)?;
        }
        for wanted in steps.forwarded {
            let text = at_other_site(&wanted, &site.name).to_text();
            self.other.want_visits(wanted.by, Some(&text), OTHER_TIME)?;
            self.forwards.note_forwarded(wanted);
        }
        Ok(())
    }

    /// Brings some chunks of snapshots. One that is lost on the way lets the node ask again.
    pub(super) fn bring_chunks(&mut self) -> Result<(), RedisError> {
        for wanted in self.forwards.awaited() {
            let request = &wanted.request;
            let room = self.own.room_for_chunks(request, REDIS_TIMEOUT)?;
            for _ in 0..room.min(CHUNKS_TOGETHER) {
                let chunk = self.other.take_chunk(request, OTHER_TIME)?;
                let Some(chunk) = chunk else { break };
                if !self.forwards.take(&wanted, || self.own.claim_wanted(request, REDIS_TIMEOUT))? {
                    break;
                }
                self.own.put_chunk(request, &chunk, REDIS_TIMEOUT)?;
            }
        }
        Ok(())
    }
}

/// Returns the requests of one site, without malformed ones.
fn requests(notes: &VisitNotes) -> Vec<SnapshotRequest> {
    notes.wanted.iter().filter_map(|(by, text)| SnapshotRequest::parse(*by, text)).collect()
}
