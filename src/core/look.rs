//! Codes that this core does not know, and that another node may have made a moment ago: they are looked up in Redis, off
//! the core's loop, before a client is told that there is no such link.
//!
//! Who asks for codes that exist nowhere must not keep Redis busy: what was not found is remembered for half a second,
//! and no more than a bounded number of questions waits. A full table or queue only means an earlier "no such link".

use std::sync::mpsc::SyncSender;

use carom_shards::{Code, CodeHash, CodeHasher, CoreId};

use super::work::TICKS_PER_SECOND;
use crate::mail::LookUp;
use crate::stats::{CoreStats, NodeStats};

/// Codes that are remembered as unknown, each in the one place that its hash gives it.
const PLACES: usize = 8_192;

/// For how long, in ticks.
const REMEMBERED_TICKS: u32 = TICKS_PER_SECOND / 2;

/// The way to Redis for unknown codes, as one core has it.
#[derive(Debug)]
pub(super) struct Looks {
    me: CoreId,
    hasher: CodeHasher,
    queue: SyncSender<LookUp>,
    /// A part of the hash of the code that was last not found, and until when that is believed.
    unknown: Box<[(u32, u32)]>,
}

impl Looks {
    pub(super) fn new(me: CoreId, hasher: CodeHasher, queue: SyncSender<LookUp>) -> Looks {
        Looks { me, hasher, queue, unknown: vec![(0, 0); PLACES].into() }
    }

    /// Asks for a code; `false` where it is not worth asking, or cannot be asked now.
    pub(super) fn ask(&mut self, code: Code, token: u64, tick: u32, stats: &CoreStats, node: &NodeStats) -> bool {
        let (place, tag) = place_of(self.hasher.hash(&code));
        let (unknown, until) = self.unknown[place];
        if unknown == tag && tick < until {
            return false;
        }
        let asked =
            self.queue.try_send(LookUp { code, core: self.me, token, since: std::time::Instant::now() }).is_ok();
        if asked {
            stats.looked_up.add(1);
        } else {
            node.fleet.look_ups_left_out.add_shared(1);
        }
        asked
    }

    /// Remembers that a code was not found.
    pub(super) fn not_found(&mut self, code: &Code, tick: u32) {
        let (place, tag) = place_of(self.hasher.hash(code));
        self.unknown[place] = (tag, tick + REMEMBERED_TICKS);
    }
}

/// The tag is never zero.
fn place_of(hash: CodeHash) -> (usize, u32) {
    (hash.0 as usize % PLACES, (hash.0 >> 20) as u32 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_was_not_found_is_not_asked_for_again_at_once() {
        let (queue, asked) = sync_channel(2);
        let mut looks = Looks::new(CoreId(0), CodeHasher::new(1), queue);
        let (stats, node) = (CoreStats::default(), NodeStats::default());
        let code = |text: &str| Code::parse(text.as_bytes()).unwrap();
        let ask = |looks: &mut Looks, text: &str, tick: u32| looks.ask(code(text), 7, tick, &stats, &node);
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
