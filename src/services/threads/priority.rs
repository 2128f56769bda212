//! Keeps background threads out of the way of the cores.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that cores are pinned to.
static CORE_CPUS: OnceLock<Vec<usize>> = OnceLock::new();

/// The niceness of a background thread on a CPU without a core (nice(2)): other threads of the node go first.
const NICENESS: i32 = 10;

/// The niceness of a background thread that holds locks which clients wait for: on a busy CPU it gets a quarter.
const NICENESS_WITH_LOCKS: i32 = 5;

/// The niceness of a background thread that shares its CPU with a core. This is the lowest priority that still gets a
/// seventieth of a busy CPU. A thread that gets nothing (SCHED_IDLE) could hold a lock of the store for as long as
/// redirects keep the CPU busy.
const NICENESS_BESIDE_CORES: i32 = 19;

/// Sets the CPUs that cores are pinned to. Call it before any background thread starts.
pub fn set_core_cpus(cpus: &[usize]) {
    // A second node in the same process, as in tests, runs on the same machine.
    let _ = CORE_CPUS.set(cpus.to_vec());
}

/// Moves this thread, whose answers clients wait for, to the CPUs without a core, and lowers its priority. If seccomp
/// forbids that, the thread stays as it is.
pub(crate) fn let_cores_go_first() {
    leave_core_cpus();
    set_niceness(NICENESS);
}

/// Does the same for a thread that holds locks which clients wait for. It gets more of a busy CPU, so that it releases
/// them soon.
pub(crate) fn let_cores_go_first_with_locks() {
    leave_core_cpus();
    set_niceness(NICENESS_WITH_LOCKS);
}

/// Moves this thread, which no client waits for, to the CPUs without a core. If every CPU has a core, it gets the
/// lowest priority instead. If seccomp forbids that, the thread stays as it is.
pub(crate) fn run_in_the_background() {
    set_niceness(if leave_core_cpus() { NICENESS } else { NICENESS_BESIDE_CORES });
}

fn set_niceness(niceness: i32) {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), niceness) {
        tracing::debug!(%error, "cannot lower the priority of a background thread");
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
    fn background_threads_have_the_cpus_that_no_core_has() {
        let mut allowed = CpuSet::new();
        [1, 2, 5].into_iter().for_each(|cpu| allowed.set(cpu));
        let free = without(&allowed, &[0, 2, 5]);
        assert!(free.count() == 1 && free.is_set(1));
        assert_eq!(without(&allowed, &[1, 2, 5]).count(), 0);
    }
}
