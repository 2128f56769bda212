//! glommio: the pinned executor that hosts a core, its tasks, and how the core's loop sleeps.
//!
//! The one module that names glommio. Its sockets are not used; see `ring`.

#![allow(unsafe_code, reason = "glommio takes a raw descriptor to read the doorbell from")]

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use glommio::io::BufferedFile;
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};

use crate::desk::Desk;

/// Memory that each executor registers with its ring. Its cores read eight bytes at a time from a doorbell; the default
/// of 10 MiB would exceed the usual limit on locked memory.
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

/// Runs a task on this core until it ends by itself.
pub(super) fn spawn_task(task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(task).detach();
}

/// Gives other tasks of the core their turn.
pub(super) async fn breathe() {
    glommio::executor().yield_now().await;
}

/// The doorbell of a core, as its loop waits for it.
pub(super) struct Bell {
    file: Rc<BufferedFile>,
    /// A read that was started and has not ended. It stays when a task wakes the loop before the bell rings.
    read: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Bell {
    /// Waits for an eventfd in blocking mode; it must not be read by anybody else.
    pub(super) fn new(eventfd: File) -> Bell {
        // SAFETY: the descriptor is open, and `into_raw_fd` gives up the only other owner.
        let file = unsafe { BufferedFile::from_raw_fd(eventfd.into_raw_fd()) };
        Bell { file: Rc::new(file), read: None }
    }

    /// Sleeps until the bell rings or a task calls at the desk.
    pub(super) async fn wait(&mut self, desk: &Desk) {
        let file = &self.file;
        let mut read = self.read.take().unwrap_or_else(|| {
            let file = Rc::clone(file);
            Box::pin(async move {
                // Whatever the outcome, the loop looks at everything.
                let _ = file.read_at(0, 8).await;
            })
        });
        let rung = poll_fn(|context| {
            if desk.was_called(context.waker()) {
                return Poll::Ready(false);
            }
            read.as_mut().poll(context).map(|()| true)
        })
        .await;
        if !rung {
            self.read = Some(read);
        }
    }
}
