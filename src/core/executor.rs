//! glommio: the pinned executor that hosts the loop of a core.
//!
//! This is the only module that names glommio. Its sockets, files, timers and task queues are not used: everything that
//! a core waits for completes in its own ring (see `carom_ring`). The loop sleeps in that ring, and it runs the tasks
//! of its connections itself (see `tasks`). So nothing may wait for glommio's reactor.

use std::future::Future;
use std::io;
use std::time::Duration;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

/// Bytes of memory that each executor registers with its ring. Cores have no use for it, and the default of 10 MiB
/// would exceed the usual limit on locked memory.
pub const IO_MEMORY: usize = 64 * 1024;

/// Time that tasks may run before glommio asks them to yield: so long that it never does.
///
/// Nothing on a core needs glommio's turn in between, because the loop is its only task. A short timer does harm: it
/// may fire between glommio's last look at its rings and its run of the task queues. Then `LocalExecutor::run` (0.12.0)
/// takes the queues for empty and parks although tasks could run. On a busy machine that stopped a core for good.
const PREEMPT_TIMER: Duration = Duration::from_secs(24 * 3_600);

/// A running core. Joining it waits for the end of its thread.
pub type CoreHandle = ExecutorJoinHandle<()>;

/// Starts an executor on a thread of its own, pinned to `cpu` if one is given.
///
/// # Errors
/// If the kernel refuses its rings or its thread.
pub(super) fn spawn<F>(
    name: &str,
    cpu: Option<usize>,
    make: impl FnOnce() -> F + Send + 'static,
) -> io::Result<CoreHandle>
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
