//! Keeps the threads of services out of the way of the cores.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that cores are pinned to.
static CORE_CPUS: OnceLock<Vec<usize>> = OnceLock::new();

/// True once the cores of this process have ended.
static HAVE_CORES_ENDED: AtomicBool = AtomicBool::new(false);

/// The niceness of threads that let cores go first (nice(2)): on a busy CPU, such a thread gets a tenth.
const NICENESS: i32 = 10;

/// The niceness of a thread that holds locks which clients wait for: on a busy CPU it gets a quarter.
const NICENESS_WITH_LOCKS: i32 = 5;

/// The niceness of a background thread that shares its CPU with a core. This is the lowest priority that still gets a
/// seventieth of a busy CPU. A thread that gets nothing (SCHED_IDLE) could hold a lock of the store for as long as
/// redirects keep the CPU busy.
const NICENESS_BESIDE_CORES: i32 = 19;

/// Longest time for which long work keeps the CPU of a core without a pause. A niceness is no bound: from Linux 6.6 on,
/// a core that wakes up waits until the running thread has used up its time slice, whatever the niceness of both. The
/// kernel checks the time slice only at its ticks, which are 4 ms apart with `CONFIG_HZ=250`.
const RUN_MAX: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_micros(250) };

/// A pause in long work. The kernel adds [`TIMER_SLACK_NS`].
const PAUSE: Duration = Duration::from_micros(50);

/// The time by which the kernel may delay the end of a pause, to wake threads together (PR_SET_TIMERSLACK). The default of
/// 50 µs would double each pause.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");

/// Steps of a [`PacedLoop`] between two looks at the clock.
const STEPS_PER_LOOK: u32 = 32;

thread_local! {
    /// The end of the last pause. `None` on a thread that shares its CPU with no core, or that requests wait for.
    static RUN_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The priority of a thread beside the cores. It follows from what waits for the thread. Decision 0028 lists the threads
/// of each priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Priority {
    /// Requests wait for the thread, or a ring that it empties overflows if it waits: niceness 0 on every CPU.
    Urgent,
    /// Changes or leases wait for the thread, which itself waits for the network or a file: niceness 0 on the CPUs
    /// without a core.
    Awaited,
    /// No request waits for the thread, but some wait for its locks, such as those of the store: niceness 5 on the
    /// CPUs without a core.
    Locking,
    /// Long work that clients wait for, work that must not fall behind, and threads that mostly sleep: niceness 10 on the
    /// CPUs without a core. With 19, a thread that only has to see the end of the node could delay it by seconds on a
    /// machine that is busy with something else.
    Long,
    /// The load of the links after a join, before this node serves: niceness 10 on every CPU. The CPUs without a core of
    /// this node would not do: they may be few, and the cores of the peer may run there.
    Joining,
    /// Long work that nobody waits for: niceness 10 on the CPUs without a core. If every CPU has a core, niceness 19.
    Background,
}

/// Sets the CPUs that cores are pinned to. Call it before any background thread starts.
pub fn set_core_cpus(cpus: &[usize]) {
    // A second node in the same process, as in tests, runs on the same machine.
    let _ = CORE_CPUS.set(cpus.to_vec());
}

impl Priority {
    /// Gives this priority to the calling thread. Where seccomp forbids that, the thread stays as it is.
    pub(super) fn apply(self) {
        if self == Priority::Urgent {
            return;
        }
        let is_apart = self != Priority::Joining && leave_core_cpus();
        if !is_apart && self != Priority::Awaited {
            RUN_SINCE.set(Some(Instant::now()));
            shorten_timer_slack();
        }
        match self {
            Priority::Urgent | Priority::Awaited => {}
            Priority::Locking => set_niceness(NICENESS_WITH_LOCKS),
            Priority::Long | Priority::Joining => set_niceness(NICENESS),
            Priority::Background => set_niceness(if is_apart { NICENESS } else { NICENESS_BESIDE_CORES }),
        }
    }
}

/// Sleeps for a moment if the calling thread does long work on the CPU of a core, and has run for [`RUN_MAX`] since it last
/// slept here. Call it between short steps, without a lock. It does nothing on other threads.
pub(crate) fn pause_if_due() {
    if is_pause_due() {
        std::thread::sleep(PAUSE);
        RUN_SINCE.set(Some(Instant::now()));
    }
}

fn is_pause_due() -> bool {
    let is_due = RUN_SINCE.get().is_some_and(|since| since.elapsed() >= RUN_MAX);
    is_due && !HAVE_CORES_ENDED.load(Ordering::Relaxed)
}

/// The pauses of a loop whose steps take about a microsecond. A look at the clock before each of them would be a part of the
/// work.
#[derive(Debug, Default)]
pub(crate) struct PacedLoop {
    steps: u32,
}

