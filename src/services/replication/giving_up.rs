//! The rules for giving up the other site: which of its nodes are alive, what this site may lack of it, and above which
//! counter values this site may continue.

use std::collections::BTreeMap;

use carom_shards::CodeLength;
use serde_json::Value;

use super::redis::{HeartbeatReply, SiteNotes};
use crate::bridge::{GiveUpOrder, GiveUpOutcome};
use carom_model::replication::lease::margin;

/// Time since its last heartbeat for which a node counts as alive, in milliseconds.
const ALIVE_MS: u64 = 30_000;

/// Longest time for which a node that was stopped in order wrote to its Redis after its last heartbeat, in milliseconds.
const ENDING_MS: u64 = 2_000;

/// Longest time for which a node that was killed wrote to its Redis after its last heartbeat, in milliseconds.
const WRITES_MS: u64 = 15_000;

/// The last heartbeat of a node of the other site.
struct LastBeat<'h> {
    node: &'h str,
    /// Time of the heartbeat by the clock of the other Redis, in milliseconds since 1970 UTC.
    beat_ms: u64,
    /// True if the node was stopped in order.
    is_stopped: bool,
    /// Number of changes that its Redis may not have.
    unsynced: u64,
}

fn last_beats(heard: &HeartbeatReply) -> impl Iterator<Item = LastBeat<'_>> {
    heard.beats.iter().map(|(node, beat_ms)| {
        let about = heard.about.iter().find(|(of, _)| of == node).map_or("", |(_, about)| about.as_str());
        let about: Value = serde_json::from_str(about).unwrap_or_default();
        LastBeat {
            node,
            beat_ms: *beat_ms,
            is_stopped: about["stopped"] == true,
            unsynced: about["outbox"].as_u64().unwrap_or(0),
        }
    })
}

/// Returns the nodes of the other site that are alive at `now_ms`, sorted. The time is in milliseconds since 1970 UTC by the
/// clock of its Redis.
pub(super) fn alive(heard: &HeartbeatReply, now_ms: u64) -> Vec<String> {
    let is_alive = |of: &LastBeat<'_>| !of.is_stopped && now_ms.saturating_sub(of.beat_ms) < ALIVE_MS;
    let mut nodes: Vec<String> = last_beats(heard).filter(is_alive).map(|of| of.node.to_owned()).collect();
    nodes.sort();
    nodes
}

/// Returns what this site may lack of the other one, in words for the operator. `notes` are those of the relay of this site.
/// `heard` has the last heartbeats of the other site, or the reason why its Redis cannot be read. `damaged` are the damaged
/// fields with counter values there.
pub(super) fn losses(
    (other, damaged): (&str, &[String]),
    notes: &SiteNotes,
    heard: Result<&HeartbeatReply, &str>,
) -> Vec<String> {
    let mut losses = Vec::new();
    if !damaged.is_empty() {
        let fields = damaged.join(", ");
        losses.push(format!(
            "the codes that the site {other} has leased since the relay of this site last read {fields} of {{carom}}:space there, because it is damaged; its alarm redis_refuses names the remedy"
        ));
    }
    if notes.may_lack {
        losses.push(format!(
            "links of the site {other} that are missing or outdated here, because this site raises the alarm site_lacks"
        ));
    }
    let heard = match heard {
        Ok(heard) => heard,
        Err(why) => {
            losses.push(format!(
                "links, changes and visits that had not reached this site, because the Redis of the site {other} cannot be read ({why}); its nodes may be alive"
            ));
            return losses;
        }
    };
    let last_write = |of: LastBeat<'_>| of.beat_ms + if of.is_stopped { ENDING_MS } else { WRITES_MS };
    if last_beats(heard).map(last_write).max().is_some_and(|last| notes.read_ms <= last) {
        losses.push(format!(
            "changes that the Redis of the site {other} has and the relay of this site has not read; it reads them while fleet.site.current is true"
        ));
    }
    losses.extend(last_beats(heard).filter(|of| of.unsynced > 0).map(|of| {
        format!("changes that only the node {} has: its outbox had {} of them when it ended", of.node, of.unsynced)
    }));
    losses
}

/// Decides on an order. `is_done` is true if the other site was given up before.
pub(super) fn decide(
    order: &GiveUpOrder,
    (other, is_done): (&str, bool),
    alive: &[String],
    losses: &[String],
) -> GiveUpOutcome {
    match &order.confirmed {
        Some(name) if name != other => GiveUpOutcome::OtherName,
        _ if is_done => GiveUpOutcome::Done,
        None => GiveUpOutcome::DryRun,
        Some(_) if !alive.is_empty() => GiveUpOutcome::Alive,
        Some(_) if !losses.is_empty() && !order.accepts_loss => GiveUpOutcome::Loss,
        Some(_) => GiveUpOutcome::Done,
    }
}

