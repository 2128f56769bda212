//! Two running processes with the name of one node.
//!
//! The name of a node stands for its heartbeats, its leases and its reports on its links. If two processes send heartbeats
//! under one name, the others take the report of one for that of both, and may deny links of the other one. So one of the
//! two **gives way**: it accepts no writes and sends no heartbeats until the other one is silent.
//!
//! Each process draws a random number at its start, its **instance**. Redis returns with each heartbeat of a name the one
//! that it replaces. The first of a process replaces that of its predecessor. Later ones may replace one heartbeat of another
//! instance: a late command of the predecessor, or an old copy of the data of Redis. A twin goes on sending. So another
//! process is a twin once two different heartbeats of it were replaced by heartbeats of this process after the first.
//!
//! The process whose first heartbeat came later, by the clock of Redis, gives way. Each process sends that time with its
//! heartbeats, so both compare the same two times, and exactly one gives way. From then on it reads the heartbeats and sends
//! none, until no process of that name sends any: a restart of the other one changes nothing.
//!
//! Until it is known whether another process runs, a process is not **alone** ([`TwinWatch::is_alone`]). It then takes nothing
//! for which it would have to report under the name. A predecessor that has certainly ended leaves no such doubt.

use std::time::Duration;

/// Time without a new heartbeat after which a twin counts as ended.
pub const TWIN_SILENCE: Duration = Duration::from_secs(10);

/// Longest time between two looks of a process that gives way. After a longer one, the silence is measured again: the twin may
/// have been unable to reach Redis, too.
const LOOK_GAP_MAX: Duration = Duration::from_secs(3);

/// Number of heartbeats after which another process is a twin.
const BEATS_MIN: u32 = 2;

/// Time for which one heartbeat of another process leaves doubt whether it has ended: more than a heartbeat and its timeout.
const DOUBT: Duration = Duration::from_secs(3);

/// A heartbeat in Redis, under the name of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedBeat {
    /// The random number of its process.
    pub instance: u64,
    /// The time of the first heartbeat of the process, in milliseconds since 1970 UTC by the clock of Redis; `None` before
    /// the answer to it.
    pub since_ms: Option<u64>,
    /// The number of the heartbeat.
    pub number: u64,
    /// True if the process has certainly ended: it has said so, or the reader holds its lock.
    pub has_ended: bool,
}

/// A second process with the name of this node.
#[derive(Clone, Copy, Debug)]
struct Twin {
    last: NamedBeat,
    /// Number of its heartbeats that were seen.
    beats: u32,
    /// The instant at which the last of them was seen.
    seen: Duration,
}

/// The search of a process for others with its name.
#[derive(Clone, Debug)]
pub struct TwinWatch {
    instance: u64,
    since_ms: Option<u64>,
    twin: Option<Twin>,
    gives_way: bool,
    /// The instant of the last look.
    looked: Duration,
    /// The instant at which a heartbeat of this process last replaced, or may have replaced, one of another process that may still
    /// run.
    doubted: Option<Duration>,
}

impl TwinWatch {
    /// Returns the watch of a process before its first heartbeat.
    pub fn new(instance: u64) -> TwinWatch {
        TwinWatch { instance, since_ms: None, twin: None, gives_way: false, looked: Duration::ZERO, doubted: None }
    }

    /// Returns the random number of this process.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Returns the time of the first answered heartbeat, in milliseconds since 1970 UTC by the clock of Redis.
    pub fn since_ms(&self) -> Option<u64> {
        self.since_ms
    }

    /// True if this process has a twin and joined later, so that it must accept no writes and send no heartbeats.
    pub fn gives_way(&self) -> bool {
        self.gives_way
    }

    /// True if another process with the name of this node is known to run.
    pub fn has_twin(&self) -> bool {
        self.gives_way || self.twin.is_some_and(|twin| twin.beats >= BEATS_MIN)
    }

    /// True if this process has heard from Redis, and neither knows nor suspects another process with the name of this node.
    pub fn is_alone(&self, now: Duration) -> bool {
        let is_doubted = self.doubted.is_some_and(|at| now.saturating_sub(at) < DOUBT);
        self.since_ms.is_some() && !self.has_twin() && !is_doubted
    }

    /// Takes the answer to a heartbeat, which Redis received at the time `beat_ms`, and the heartbeat that it replaced.
    pub fn observe(&mut self, beat_ms: u64, replaced: Option<NamedBeat>, now: Duration) {
        let is_first = self.since_ms.is_none();
        let since_ms = *self.since_ms.get_or_insert(beat_ms);
        // Before its first answer, a heartbeat of this process may have replaced one of a process that runs.
        let leaves_doubt = |beat: NamedBeat| if beat.instance == self.instance { is_first } else { !beat.has_ended };
        if replaced.is_some_and(leaves_doubt) {
            self.doubted = Some(now);
        }
        if !is_first {
            self.note(replaced, now);
        }
        self.forget_silent(now);
        let Some(twin) = self.twin.filter(|twin| twin.beats >= BEATS_MIN) else { return };
        let Some(their_since_ms) = twin.last.since_ms else { return };
        if (their_since_ms, twin.last.instance) < (since_ms, self.instance) {
            self.gives_way = true;
            self.looked = now;
        }
    }

