//! Adds visits to the event log.

use std::sync::atomic::Ordering;

use super::VisitLogState;
use super::segment::each_record;
use carom_limits::EVENT_VISITS_PER_COMMIT;
use carom_model::events::encode_visit;

impl VisitLogState {
    /// Adds visits to the event log, as the visit log stores them. While the disk is full, they are dropped and
    /// counted.
    pub(super) fn add_events(&self, chunk: &[u8]) {
        let mut events = Vec::new();
        each_record(chunk, |record, _| events.push(encode_visit(record)));
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(EVENT_VISITS_PER_COMMIT));
            let count = events.len() as u64;
            let may_write = !self.stats.writes_refused.load(Ordering::Acquire);
            let added = if may_write {
                self.links.append_events(events).err().map(|error| error.to_string())
            } else {
                Some("the disk is full, or the store has failed".to_owned())
            };
            if let Some(why) = added {
                self.stats.events.dropped.add(count);
                tracing::warn!(%why, count, "visits could not be added to the event log");
            }
            events = rest;
        }
    }
}
