//! A hierarchical timing wheel with ticks of a millisecond (Varghese and Lauck).
//!
//! Each timer has an id, and at most one time. Arming, disarming and firing take constant time; a timer moves down at
//! most three times. Times are milliseconds that wrap.

/// Bits of a level's index.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 4;
/// Farthest time from now; a later one fires then, and its owner arms it again.
const SPAN_MAX: u32 = (1 << (BITS * LEVELS as u32)) - SLOTS as u32;
const NONE: u32 = u32::MAX;
/// Slot of a timer that is not armed.
const IDLE: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct TimerNode {
    next: u32,
    previous: u32,
    at_ms: u32,
    /// Level and index, or [`IDLE`].
    slot: u16,
}

/// The timers of a stack.
pub(crate) struct Wheel {
    now_ms: u32,
    heads: [u32; SLOTS * LEVELS],
    occupied: [u64; LEVELS],
    nodes: Vec<TimerNode>,
}

impl Wheel {
    /// Returns a wheel with room for `timers_max` timers.
    pub(crate) fn new(now_ms: u32, timers_max: usize) -> Wheel {
        let nodes = Vec::with_capacity(timers_max);
        Wheel { now_ms, heads: [NONE; SLOTS * LEVELS], occupied: [0; LEVELS], nodes }
    }

    /// Returns the time for which a timer is armed.
    pub(crate) fn armed(&self, id: u32) -> Option<u32> {
        self.nodes.get(id as usize).filter(|node| node.slot != IDLE).map(|node| node.at_ms)
    }

    /// Arms a timer, again if need be. A time in the past fires at the next call of [`Wheel::pop`].
    pub(crate) fn arm(&mut self, id: u32, at_ms: u32) {
        let len = self.nodes.len().max(id as usize + 1);
        self.nodes.resize(len, TimerNode { next: NONE, previous: NONE, at_ms: 0, slot: IDLE });
        self.disarm(id);
        let ahead = at_ms.wrapping_sub(self.now_ms);
        let ahead = if ahead as i32 <= 0 { 0 } else { ahead.min(SPAN_MAX) };
        self.nodes[id as usize].at_ms = self.now_ms.wrapping_add(ahead);
        self.link(id);
    }

