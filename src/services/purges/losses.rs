//! The signs that Redis may be back with older data, and so with purged links.

use std::time::Instant;

use crate::services::replication::redis::DataIdentity;

/// Signs that Redis may be back with older data, and so with purged links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LossSigns {
    /// The number of positions in the streams that this node has lost.
    pub(super) gaps: u64,
    /// The time of the last disturbance that other threads have noticed, in milliseconds since boot.
    pub(super) disturbed_ms: u64,
    /// The time of the last disturbance of the connection of this thread.
    pub(super) own: Option<Instant>,
}

/// The signs that this node has seen, and those after which it has carried out ended purges in Redis again.
#[derive(Debug, Default)]
pub(super) struct RedisLosses {
    /// The signs at the last look. A comparison that they cause may not be counted yet.
    seen: LossSigns,
    /// The signs after which ended purges were carried out again.
    pub(super) purged: LossSigns,
    /// The identity of the data in which ended purges were carried out; `None` while unknown.
    pub(super) data: Option<DataIdentity>,
    /// True if this node has asked for the identity of the data since its start.
    was_asked: bool,
}

impl RedisLosses {
    /// Takes the present signs, and the number of partitions that are still compared. Returns true if ended purges may have
    /// to be carried out again, and Redis has all deletions by now.
    pub(super) fn is_due(&mut self, signs: LossSigns, comparing: u64) -> bool {
        let is_new = std::mem::replace(&mut self.seen, signs) != signs;
        !is_new && signs != self.purged && comparing == 0
    }

    /// True if Redis has the data from before in spite of these signs, so that ended purges need not be carried out again.
    pub(super) fn is_intact(&self, signs: LossSigns, present: Option<&DataIdentity>) -> bool {
        signs.gaps == self.purged.gaps && present.is_some() && present == self.data.as_ref()
    }

    /// True if this node should ask for the identity of the data, which it does once, before any disturbance.
    pub(super) fn is_first_look(&mut self, signs: LossSigns) -> bool {
        !std::mem::replace(&mut self.was_asked, true) && signs.disturbed_ms == 0 && signs.own.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_purges_run_again_once_redis_has_all_deletions() {
        let signs = |gaps, disturbed_ms| LossSigns { gaps, disturbed_ms, own: None };
        let mut losses = RedisLosses::default();
        assert!(!losses.is_due(signs(0, 0), 0), "nothing was lost");
        assert!(!losses.is_due(signs(2, 0), 0), "the comparison is about to begin");
        assert!(!losses.is_due(signs(2, 0), 1));
        assert!(losses.is_due(signs(2, 0), 0));
        assert!(losses.is_due(signs(2, 0), 0), "the last attempt failed");
        losses.purged = signs(2, 0);
        assert!(!losses.is_due(signs(2, 0), 0));
        assert!(!losses.is_due(signs(2, 9), 0));
        assert!(losses.is_due(signs(2, 9), 0), "a new master may lack the removal");
        let own = LossSigns { own: Some(Instant::now()), ..signs(2, 9) };
        losses.purged = signs(2, 9);
        assert!(!losses.is_due(own, 0));
        assert!(losses.is_due(own, 0), "this thread may have had a connection to a master that was replaced");
    }

    #[test]
    fn lost_connections_alone_purge_nothing_again() {
        let [known, other] = ["a", "b"].map(|of| Some(DataIdentity::named(of)));
        let calm = LossSigns::default();
        let mut losses = RedisLosses::default();
        assert!(losses.is_first_look(calm), "the identity from before the first loss counts");
        assert!(!losses.is_first_look(calm), "a server that does not tell it is asked once");
        losses.data.clone_from(&known);
        let disturbed = LossSigns { disturbed_ms: 9, ..calm };
        assert!(losses.is_intact(disturbed, known.as_ref()));
        assert!(!losses.is_intact(disturbed, other.as_ref()), "another server answers, or it was started again");
        assert!(!losses.is_intact(disturbed, None), "the server does not tell it");
        assert!(!losses.is_intact(LossSigns { gaps: 1, ..disturbed }, known.as_ref()), "it was emptied");
        let unknown = RedisLosses::default();
        assert!(!unknown.is_intact(disturbed, known.as_ref()));
        assert!(!unknown.is_intact(disturbed, None));
        let mut late = RedisLosses::default();
        assert!(!late.is_first_look(disturbed), "the data may be other data already");
    }
}
