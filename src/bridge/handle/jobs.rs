//! Jobs that tasks hand to threads, because they would block the core's redirects for too long.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::{
    Job, JobDone, JobKind, PurgeAnswer, PurgeOrder, PurgeProgress, SnapshotProvider, SnapshotQueue, Ticket,
};
use carom_limits::{ANSWER_TIME_MAX, COMPRESSION_TIME_MAX};

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
        let jobs = &self.context.jobs;
        let (queue, within) = match kind {
            JobKind::Picture => (&jobs.pictures, ANSWER_TIME_MAX),
            JobKind::Document => (&jobs.documents, ANSWER_TIME_MAX),
            JobKind::Compression => (&jobs.compression, COMPRESSION_TIME_MAX),
        };
        self.hand_to(queue, within, run).await
    }

    /// Asks the thread that reads snapshots for joining nodes, and waits for its answer.
    ///
    /// # Errors
    /// The reason, in words for the client: too many requests wait, or the thread did not answer in time. An answer that
    /// comes too late is lost, and the request can be sent again.
    pub async fn ask_snapshots<T: Send + 'static>(
        &self,
        queue: &SnapshotQueue,
        ask: impl FnOnce(&dyn SnapshotProvider) -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let provider = Arc::clone(&queue.provider);
        self.hand_to(&queue.jobs, ANSWER_TIME_MAX, move || ask(&*provider)).await
    }

    async fn hand_to<T: Send + 'static>(
        &self,
        queue: &SyncSender<Job>,
        within: Duration,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let waiter = self.expect_within(within);
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

    /// Sends a request to the thread that keeps purges, and waits for its answer.
    ///
    /// # Errors
    /// The reason, in words for the client.
    pub async fn purge(
        &self,
        order: impl FnOnce(Ticket<PurgeAnswer>) -> PurgeOrder,
    ) -> Result<Option<PurgeProgress>, String> {
        let waiter = self.expect_within(ANSWER_TIME_MAX);
        self.context.jobs.purges.try_send(order(waiter.ticket())).map_err(|error| refusal(&error).to_owned())?;
        let answer: Option<PurgeAnswer> = waiter.answer().await;
        answer.map_or_else(|| Err(LATE.to_owned()), |PurgeAnswer(result)| result)
    }
}
