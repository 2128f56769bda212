//! An end for threads that run beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. Threads that run until then end when the test fails, too: a scope waits for all its
/// threads before it passes a panic on.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
