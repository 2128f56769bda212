//! The batch of a commit: everything that the store writes at once for the decisions of the planner.

use super::earlier_visits::EarlierSums;
use super::planner::Writes;
use carom_model::replication::{State, formats};
use carom_store::links::{Batch, Ended, Links, StoreError};
use carom_telemetry::clock::unix_nanos;
use carom_telemetry::stats::NodeStats;

/// Builds the batches of commits. Keeps its buffers from one to the next.
#[derive(Default)]
pub(super) struct BatchBuilder {
    record: Vec<u8>,
    earlier: EarlierSums,
}

impl BatchBuilder {
    /// Returns the batch of a commit that ends the visits of the links in `ended`.
    ///
    /// # Errors
    /// [`StoreError`] if the visits of a link from before its import cannot be read.
    pub(super) fn build(
        &mut self,
        links: &Links,
        stats: &NodeStats,
        writes: &Writes,
        ended: &[Ended],
    ) -> Result<Batch, StoreError> {
        let mut batch = links.batch();
        self.add_states(&mut batch, writes);
        add_index_entries(&mut batch, writes);
        let gone = writes.limited.iter().filter(|(_, is_over)| *is_over);
        gone.for_each(|(code, _)| batch.remove_allowance(code));
        ended.iter().for_each(|ended| batch.end_visits(ended));
        self.earlier.put(links, &mut batch, &writes.earlier)?;
        // A link stays changeable even if its history cannot be read.
        if let Err(error) = links.add_edits(&mut batch, unix_nanos(), &writes.edits) {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, "cannot add to the history of a link: its earlier entries cannot be read");
        }
        add_fleet_state(&mut batch, writes);
        writes.events.iter().for_each(|event| batch.add_event(event.encode()));
        Ok(batch)
    }

    fn add_states(&mut self, batch: &mut Batch, writes: &Writes) {
        debug_assert!(
            writes.states.is_sorted_by(|(one, _), (next, _)| one < next),
            "a batch has one write for each code, in their order"
        );
        for (code, state) in &writes.states {
            let Some(state) = state else {
                batch.remove(code);
                continue;
            };
            self.record.clear();
            state.to_record(code, &mut self.record);
            debug_assert_eq!(
                State::from_value(*code, &self.record).as_ref(),
                Some(state),
                "a restart would read another state than this commit acknowledges"
            );
            batch.put(code, &self.record);
        }
    }
}

/// Adds the entries of destinations, idempotency keys and ends.
fn add_index_entries(batch: &mut Batch, writes: &Writes) {
    for (entry, used_ms) in &writes.urls {
        match used_ms {
            Some(used_ms) => batch.set_url(entry, *used_ms),
            None => batch.remove_url(entry),
        }
    }
    writes.created_with.iter().for_each(|(key, created_ms, code)| batch.note_idempotency(key, *created_ms, code));
    for (of, due, is_there) in &writes.ends {
        if *is_there { batch.set_due(*of, due) } else { batch.remove_due(*of, due) }
    }
}

/// Adds the outbox, the positions in the streams of changes, and the codes and partitions that await an upgrade.
fn add_fleet_state(batch: &mut Batch, writes: &Writes) {
    writes.outbox.removed.iter().for_each(|&seq| batch.remove_from_outbox(seq));
    writes.outbox.added.iter().for_each(|delivery| batch.add_to_outbox(delivery));
    writes.positions.iter().for_each(|(partition, position)| batch.set_position(*partition, position));
    writes.compare.iter().for_each(|&(partition, needed)| batch.set_compare(partition, needed));
    for (code, text) in &writes.unread {
        match text {
            Some(text) => batch.mark_unread(code, text),
            None => batch.clear_unread(code),
        }
    }
    writes.compare_later.iter().for_each(|&partition| batch.compare_after(partition, formats::newest()));
}
