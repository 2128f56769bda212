//! Work that tasks hand to threads because it would keep the core from its redirects for too long.

use super::{Desk, Reply, refusal};
use crate::bridge::{Job, JobKind, Made, Ticket};
use carom_limits::ANSWER_TIME_MAX;

impl Desk {
    /// Lets a thread do this, and waits for the result.
    ///
    /// # Errors
    /// Why there is none, fit for the client's eyes: too many such jobs wait, or the thread did not get to it in time.
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
        let job = Job { ticket, run: Box::new(move || Box::new(run()) as Made) };
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

    /// Brings the result of a job.
    pub fn bring_made(&self, token: u64, made: Made) {
        self.bring(token, Reply::Made(made));
    }
}
