//! Faults. Each schedule draws some kinds of them; with all of them in every schedule, few would ever have their whole
//! effect.

use carom_model::replication::lease::CodeCounter;

use crate::codes::PARTS;
use crate::node::Cut;
use crate::redis::MARGIN;
use crate::rng::Rng;
use crate::trace::note;
use crate::world::World;

/// The faults of a schedule.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Faults {
    /// Number of commands in a thousand that go astray.
    pub(crate) command: usize,
    /// True if the library sends commands again.
    pub(crate) resend: bool,
    /// True if processes end.
    crash: bool,
    /// True if power is lost.
    power: bool,
    /// True if replicas take over.
    failover: bool,
    /// True if servers come back empty.
    empty: bool,
    /// True if servers come back with an old dump.
    dump: bool,
    /// True if nodes are cut off, and Redis is away.
    cut: bool,
    /// True if clocks jump.
    clocks: bool,
    /// True if somebody sets the counter back.
    hand: bool,
}

impl Faults {
    /// Draws the faults of a schedule.
    pub(crate) fn draw(rng: &mut Rng) -> Faults {
        let commands = [0, 60, 250][rng.below(3)];
        let mut any = || rng.permille(400);
        Faults {
            command: commands,
            resend: any(),
            crash: any(),
            power: any(),
            failover: any(),
            empty: any(),
            dump: any(),
            cut: any(),
            clocks: any(),
            hand: any(),
        }
    }
}

impl World {
    /// Something goes wrong, or is well again.
    pub(crate) fn fault(&mut self, node: usize) -> Result<bool, String> {
        for _ in 0..4 {
            if self.try_fault(node)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_fault(&mut self, node: usize) -> Result<bool, String> {
        let faults = self.faults;
        match self.rng.below(16) {
            0 if faults.crash => self.crash(node, false).map(|()| true),
            1 if faults.power => self.crash(node, true).map(|()| true),
            2 if faults.crash || faults.power => {
                let power = faults.power && (!faults.crash || self.rng.permille(500));
                let cut = if self.rng.permille(500) { Cut::Written } else { Cut::Synced };
                let committed = self.commit(node, cut)?;
                if committed {
                    self.crash(node, power)?;
                }
                Ok(committed)
            }
            3 if faults.failover => {
                let part = self.rng.below(PARTS + 1);
                Ok(self.fail_over(part))
            }
            // The worst moment: right behind an answer.
            4 | 13 if faults.failover => Ok(self.fail_over(self.redis.changed)),
            5 if faults.empty => Ok(self.restart(true)),
            6 if faults.dump => Ok(self.restart(false)),
            7 if faults.dump => {
                let part = self.rng.below(PARTS + 1);
                if part < PARTS {
                    self.redis.save(part);
                } else {
                    self.redis.save_counter();
                }
                note!(self, "dump of {part}");
                Ok(true)
            }
            8..11 if faults.cut => {
                let (redis, back) = (self.rng.permille(300), self.rng.permille(600));
                if redis {
                    self.redis.up = back;
                } else {
                    self.nodes[node].cut = !back;
                }
                note!(self, "node {node} (or all: {redis}) reaches Redis: {back}");
                Ok(true)
            }
            11 if faults.clocks => {
                // Either by a little, or so far back that it stands still.
                let by = if self.rng.permille(500) { self.rng.below(200) as i64 - 100 } else { -1_000 };
                match self.rng.below(PARTS + 1) {
                    PARTS => self.nodes[node].clock = by,
                    part => self.redis.jump(part, by),
                }
                note!(self, "a clock jumps to {by}");
                Ok(true)
            }
            12 if faults.hand => {
                let counter = self.redis.counter.clone();
                if self.rng.permille(700) {
                    let next = self.rng.below(counter.next as usize + 1) as u64;
                    self.redis.counter = CodeCounter { next, ..counter };
                } else if self.survives(&CodeCounter::default()) {
                    self.redis.counter = CodeCounter::default();
                }
                note!(self, "by hand: {:?}", self.redis.counter);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// True if the margin is as large as it has to be, if the counter is this from now on.
    fn survives(&self, counter: &CodeCounter) -> bool {
        let least = self.known.iter().min().copied().unwrap_or_default();
        self.granted <= counter.next.max(counter.floor).max(least) + MARGIN
    }

    /// The replica of a partition, or of the counter, takes over.
    pub(crate) fn fail_over(&mut self, part: usize) -> bool {
        if self.redis.replicas == 0 {
            return false;
        }
        if part < PARTS {
            self.ledger.losses[part] += usize::from(self.redis.lag(part) > 0);
            self.redis.fail_over(part);
        } else {
            let counter = self.redis.counter_after_failover();
            if !self.survives(&counter) {
                return false;
            }
            self.redis.move_counter(counter);
        }
        note!(self, "failover of {part}");
        true
    }

    fn restart(&mut self, empty: bool) -> bool {
        let part = self.rng.below(PARTS + 1);
        if part < PARTS {
            self.ledger.losses[part] += 1;
            self.redis.restart(part, empty);
        } else {
            let counter = if empty { CodeCounter::default() } else { self.redis.counter_after_restart() };
            if !self.survives(&counter) {
                return false;
            }
            self.redis.move_counter(counter);
        }
        note!(self, "{part} starts again, empty: {empty}");
        true
    }
}
