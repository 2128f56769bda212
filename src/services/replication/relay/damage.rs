//! Damaged notes and positions of the relay in the Redis of its site: the log names them, and the relay replaces them by
//! values that are safe. Damage never counts as absence, which would hide what this site may lack.

use super::{REDIS_TIMEOUT, Relay, RelayFailure};
use carom_model::replication::Partition;

impl Relay {
    /// Names notes that were damaged since the last look. The relay then takes over from itself, which replaces them.
    pub(super) fn notice_damage(&mut self, damaged: &[String]) {
        let [key, _] = self.own.site_keys();
        for field in newly_damaged(&self.contact.damaged, damaged) {
            tracing::warn!(
                key,
                field,
                "a note of the relay in Redis is damaged, and the relay replaces it by a safe value; check whether another program writes to this Redis, and follow the runbook if the alarm site_lacks follows"
            );
            if self.is_relay {
                (self.is_relay, self.renewed) = (false, None);
            }
        }
        self.contact.damaged = damaged.to_vec();
    }

    /// Names streams whose positions are damaged. The relay compares their partitions as if the positions were lost.
    pub(super) fn name_damaged_positions(&self, damaged: &[Partition]) {
        let [_, key] = self.own.site_keys();
        for Partition(field) in damaged {
            tracing::warn!(
                key,
                field,
                "a position of the relay in Redis is damaged, and the relay compares all links of this partition; check whether another program writes to this Redis"
            );
        }
    }

    /// Replaces the damaged notes that this relay has found as it took over, except those that are about counter values.
    pub(super) fn mend_notes(&mut self) -> Result<(), RelayFailure> {
        if self.notes.damaged.is_empty() {
            return Ok(());
        }
        // Until an operator has looked.
        if self.notes.is_damaged("lacks") { self.note_lack() } else { self.store(&[]) }
    }

    /// Stores where the counters of this site begin, and replaces damaged notes about counter values by what the other Redis
    /// says now, which is at least as much.
    pub(super) fn begin_counters(&mut self) -> Result<(), RelayFailure> {
        let notes = &self.notes;
        self.own.begin_counters(&notes.floors, &notes.damaged, REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        if notes.damaged.is_empty() {
            return Ok(());
        }
        self.own.remove_site_notes(&notes.damaged_floors(), REDIS_TIMEOUT).map_err(RelayFailure::Own)?;
        self.store(&[])?;
        self.notes.damaged.clear();
        Ok(())
    }
}

/// Returns the damaged fields that were not damaged before.
fn newly_damaged<'d>(before: &[String], damaged: &'d [String]) -> Vec<&'d str> {
    damaged.iter().filter(|field| !before.contains(field)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_damage_is_named_once() {
        let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (one, two) = (fields(&["read"]), fields(&["read", "start:7"]));
        assert_eq!(newly_damaged(&[], &one), ["read"]);
        assert_eq!(newly_damaged(&one, &two), ["start:7"]);
        assert_eq!(newly_damaged(&two, &two), Vec::<&str>::new());
        assert_eq!(newly_damaged(&[], &two), ["read", "start:7"], "they were replaced, and are damaged again");
    }
}