impl PacedLoop {
    /// Counts a step, and calls [`pause_if_due`] at every 32nd one.
    pub(crate) fn step(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            pause_if_due();
        }
    }
}

/// Ends the pauses of all threads. Call it when the cores have ended. On a machine that is busy with something else,
/// each pause of a thread with a low priority delays the stop by many milliseconds.
pub(crate) fn end_pauses() {
    HAVE_CORES_ENDED.store(true, Ordering::Relaxed);
}

fn set_niceness(niceness: i32) {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), niceness) {
        tracing::debug!(%error, "cannot lower the priority of a background thread");
    }
}

fn shorten_timer_slack() {
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS)) {
        tracing::debug!(%error, "cannot shorten the pauses of a background thread");
    }
}

/// Moves this thread to the CPUs without a core. Returns false if there are none, or it failed.
fn leave_core_cpus() -> bool {
    let Some(cores) = CORE_CPUS.get() else { return false };
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let free = without(&allowed, cores);
    free.count() > 0 && sched_setaffinity(None, &free).is_ok()
}

/// Returns the CPUs of `allowed` that are not in `cores`.
fn without(allowed: &CpuSet, cores: &[usize]) -> CpuSet {
    let mut free = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu) && !cores.contains(cpu)).for_each(|cpu| free.set(cpu));
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_start_with_their_niceness() {
        let niceness = |priority| {
            let own = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
            crate::services::threads::start(priority, "niceness", own).unwrap().join().unwrap()
        };
        let before = niceness(Priority::Urgent);
        assert_eq!(niceness(Priority::Awaited), before);
        // No test pins cores, so no CPU is free of them. The tests themselves may run with a niceness.
        let nice = [(Priority::Locking, 5), (Priority::Long, 10), (Priority::Joining, 10), (Priority::Background, 19)];
        for (priority, expected) in nice {
            assert_eq!(niceness(priority), expected.max(before), "{priority:?}");
        }
    }

    #[test]
    fn long_work_pauses_beside_cores() {
        let paused = |priority| {
            let run = || {
                let start = Instant::now();
                pause_if_due();
                start.elapsed() >= PAUSE
            };
            crate::services::threads::start(priority, "pauses", run).unwrap().join().unwrap()
        };
        assert!(paused(Priority::Background));
        assert!(paused(Priority::Long));
    }

    #[test]
    fn pauses_end_soon() {
        let slack = |priority| {
            let own = || rustix::thread::current_timer_slack().unwrap();
            crate::services::threads::start(priority, "slack", own).unwrap().join().unwrap()
        };
        assert_eq!(slack(Priority::Long), TIMER_SLACK_NS.get());
        assert_eq!(slack(Priority::Background), TIMER_SLACK_NS.get());
        assert!(slack(Priority::Urgent) > TIMER_SLACK_NS.get(), "it has no pauses");
    }

    /// The environment variable of a process that runs one test alone.
    const ALONE: &str = "CAROM_TEST_ALONE";

    /// Runs a test of this module in a process of its own, and returns true. Returns false in that process.
    fn runs_alone(test: &str) -> bool {
        if std::env::var_os(ALONE).is_some() {
            return false;
        }
        let name = format!("services::threads::priority::tests::{test}");
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = alone.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
        true
    }

    #[test]
    fn load_after_a_join_uses_every_cpu() {
        // In a process of its own: other tests of this process pin no cores.
        if runs_alone("load_after_a_join_uses_every_cpu") {
            return;
        }
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        set_core_cpus(&[first]);
        let place = |priority| {
            let own = || (sched_getaffinity(None).unwrap().count(), is_pause_due());
            crate::services::threads::start(priority, "place", own).unwrap().join().unwrap()
        };
        assert_eq!(place(Priority::Joining), (allowed.count(), true), "it pauses for the cores of the peer");
        let is_alone = allowed.count() == 1;
        assert_eq!(place(Priority::Long).1, is_alone, "it keeps to the CPUs without a core of this node");
    }

    #[test]
    fn pauses_end_with_the_cores() {
        // In a process of its own: other tests of this process need their pauses.
        if runs_alone("pauses_end_with_the_cores") {
            return;
        }
        let run = || {
            let before = is_pause_due();
            end_pauses();
            (before, is_pause_due())
        };
        let thread = crate::services::threads::start(Priority::Background, "pauses", run).unwrap();
        assert_eq!(thread.join().unwrap(), (true, false));
    }

    #[test]
    fn background_threads_have_the_cpus_that_no_core_has() {
        let mut allowed = CpuSet::new();
        [1, 2, 5].into_iter().for_each(|cpu| allowed.set(cpu));
        let free = without(&allowed, &[0, 2, 5]);
        assert!(free.count() == 1);
        assert!(free.is_set(1));
        assert_eq!(without(&allowed, &[1, 2, 5]).count(), 0);
    }
}
