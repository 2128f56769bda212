//! Reports of conflicts: links that lost their codes to other links, and changes that lost to other changes of one link.

use std::collections::VecDeque;

use carom_shards::Code;

use super::planner::{CommitPlanner, Conflict};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Number of dropped links that a process remembers.
const DROPPED_MAX: usize = 1_024;

/// The reports of a process.
#[derive(Debug, Default)]
pub(super) struct ConflictReports {
    /// The codes and claims of links that were reported as dropped, the last one at the end. A link from before the fleet has
    /// no claim, and is left out.
    dropped: VecDeque<(Code, u64)>,
}

impl ConflictReports {
    /// Logs the conflicts of a commit, and raises an alarm. Also reports that a dropped link is back: a node that had not dropped
    /// it may have given it a later revision. A link that is back within the commit was not dropped.
    pub(super) fn report(&mut self, stats: &NodeStats, plan: &CommitPlanner<'_>) {
        self.dropped.retain(|(code, claim)| {
            let is_back = plan.leaves_link(code, *claim);
            if is_back {
                tracing::warn!(%code, "a link that was reported as dropped is back");
                let text = format!("the link of {code} was reported as dropped, but is back; see the log for others");
                stats.alarms.raise(Alarm::Conflict, text);
            }
            !is_back
        });
        for conflict in plan.conflicts() {
            let Conflict { code, lost, is_one_link, .. } = conflict;
            let has_claim = lost.claim != 0;
            if *is_one_link || !has_claim || !plan.leaves_link(code, lost.claim) {
                tell(stats, conflict);
            }
            let dropped = (*code, lost.claim);
            if !is_one_link && has_claim && !plan.leaves_link(code, lost.claim) && !self.dropped.contains(&dropped) {
                self.dropped.push_back(dropped);
            }
        }
        let excess = self.dropped.len().saturating_sub(DROPPED_MAX);
        self.dropped.drain(..excess);
    }
}

fn tell(stats: &NodeStats, conflict: &Conflict) {
    let Conflict { code, lost, kept, is_one_link } = conflict;
    stats.fleet.conflicts.add(1);
    let text = if *is_one_link {
        tracing::error!(
            %code,
            edit = lost.edit,
            kept_edit = kept.edit,
            "two nodes changed the link of this code; the change in Redis is kept, the other one is dropped"
        );
        format!("a change of the link of {code} was dropped, because another one is in Redis; see the log for others")
    } else {
        tracing::error!(
            %code,
            revision = lost.rev,
            kept_revision = kept.rev,
            "two nodes created different links with this code; the one in Redis is kept, the other is dropped"
        );
        format!(
            "the link of {code} was dropped, because another node has a link with this code; see the log for others"
        )
    };
    stats.alarms.raise(Alarm::Conflict, text);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::planner::CodeState;
    use super::*;
    use crate::bridge::{StreamBatch, StreamChange, WriterOrder};
    use carom_model::link::{Link, Origin, Version};
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::outbox::Outbox;
    use carom_model::replication::state::ReceivedState;
    use carom_model::replication::{EntryId, Partition, State};
    use carom_model::testing::link;

    fn state(rev: u32, claim: u64) -> State {
        let version = Version { rev, claim, edit: 0 };
        State::Link(Arc::new(Link { version, ..link("abc", Origin::Custom) }))
    }

    /// Reports the conflicts of a commit that follows entries of a stream: each has a state, and the version of the link that
    /// lost its code to it.
    fn follow(
        reports: &mut ConflictReports,
        stats: &NodeStats,
        stored: &State,
        entries: Vec<(State, Option<Version>)>,
    ) {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, 1);
        let code = link("abc", Origin::Custom).code;
        let (partition, to) = (Partition::of(&code), StreamPosition { id: EntryId { ms: 1, seq: 0 }, check: 1 });
        let change = |(state, displaced)| StreamChange { code, state: ReceivedState::Known(state), displaced };
        let entries = entries.into_iter().map(|entry| (to, Some(change(entry)))).collect();
        let batch = StreamBatch { partition, entries, is_newer: false, to };
        plan.add(WriterOrder::Followed(batch), |_| CodeState::Held(stored.clone()));
        reports.report(stats, &plan);
    }

    fn alarm(stats: &NodeStats) -> String {
        stats.alarms.list().pop().map_or_else(String::new, |raised| raised.text)
    }

    #[test]
    fn dropped_change_is_no_dropped_link() {
        let (mut reports, stats) = (ConflictReports::default(), NodeStats::default());
        let changed = |target: &str| {
            let State::Link(link) = state(1, 7) else { panic!("it is a link") };
            let version = Version { edit: 1, ..link.version };
            State::Link(Arc::new(Link { version, target: target.to_owned(), ..Link::clone(&link) }))
        };
        let theirs = changed("https://example.org/theirs");
        follow(&mut reports, &stats, &changed("https://example.org/ours"), vec![(theirs, None)]);
        assert_eq!(stats.fleet.conflicts.get(), 1);
        assert!(alarm(&stats).starts_with("a change of the link of abc was dropped"), "{}", alarm(&stats));
        assert_eq!(reports.dropped, []);
    }

    #[test]
    fn link_that_is_back_is_reported() {
        let (mut reports, stats) = (ConflictReports::default(), NodeStats::default());
        let mine = state(1, 7);
        // A client of another node has deleted a link of another claim, and that node keeps this one.
        let gone = state(1, 8).deleted(5);
        follow(&mut reports, &stats, &mine, vec![(gone.clone(), Some(mine.version()))]);
        assert_eq!(stats.fleet.conflicts.get(), 1);
        assert!(alarm(&stats).starts_with("the link of abc was dropped"), "{}", alarm(&stats));
        follow(&mut reports, &stats, &gone, vec![(state(3, 7), None)]);
        assert!(alarm(&stats).ends_with("is back; see the log for others"), "{}", alarm(&stats));
        assert_eq!(reports.dropped, []);
        // Both entries in one commit.
        let stats = NodeStats::default();
        follow(&mut reports, &stats, &mine, vec![(gone, Some(mine.version())), (state(3, 7), None)]);
        assert_eq!((stats.fleet.conflicts.get(), alarm(&stats)), (0, String::new()));
    }

    #[test]
    fn link_that_is_dropped_twice_is_remembered_once() {
        let (mut reports, stats) = (ConflictReports::default(), NodeStats::default());
        for _ in 0..2 {
            follow(&mut reports, &stats, &state(1, 7), vec![(state(1, 8), None)]);
        }
        assert_eq!(reports.dropped.iter().map(|(_, claim)| *claim).collect::<Vec<u64>>(), [7]);
        assert_eq!(stats.fleet.conflicts.get(), 2);
    }

    #[test]
    fn process_remembers_few_dropped_links() {
        let (mut reports, stats) = (ConflictReports::default(), NodeStats::default());
        for claim in 1..=DROPPED_MAX as u64 + 2 {
            follow(&mut reports, &stats, &state(1, claim), vec![(state(1, claim + 1), None)]);
        }
        assert_eq!(reports.dropped.len(), DROPPED_MAX);
        assert_eq!(reports.dropped.front().map(|(_, claim)| *claim), Some(3));
        assert_eq!(stats.fleet.conflicts.get(), DROPPED_MAX as u64 + 2);
    }
}
