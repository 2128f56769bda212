//! glommio: the pinned executor that hosts a core and its tasks.
//!
//! The one module that names glommio. Its sockets, files and timers are not used: whatever a core waits for completes in
//! its own ring (see `carom_ring`), and the loop sleeps there. So nothing may wait for glommio's reactor.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

/// Memory that each executor registers with its ring, which cores have no use for; the default of 10 MiB would exceed the
/// usual limit on locked memory.
pub const IO_MEMORY: usize = 64 * 1024;

/// How long tasks may run before glommio asks them to yield: practically for ever.
///
/// Nothing on a core needs glommio's turn in between: the loop takes everything from its own ring, and gives way to other
/// tasks by itself. A short timer does harm: when it fires between glommio's last look at its rings and its run of the
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

/// Whether tasks of a core want their turn, and how many there are.
#[derive(Clone, Default, Debug)]
pub(super) struct Woken {
    some: Arc<AtomicBool>,
    live: Rc<Cell<usize>>,
}

impl Woken {
    /// Whether tasks were woken since the last call. Then the loop must not sleep: they wait behind it.
    pub(super) fn take(&self) -> bool {
        // A plain load first: most turns wake nobody.
        self.some.load(Ordering::Relaxed) && self.some.swap(false, Ordering::Relaxed)
    }

    /// Whether there are tasks that have not ended.
    pub(super) fn has_tasks(&self) -> bool {
        self.live.get() > 0
    }
}

/// Runs a task on this core until it ends by itself.
pub(super) fn spawn_task(task: impl Future<Output = ()> + 'static, woken: &Woken) {
    woken.some.store(true, Ordering::Relaxed);
    woken.live.set(woken.live.get() + 1);
    glommio::spawn_local(Watched { task: Box::pin(task), wakers: None, woken: woken.clone() }).detach();
}

/// A task whose wake-ups are seen by the loop, also those by which it wakes itself.
struct Watched<F> {
    task: Pin<Box<F>>,
    /// glommio's waker of this task, and ours around it.
    wakers: Option<(Waker, Waker)>,
    woken: Woken,
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.woken.live.set(self.woken.live.get() - 1);
    }
}

struct Watcher {
    waker: Waker,
    woken: Arc<AtomicBool>,
}

impl Wake for Watcher {
    fn wake(self: Arc<Watcher>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Watcher>) {
        self.woken.store(true, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let watched = &mut *self;
        if !watched.wakers.as_ref().is_some_and(|(waker, _)| waker.will_wake(context.waker())) {
            let waker = context.waker().clone();
            let watcher = Watcher { waker: waker.clone(), woken: Arc::clone(&watched.woken.some) };
            watched.wakers = Some((waker, Waker::from(Arc::new(watcher))));
        }
        let Some((_, waker)) = &watched.wakers else { return Poll::Pending };
        watched.task.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// Gives the tasks of the core their turn.
pub(super) async fn breathe() {
    glommio::executor().yield_now().await;
}