    /// Takes the last heartbeat of the name, as a process that gives way reads it.
    pub fn look(&mut self, present: Option<NamedBeat>, now: Duration) {
        if now.saturating_sub(self.looked) > LOOK_GAP_MAX
            && let Some(twin) = &mut self.twin
        {
            twin.seen = now;
        }
        self.looked = now;
        self.note(present, now);
        self.forget_silent(now);
    }

    /// Notes a heartbeat of another process.
    fn note(&mut self, beat: Option<NamedBeat>, now: Duration) {
        let Some(beat) = beat.filter(|beat| beat.instance != self.instance) else { return };
        match &mut self.twin {
            Some(twin) if twin.last.instance == beat.instance => {
                if twin.last.number != beat.number {
                    (twin.beats, twin.seen) = (twin.beats.saturating_add(1), now);
                }
                twin.last = beat;
            }
            _ => self.twin = Some(Twin { last: beat, beats: 1, seen: now }),
        }
    }

    fn forget_silent(&mut self, now: Duration) {
        if self.twin.is_none_or(|twin| now.saturating_sub(twin.seen) >= TWIN_SILENCE) {
            (self.twin, self.gives_way) = (None, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that sends heartbeats under the name, unless it gives way.
    struct Process {
        watch: TwinWatch,
        number: u64,
    }

    impl Process {
        fn new(instance: u64) -> Process {
            Process { watch: TwinWatch::new(instance), number: instance * 1_000 }
        }

        fn turn(&mut self, redis: &mut Option<NamedBeat>, now_ms: u64) {
            let now = Duration::from_millis(now_ms);
            if self.watch.gives_way() {
                return self.watch.look(*redis, now);
            }
            self.number += 1;
            let (instance, since_ms) = (self.watch.instance(), self.watch.since_ms());
            let replaced = redis.replace(NamedBeat { instance, since_ms, number: self.number, has_ended: false });
            self.watch.observe(now_ms, replaced, now);
        }
    }

    /// Lets processes take turns for some seconds, each at an interval of its own.
    fn run(
        processes: &mut [(&mut Process, u64)],
        redis: &mut Option<NamedBeat>,
        (from_ms, seconds): (u64, u64),
    ) -> u64 {
        let until_ms = from_ms + seconds * 1_000;
        for now_ms in from_ms..until_ms {
            let due = processes.iter_mut().filter(|(_, every)| now_ms % every == 0);
            due.for_each(|(process, _)| process.turn(redis, now_ms));
        }
        until_ms
    }

    #[test]
    fn restarts_have_no_twin() {
        let mut redis = None;
        let mut now_ms = 1_000;
        for instance in 1..5 {
            let mut process = Process::new(instance);
            now_ms = run(&mut [(&mut process, 1_000)], &mut redis, (now_ms, 1 + instance % 3));
            assert!(!process.watch.has_twin());
            assert!(!process.watch.gives_way());
        }
    }

    #[test]
    fn one_late_heartbeat_is_no_twin() {
        let (mut redis, mut process) = (None, Process::new(2));
        let late = NamedBeat { instance: 1, since_ms: Some(5), number: 77, has_ended: false };
        let mut now_ms = 1_000;
        for _ in 0..3 {
            now_ms = run(&mut [(&mut process, 1_000)], &mut redis, (now_ms, 2));
            // An old copy of Redis has the same heartbeat again.
            redis = Some(late);
        }
        now_ms = run(&mut [(&mut process, 1_000)], &mut redis, (now_ms, 2));
        assert!(!process.watch.has_twin());
        redis = Some(NamedBeat { number: 78, ..late });
        run(&mut [(&mut process, 1_000)], &mut redis, (now_ms, 2));
        assert!(process.watch.has_twin(), "it goes on");
        assert!(process.watch.gives_way(), "it goes on");
    }

    #[test]
    fn later_of_two_is_never_alone() {
        let (mut first, mut second, mut redis) = (Process::new(1), Process::new(2), None);
        assert!(!first.watch.is_alone(Duration::ZERO), "it has not heard from Redis");
        first.turn(&mut redis, 1_000);
        assert!(first.watch.is_alone(Duration::from_secs(1)), "no process has had the name");
        let mut now_ms = run(&mut [(&mut first, 1_000)], &mut redis, (1_001, 3));
        for _ in 0..300 {
            now_ms = run(&mut [(&mut first, 1_000), (&mut second, 100)], &mut redis, (now_ms, 1));
            assert!(!second.watch.is_alone(Duration::from_millis(now_ms)), "{now_ms}");
        }
        assert!(first.watch.is_alone(Duration::from_millis(now_ms)), "the other one gives way");
        // A killed process may still run, as far as its successor knows.
        let mut third = Process::new(3);
        now_ms = run(&mut [(&mut third, 1_000)], &mut redis, (now_ms, 2));
        assert!(!third.watch.is_alone(Duration::from_millis(now_ms)));
        now_ms = run(&mut [(&mut third, 1_000)], &mut redis, (now_ms, 3));
        assert!(third.watch.is_alone(Duration::from_millis(now_ms)));
    }

    #[test]
    fn an_ended_predecessor_leaves_no_doubt() {
        let beat = |number, has_ended| Some(NamedBeat { instance: 1, since_ms: Some(5), number, has_ended });
        let now = Duration::from_secs;
        for (has_ended, is_alone) in [(true, true), (false, false)] {
            let mut watch = TwinWatch::new(2);
            watch.observe(1_000, beat(7, has_ended), now(1));
            assert_eq!(watch.is_alone(now(1)), is_alone);
        }
        // A process that goes on is a twin, whatever is said of it.
        let mut watch = TwinWatch::new(2);
        (7..10).zip(1..).for_each(|(number, second)| watch.observe(second * 1_000, beat(number, true), now(second)));
        assert!(watch.has_twin());
        assert!(!watch.is_alone(now(3)));
    }

    #[test]
    fn unanswered_heartbeat_leaves_doubt() {
        let now = Duration::from_secs;
        let own = |number| Some(NamedBeat { instance: 2, since_ms: None, number, has_ended: false });
        let mut watch = TwinWatch::new(2);
        // The one before had no answer, and may have replaced that of another process.
        watch.observe(1_000, own(7), now(1));
        assert!(!watch.is_alone(now(1)));
        (2..5).for_each(|second| watch.observe(second * 1_000, own(6 + second), now(second)));
        assert!(watch.is_alone(now(4)));
    }

    #[test]
    fn later_of_two_gives_way() {
        for (first_every, second_every) in [(1_000, 1_000), (100, 1_000), (1_000, 100), (250, 700)] {
            // The numbers of the processes do not decide.
            for instances in [(1, 2), (2, 1)] {
                let (mut first, mut second) = (Process::new(instances.0), Process::new(instances.1));
                let mut redis = None;
                let now_ms = run(&mut [(&mut first, first_every)], &mut redis, (1_000, 3));
                let mut both = [(&mut first, first_every), (&mut second, second_every)];
                let now_ms = run(&mut both, &mut redis, (now_ms + 1, 6));
                let case = format!("{first_every} {second_every} {instances:?}");
                assert!(!first.watch.gives_way(), "{case}");
                assert!(second.watch.gives_way(), "{case}");
                assert!(first.watch.has_twin(), "{case}");
                assert!(second.watch.has_twin(), "{case}");
                let mut both = [(&mut first, first_every), (&mut second, second_every)];
                let now_ms = run(&mut both, &mut redis, (now_ms, 20));
                assert!(!first.watch.has_twin(), "{case}");
                assert!(second.watch.gives_way(), "{case}");
                // A restart of the first one changes nothing.
                let mut third = Process::new(3);
                let now_ms = run(&mut [(&mut third, 1_000), (&mut second, 1_000)], &mut redis, (now_ms + 5_000, 20));
                assert!(!third.watch.has_twin(), "{case}");
                assert!(second.watch.gives_way(), "{case}");
                let now_ms = run(&mut [(&mut second, 1_000)], &mut redis, (now_ms, 9));
                assert!(second.watch.gives_way(), "{case}");
                run(&mut [(&mut second, 1_000)], &mut redis, (now_ms, 4));
                assert!(!second.watch.gives_way(), "it is alone: {case}");
                assert!(!second.watch.has_twin(), "it is alone: {case}");
            }
        }
    }

    #[test]
    fn two_that_join_together_decide_alike() {
        for instances in [(1, 2), (2, 1)] {
            let (mut first, mut second) = (Process::new(instances.0), Process::new(instances.1));
            let mut both = [(&mut first, 1_000), (&mut second, 1_000)];
            run(&mut both, &mut None, (1_000, 8));
            assert!(first.watch.gives_way() != second.watch.gives_way(), "{instances:?}");
        }
    }

    #[test]
    fn silence_is_measured_while_redis_answers() {
        let (mut first, mut second, mut redis) = (Process::new(1), Process::new(2), None);
        let now_ms = run(&mut [(&mut first, 1_000)], &mut redis, (1_000, 2));
        let now_ms = run(&mut [(&mut first, 1_000), (&mut second, 1_000)], &mut redis, (now_ms, 6));
        assert!(second.watch.gives_way());
        // Neither reached Redis for a while.
        let now_ms = run(&mut [(&mut second, 1_000)], &mut redis, (now_ms + 60_000, 2));
        assert!(second.watch.gives_way(), "the other one may return in a moment");
        let now_ms = run(&mut [(&mut first, 1_000), (&mut second, 1_000)], &mut redis, (now_ms, 20));
        assert!(second.watch.gives_way(), "{now_ms}");
        assert!(!first.watch.gives_way(), "{now_ms}");
    }
}
