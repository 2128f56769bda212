//! Starts the threads of a node. Each start names the [`Priority`] of the thread beside the cores.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

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

/// Starts a thread that ends with a scope, like [`start`].
///
/// # Panics
/// If the operating system cannot start a thread, like [`Scope::spawn`].
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    priority: Priority,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let run = move || {
        priority.apply();
        run()
    };
    Builder::new().name(name.to_owned()).spawn_scoped(scope, run).expect("the operating system starts threads")
}