    pub(crate) fn disarm(&mut self, id: u32) {
        let Some(node) = self.nodes.get(id as usize).copied().filter(|node| node.slot != IDLE) else { return };
        let slot = usize::from(node.slot);
        match node.previous {
            NONE => self.heads[slot] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.heads[slot] == NONE {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
        self.nodes[id as usize].slot = IDLE;
    }

    fn link(&mut self, id: u32) {
        let at_ms = self.nodes[id as usize].at_ms;
        let ahead = at_ms.wrapping_sub(self.now_ms);
        debug_assert!(ahead <= SPAN_MAX, "{ahead} ms");
        let level = (31 - (ahead | 1).leading_zeros()) / BITS;
        let index = (at_ms >> (BITS * level)) as usize % SLOTS;
        let slot = level as usize * SLOTS + index;
        let next = self.heads[slot];
        if next != NONE {
            self.nodes[next as usize].previous = id;
        }
        self.nodes[id as usize] = TimerNode { next, previous: NONE, at_ms, slot: slot as u16 };
        self.heads[slot] = id;
        self.occupied[level as usize] |= 1 << index;
    }

    /// Returns the next timer that is due by `now_ms`, and disarms it.
    pub(crate) fn pop(&mut self, now_ms: u32) -> Option<u32> {
        loop {
            let id = self.heads[self.now_ms as usize % SLOTS];
            if id != NONE {
                self.disarm(id);
                return Some(id);
            }
            let left = now_ms.wrapping_sub(self.now_ms);
            if left as i32 <= 0 {
                return None;
            }
            self.advance(left);
        }
    }

    /// Moves on to the next tick with a timer, the next turn of the lowest level, or `left` ticks, whichever is first.
    fn advance(&mut self, left: u32) {
        let index = self.now_ms % SLOTS as u32;
        let later = self.occupied[0] & (u64::MAX << index) & !(1 << index);
        let to_timer = if later == 0 { u32::MAX } else { later.trailing_zeros() - index };
        self.now_ms = self.now_ms.wrapping_add(left.min(to_timer).min(SLOTS as u32 - index));
        let mut level = 1;
        while level < LEVELS && self.now_ms.is_multiple_of(1 << (BITS * level as u32)) {
            let slot = level * SLOTS + (self.now_ms >> (BITS * level as u32)) as usize % SLOTS;
            self.cascade(slot);
            level += 1;
        }
    }

    fn cascade(&mut self, slot: usize) {
        let mut id = self.heads[slot];
        self.heads[slot] = NONE;
        self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        while id != NONE {
            let next = self.nodes[id as usize].next;
            self.link(id);
            id = next;
        }
    }

    /// Returns a time at or before the next timer.
    pub(crate) fn next_at(&self) -> Option<u32> {
        let times = (0..LEVELS).filter(|level| self.occupied[*level] != 0).map(|level| {
            let shift = BITS * level as u32;
            let now = self.now_ms >> shift;
            // The current slot of a higher level has been emptied: its timers are a whole turn away.
            let first = u32::from(level > 0);
            let turned = self.occupied[level].rotate_right((now + first) % SLOTS as u32);
            (now.wrapping_add(first + turned.trailing_zeros()) << shift).wrapping_sub(self.now_ms)
        });
        times.min().map(|ahead| self.now_ms.wrapping_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(wheel: &mut Wheel, now_ms: u32) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop(now_ms)).collect()
    }

    #[test]
    fn timers_fire_at_their_time() {
        for start in [0, 77, u32::MAX - 1000] {
            let mut wheel = Wheel::new(start, 9);
            let spans = [0, 1, 63, 64, 65, 4095, 4096, 4097, 262_143, 262_144, 1_000_000];
            for (id, span) in spans.into_iter().enumerate() {
                wheel.arm(id as u32, start.wrapping_add(span));
            }
            for (id, span) in spans.into_iter().enumerate() {
                let at = start.wrapping_add(span);
                if span > 0 {
                    assert_eq!(fired(&mut wheel, at.wrapping_sub(1)), [], "{span}");
                }
                let next = wheel.next_at().unwrap();
                assert!(at.wrapping_sub(next) as i32 >= 0, "{span}");
                assert_eq!(fired(&mut wheel, at), [id as u32], "{span}");
            }
            assert_eq!(wheel.next_at(), None);
        }
    }

    #[test]
    fn timers_agree_with_a_list() {
        let mut wheel = Wheel::new(0, 9);
        let mut list = [None; 50];
        let (mut now, mut random) = (0_u32, 9_u64);
        for _ in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = (random >> 33) as usize % list.len();
            let span = (random >> 40) as u32 % [3, 70, 5000, 300_000][(random >> 20) as usize % 4];
            match random >> 61 {
                0..4 => {
                    wheel.arm(id as u32, now.wrapping_add(span));
                    list[id] = Some(now.wrapping_add(span));
                }
                4 => {
                    wheel.disarm(id as u32);
                    list[id] = None;
                }
                _ => {
                    now = now.wrapping_add(span);
                    let mut due: Vec<u32> =
                        (0..50).filter(|id| list[*id as usize].is_some_and(|at| at <= now)).collect();
                    let mut fired = fired(&mut wheel, now);
                    fired.sort();
                    due.sort();
                    assert_eq!(fired, due);
                    due.iter().for_each(|id| list[*id as usize] = None);
                }
            }
            let next = list.iter().flatten().min();
            assert_eq!(next.is_some(), wheel.next_at().is_some());
            assert!(next.is_none_or(|next| wheel.next_at().unwrap() <= *next));
            assert_eq!(wheel.armed(id as u32), list[id]);
        }
    }

    #[test]
    fn far_timers_fire_early_enough() {
        let mut wheel = Wheel::new(5, 9);
        wheel.arm(0, 5 + 100_000_000);
        assert_eq!(fired(&mut wheel, 5 + SPAN_MAX), [0]);
    }
}
