//! Forwards requests for snapshots of visit counts that no node of this site answers, and brings their chunks.

use super::forwards::Wanted;
use super::{ANSWER_TIME, Courier, OTHER_TIME};
use crate::services::replication::redis::{RedisError, VisitNotes};
use carom_model::visits::exchange::SnapshotRequest;

/// Number of chunks that are brought in one turn, each of 256 KiB.
const CHUNKS_TOGETHER: usize = 2;

impl Courier {
    /// Forwards requests of this site, and takes those back that were answered or given up.
    pub(super) fn forward_wanted(&mut self, ours: &VisitNotes, theirs: &VisitNotes) -> Result<(), RedisError> {
        let ended: Vec<Wanted> =
            self.forwards.open.keys().filter(|wanted| !ours.wanted.contains(wanted)).cloned().collect();
        for wanted in ended {
            if theirs.wanted.contains(&wanted) {
                self.other.want_visits(wanted.0, None, OTHER_TIME)?;
            }
            self.forwards.open.remove(&wanted);
        }
        for wanted in self.forwards.due(&ours.wanted, &theirs.wanted) {
            self.other.want_visits(wanted.0, Some(&wanted.1), OTHER_TIME)?;
            self.forwards.open.insert(wanted, false);
        }
        Ok(())
    }

    /// Brings some chunks of snapshots. One that is lost on the way lets the node ask again.
    pub(super) fn bring_chunks(&mut self) -> Result<(), RedisError> {
        let open: Vec<Wanted> = self.forwards.open.keys().cloned().collect();
        for wanted in open {
            let Some(SnapshotRequest { request, .. }) = SnapshotRequest::parse(wanted.0, &wanted.1) else { continue };
            let room = self.own.room_for_chunks(&request, ANSWER_TIME)?;
            for _ in 0..room.min(CHUNKS_TOGETHER) {
                let chunk = self.other.take_chunk(&request, OTHER_TIME)?;
                let Some(chunk) = chunk else { break };
                let is_first = self.forwards.open.insert(wanted.clone(), true) != Some(true);
                // A node of this site may have begun to answer meanwhile.
                if is_first && !self.own.claim_wanted(&request, ANSWER_TIME)? {
                    self.forwards.open.remove(&wanted);
                    break;
                }
                self.own.put_chunk(&request, &chunk, ANSWER_TIME)?;
            }
        }
        Ok(())
    }
}
