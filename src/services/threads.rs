//! Starts the threads of a node. Each start names the [`Priority`] of the thread beside the cores.

use std::io;
use std::thread::{Builder, JoinHandle};

use self::priority::Priority;

pub(crate) mod pool;
pub mod priority;

/// Starts a thread, which first takes its priority. It must not be more urgent than the calling thread: a thread inherits
/// the niceness and the CPUs of its parent, and cannot get more.
///
/// # Errors
/// If the operating system cannot start a thread.
pub(crate) fn start<T: Send + 'static>(
    priority: Priority,
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        priority.apply();
        run()
    })
}
