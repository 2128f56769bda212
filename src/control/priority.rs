//! Threads that count less than the cores, because nobody waits for them for whom microseconds matter.

/// How much less than the cores a thread counts that goes through many links for one answer (nice(2)): it gets what they leave, and
/// a tenth of a CPU at least.
const NICENESS: i32 = 10;

/// From now on this thread lets the cores go first. Seccomp may forbid it; then it goes on as it is.
pub(super) fn let_cores_go_first() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
        tracing::debug!(%error, "a thread that reads much keeps the priority of everything else");
    }
}
