//! glommio: the pinned executor that hosts the loop of a core.
//!
//! The one module that names glommio. Its sockets, files, timers and task queues are not used: whatever a core waits for
//! completes in its own ring (see `carom_ring`), the loop sleeps there, and the loop itself runs the tasks of its
//! connections (see `tasks`). So nothing may wait for glommio's reactor.

use std::future::Future;
use std::io;
use std::time::Duration;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

/// Memory that each executor registers with its ring, which cores have no use for; the default of 10 MiB would exceed the
/// usual limit on locked memory.
pub const IO_MEMORY: usize = 64 * 1024;

/// How long tasks may run before glommio asks them to yield: practically for ever.
///
/// Nothing on a core needs glommio's turn in between: the loop is its only task. A short timer does harm: when it fires between glommio's last look at its rings and its run of the
/// task queues, `LocalExecutor::run` (0.12.0) takes the queues for empty and parks with tasks that could run. On a busy
/// machine that stopped a core for good.
const PREEMPT_TIMER: Duration = Duration::from_secs(24 * 3_600);

/// A running core.
pub type Running = ExecutorJoinHandle<()>;

/// Starts an executor, pinned to `cpu` if one is given, on a thread of its own.
///
/// # Errors
/// When its rings or its thread cannot be made.
pub(super) fn spawn<F>(name: &str, cpu: Option<usize>, make: impl FnOnce() -> F + Send + 'static) -> io::Result<Running>
where
    F: Future<Output = ()> + 'static,
{
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    LocalExecutorBuilder::new(placement)
        .name(name)
        .io_memory(IO_MEMORY)
        .preempt_timer(PREEMPT_TIMER)
        .spawn(make)
        .map_err(|error| io::Error::other(error.to_string()))
}
