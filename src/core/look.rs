//! Codes that this core does not have in memory, looked up off its loop while the client waits.
//!
//! Where a node keeps only the links in use, the others are read from the store. In a fleet a code that this node has never
//! heard of may be one that another node has made a moment ago: Redis is asked before a client is told that there is no
//! such link. Who asks for codes that exist nowhere must not keep Redis busy: what was not found is remembered for half a
//! second, and no more than a bounded number of questions waits.

use std::time::Instant;

use carom_shards::{Code, CodeHash, CodeHasher, CoreId, Phase};

use super::work::TICKS_PER_SECOND;
use crate::mail::{LookUp, LookUpQueue, LookedUp};
use crate::stats::{CoreStats, NodeStats};
use crate::wire::answer::Found;

/// Codes that are remembered as unknown, each in the one place that its hash gives it.
const PLACES: usize = 8_192;

/// For how long, in ticks.
const REMEMBERED_TICKS: u32 = TICKS_PER_SECOND / 2;

/// The ways to codes that are not in memory, as one core has them.
#[derive(Debug)]
pub(super) struct Looks {
    me: CoreId,
    hasher: CodeHasher,
    /// To the store; none where every link is in memory.
    store: Option<LookUpQueue>,
    /// To Redis; none where a node is alone.
    redis: Option<LookUpQueue>,
    /// A part of the hash of the code that was last not found, and until when that is believed.
    unknown: Box<[(u32, u32)]>,
}

impl Looks {
    pub(super) fn new(me: CoreId, hasher: CodeHasher, store: Option<LookUpQueue>, redis: Option<LookUpQueue>) -> Looks {
        Looks { me, hasher, store, redis, unknown: vec![(0, 0); PLACES].into() }
    }

    /// Goes on looking for a code where memory gave no answer. `false`: there is nobody to ask, or not now.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        found: &Found<'_>,
        code: Code,
        token: u64,
        tick: u32,
        stats: &CoreStats,
        node: &NodeStats,
    ) -> bool {
        match found {
            Found::Elsewhere => self.ask_store(code, token, tick, stats, node),
            Found::Missing => self.ask_redis(self.question(code, token), tick, stats, node),
            // Redis may have what the disk has lost. It cannot say that there is no such link.
            Found::Damaged => {
                let question = LookUp { in_doubt: true, ..self.question(code, token) };
                self.ask_redis(question, tick, stats, node)
            }
            Found::Link { .. } | Found::Early | Found::Gone => false,
        }
    }

    fn ask_store(&self, code: Code, token: u64, tick: u32, stats: &CoreStats, node: &NodeStats) -> bool {
        let question = LookUp { was_unknown: self.was_unknown(&code, tick), ..self.question(code, token) };
        let asked = self.store.as_ref().is_some_and(|queue| queue.try_send(question).is_ok());
        if asked {
            stats.fetches.add(1);
        } else {
            node.fetches_left_out.add_shared(1);
        }
        asked
    }

    fn question(&self, code: Code, token: u64) -> LookUp {
        LookUp { code, core: self.me, token, since: Instant::now(), in_doubt: false, was_unknown: false }
    }

    fn ask_redis(&self, question: LookUp, tick: u32, stats: &CoreStats, node: &NodeStats) -> bool {
        let Some(queue) = &self.redis else { return false };
        if self.was_unknown(&question.code, tick) {
            return false;
        }
        let asked = queue.try_send(question).is_ok();
        if asked {
            stats.looked_up.add(1);
        } else {
            node.fleet.look_ups_left_out.add_shared(1);
        }
        asked
    }

    fn was_unknown(&self, code: &Code, tick: u32) -> bool {
        let (place, tag) = place_of(self.hasher.hash(code));
        let (unknown, until) = self.unknown[place];
        unknown == tag && tick < until
    }

    /// Remembers that a code was found nowhere.
    pub(super) fn not_found(&mut self, code: &Code, tick: u32) {
        let (place, tag) = place_of(self.hasher.hash(code));
        self.unknown[place] = (tag, tick + REMEMBERED_TICKS);
    }
}

/// The tag is never zero.
fn place_of(hash: CodeHash) -> (usize, u32) {
    (hash.0 as usize % PLACES, (hash.0 >> 20) as u32 | 1)
}

/// What a look-up has found, at the instant `now_ms`.
pub(super) fn found(looked_up: &LookedUp, now_ms: u64) -> Found<'_> {
    match looked_up {
        LookedUp::Link(link) => match link.policy.phase(now_ms) {
            Phase::Live => Found::Link { policy: link.policy, target: link.target.as_bytes() },
            Phase::Early => Found::Early,
            Phase::Over => Found::Gone,
        },
        LookedUp::Missing => Found::Missing,
        LookedUp::Damaged => Found::Damaged,
        LookedUp::Unknown => Found::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_was_not_found_is_not_asked_for_again_at_once() {
        let (queue, asked) = sync_channel(2);
        let mut looks = Looks::new(CoreId(0), CodeHasher::new(1), None, Some(queue));
        let (stats, node) = (CoreStats::default(), NodeStats::default());
        let code = |text: &str| Code::parse(text.as_bytes()).unwrap();
        let ask =
            |looks: &mut Looks, text: &str, tick: u32| looks.go_on(&Found::Missing, code(text), 7, tick, &stats, &node);
        assert!(ask(&mut looks, "a", 10));
        assert_eq!(asked.recv().unwrap().code, code("a"));
        looks.not_found(&code("a"), 10);
        assert!(!ask(&mut looks, "a", 11));
        assert!(ask(&mut looks, "b", 11), "another code is");
        assert!(ask(&mut looks, "a", 10 + REMEMBERED_TICKS));
        assert!(!ask(&mut looks, "c", 11), "the queue is full");
        assert_eq!((stats.looked_up.get(), node.fleet.look_ups_left_out.get()), (3, 1));
    }
}