/// Returns a value of each length that the other site has used, above all that it may have leased. `floors` are the highest
/// values that it was known to have leased. Later leases are below the margin.
pub(super) fn above(floors: impl IntoIterator<Item = (CodeLength, u64)>) -> Vec<(CodeLength, u64)> {
    let mut highest: BTreeMap<CodeLength, u64> = BTreeMap::new();
    for (length, floor) in floors {
        let known = highest.entry(length).or_default();
        *known = (*known).max(floor);
    }
    highest.into_iter().map(|(length, floor)| (length, floor.saturating_add(margin(length)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last heartbeats of nodes: the name, the time, whether the node was stopped, and its outbox.
    fn heard(nodes: &[(&str, u64, bool, u64)]) -> HeartbeatReply {
        let about = |stopped: bool, outbox: u64| format!("{{\"stopped\": {stopped}, \"outbox\": {outbox}}}");
        HeartbeatReply {
            beats: nodes.iter().map(|(node, beat, ..)| ((*node).to_owned(), *beat)).collect(),
            about: nodes
                .iter()
                .map(|(node, _, stopped, outbox)| ((*node).to_owned(), about(*stopped, *outbox)))
                .collect(),
            ..HeartbeatReply::default()
        }
    }

    const LISBON: (&str, &[String]) = ("lisbon", &[]);

    fn read_at(read_ms: u64) -> SiteNotes {
        SiteNotes { read_ms, ..SiteNotes::default() }
    }

    #[test]
    fn silent_and_stopped_nodes_are_not_alive() {
        let heard = heard(&[("a", 100_000, false, 0), ("b", 100_000, true, 0), ("c", 100_000 - ALIVE_MS, false, 0)]);
        assert_eq!(alive(&heard, 100_000), ["a"]);
        assert_eq!(alive(&heard, 100_000 + ALIVE_MS), Vec::<String>::new());
        assert_eq!(alive(&heard, 0).len(), 2, "a clock that was set back proves nothing");
        let mute = HeartbeatReply { about: Vec::new(), ..heard };
        assert_eq!(alive(&mute, 100_000), ["a", "b"], "a node that says nothing may be alive");
    }

    #[test]
    fn what_was_read_is_not_lost() {
        let stopped = heard(&[("a", 1_000, true, 0)]);
        assert_eq!(losses(LISBON, &read_at(1_001 + ENDING_MS), Ok(&stopped)), Vec::<String>::new());
        assert_eq!(losses(LISBON, &read_at(1_000 + ENDING_MS), Ok(&stopped)).len(), 1);
        let killed = heard(&[("a", 1_000, false, 0)]);
        assert_eq!(losses(LISBON, &read_at(1_000 + WRITES_MS), Ok(&killed)).len(), 1);
        assert_eq!(losses(LISBON, &read_at(1_001 + WRITES_MS), Ok(&killed)), Vec::<String>::new());
        assert_eq!(losses(LISBON, &read_at(0), Ok(&HeartbeatReply::default())), Vec::<String>::new());
    }

    #[test]
    fn each_loss_is_named() {
        let notes = SiteNotes { may_lack: true, ..read_at(7) };
        let all = losses(LISBON, &notes, Ok(&heard(&[("a", 1_000, true, 3), ("b", 1_000, true, 0)])));
        assert_eq!(all.len(), 3, "{all:?}");
        for (loss, part) in all.iter().zip(["site_lacks", "has not read", "node a has: its outbox had 3"]) {
            assert!(loss.contains(part), "{loss}");
        }
        let damaged = ["floor:7".to_owned()];
        let unsure = losses(("lisbon", &damaged[..]), &read_at(7), Ok(&HeartbeatReply::default()));
        assert!(unsure.len() == 1, "{unsure:?}");
        assert!(unsure[0].contains("floor:7"), "{unsure:?}");
        let unknown = losses(LISBON, &read_at(7), Err("timeout"));
        assert_eq!(unknown.len(), 1, "{unknown:?}");
        assert!(unknown[0].contains("lisbon cannot be read (timeout)"), "{unknown:?}");
    }

    #[test]
    fn orders_are_confirmed_by_name() {
        let order = |name: Option<&str>, accepts_loss| GiveUpOrder { confirmed: name.map(str::to_owned), accepts_loss };
        let (node, loss) = (["n2".to_owned()], ["links".to_owned()]);
        let site = ("lisbon", false);
        assert_eq!(decide(&order(None, true), site, &[], &[]), GiveUpOutcome::DryRun);
        assert_eq!(decide(&order(Some("berlin"), true), site, &[], &[]), GiveUpOutcome::OtherName);
        assert_eq!(decide(&order(Some("lisbon"), true), site, &node, &[]), GiveUpOutcome::Alive);
        assert_eq!(decide(&order(Some("lisbon"), false), site, &[], &loss), GiveUpOutcome::Loss);
        assert_eq!(decide(&order(Some("lisbon"), true), site, &[], &loss), GiveUpOutcome::Done);
        assert_eq!(decide(&order(Some("lisbon"), false), site, &[], &[]), GiveUpOutcome::Done);
        assert_eq!(
            decide(&order(None, false), ("lisbon", true), &node, &loss),
            GiveUpOutcome::Done,
            "it was done before"
        );
        assert_eq!(decide(&order(Some("berlin"), false), ("lisbon", true), &[], &[]), GiveUpOutcome::OtherName);
    }

    #[test]
    fn leases_continue_above_both_sites() {
        let (short, long) = (CodeLength::MIN, CodeLength::DEFAULT);
        let above = above([(long, 70), (short, 3), (long, 90), (long, 80)]);
        assert_eq!(above, [(short, 3 + margin(short)), (long, 90 + margin(long))]);
    }
}
