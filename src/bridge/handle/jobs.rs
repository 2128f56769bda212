//! Jobs that tasks hand to threads, because they would block the core's redirects for too long.

use std::sync::mpsc::{TrySendError, sync_channel};

use super::{ServiceHandle, refusal};
use crate::bridge::{Job, JobDone, JobKind};
use carom_limits::ANSWER_TIME_MAX;

/// The reason of a job that has no result.
const NO_THREAD: &str = "no thread became free in time";

impl ServiceHandle {
    /// Runs a job on a thread, and waits for its result.
    ///
    /// # Errors
    /// The reason, in words for the client: too many such jobs wait, or no thread finished it in time.
    pub async fn hand_off<T: Send + 'static>(
        &self,
        kind: JobKind,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let waiter = self.expect_within(ANSWER_TIME_MAX);
        let queue = match kind {
            JobKind::Picture => &self.context.jobs.pictures,
            JobKind::Document => &self.context.jobs.documents,
        };
        let (sender, result) = sync_channel(1);
        // Without a receiver the task has stopped waiting.
        let run = Box::new(move || _ = sender.send(run()));
        queue.try_send(Job { ticket: waiter.ticket(), run }).map_err(|error| match error {
            TrySendError::Full(_) => "too many requests are waiting for a free thread",
            other @ TrySendError::Disconnected(_) => refusal(&other),
        })?;
        let JobDone = waiter.answer().await.ok_or(NO_THREAD)?;
        result.try_recv().map_err(|_| NO_THREAD)
    }
}
