//! Jobs that tasks hand to threads, because they would block the core's redirects for too long.

use super::{Reply, ServiceHandle, refusal};
use crate::bridge::{Job, JobKind, JobResult, Ticket};
use carom_limits::ANSWER_TIME_MAX;

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
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let ticket = Ticket { core: self.me, token: place.token };
        let queue = match kind {
            JobKind::Picture => &self.counters.jobs.pictures,
            JobKind::Document => &self.counters.jobs.documents,
        };
        let job = Job { ticket, run: Box::new(move || Box::new(run()) as JobResult) };
        queue.try_send(job).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(_) => "too many requests are waiting for a free thread",
            other => refusal(&other),
        })?;
        match place.reply().await {
            Some(Reply::Made(made)) => {
                made.downcast().map(|made| *made).map_err(|_| "the result has an unexpected type")
            }
            _ => Err("no thread became free in time"),
        }
    }

    /// Delivers the result of a job.
    pub fn bring_made(&self, token: u64, made: JobResult) {
        self.bring(token, Reply::Made(made));
    }
}
