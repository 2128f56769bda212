//! Jobs that tasks hand to threads, because they would block the core's redirects for too long.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::{
    Job, JobDone, JobKind, JobQueues, PurgeAnswer, PurgeFailure, PurgeOrder, PurgeProgress, SnapshotProvider,
    SnapshotQueue, Ticket,
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

    /// Writes a document with this number of parts: on the core if there are at most `at_once`, and on a thread otherwise.
    ///
    /// # Errors
    /// The errors of [`ServiceHandle::hand_off`]. A document that the core writes has none.
    pub async fn write_document<T: Send + 'static>(
        &self,
        parts: usize,
        at_once: usize,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        if parts <= at_once { Ok(write()) } else { self.hand_off(JobKind::Document, write).await }
    }

    /// Lets a thread free a value that takes long to free. The core frees it itself if the queues of all threads are full.
    pub fn free_elsewhere(&self, value: impl Send + 'static) {
        // No task waits for the end of the job.
        let mut job = Job { ticket: Ticket::new(self.me, self.new_token()), run: Box::new(move || drop(value)) };
        let JobQueues { compression, pictures, documents, .. } = &self.context.jobs;
        // Compression comes first: a body that finds no thread is sent as it is.
        for queue in [compression, pictures, documents] {
            match queue.try_send(job) {
                Ok(()) => return,
                Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => job = refused,
            }
        }
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
        let waiter = self.add_waiter(within);
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
    /// The reason why the order was not carried out, or not for certain.
    pub async fn purge(
        &self,
        order: impl FnOnce(Ticket<PurgeAnswer>) -> PurgeOrder,
    ) -> Result<Option<PurgeProgress>, PurgeFailure> {
        match self.ask_thread(&self.context.jobs.purges, order).await {
            Ok(Some(PurgeAnswer(result))) => result.map_err(PurgeFailure::Refused),
            Ok(None) => Err(PurgeFailure::Unconfirmed(LATE)),
            Err(why) => Err(PurgeFailure::Refused(why.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::bridge::Reply;
    use crate::bridge::handle::batches::tests::services;
    use crate::bridge::handle::requests::tests::unanswered;
    use carom_model::purge::PurgeId;

    fn purged(queue_len: usize) -> Result<Option<PurgeProgress>, PurgeFailure> {
        let (mut services, _) = services(1);
        let (queue, _orders) = sync_channel(queue_len);
        Rc::get_mut(&mut services).unwrap().context.jobs.purges = queue;
        unanswered(&services, services.purge(|ticket| PurgeOrder::Run { id: PurgeId(1), ticket }))
    }

    #[test]
    fn a_late_purge_cannot_be_confirmed_and_a_full_queue_refuses_it() {
        assert_eq!(purged(1), Err(PurgeFailure::Unconfirmed(LATE)));
        assert!(matches!(purged(0), Err(PurgeFailure::Refused(_))));
    }

    #[test]
    fn a_thread_writes_documents_of_many_parts() {
        let (mut services, _orders) = services(1);
        let (queue, jobs) = sync_channel(1);
        Rc::get_mut(&mut services).unwrap().context.jobs.documents = queue;
        let writer_of = |parts| services.write_document(parts, 2, || std::thread::current().id());
        let core = std::thread::current().id();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(writer_of(2)).as_mut().poll(&mut context), Poll::Ready(Ok(core)));
        assert!(jobs.try_recv().is_err());
        let mut writing = pin!(writer_of(3));
        assert!(writing.as_mut().poll(&mut context).is_pending());
        let Job { ticket, run } = jobs.try_recv().unwrap();
        std::thread::spawn(run).join().unwrap();
        services.deliver(ticket.token, Reply::JobDone(JobDone));
        let Poll::Ready(Ok(writer)) = writing.as_mut().poll(&mut context) else { panic!("it waits on") };
        assert_ne!(writer, core);
    }

    #[test]
    fn a_thread_frees_large_values() {
        let (mut services, _orders) = services(1);
        let ((compression, jobs), (pictures, others)) = (sync_channel(1), sync_channel(1));
        let queues = &mut Rc::get_mut(&mut services).unwrap().context.jobs;
        (queues.compression, queues.pictures) = (compression, pictures);
        let values = [(); 2].map(|()| Arc::new(()));
        values.iter().for_each(|value| services.free_elsewhere(Arc::clone(value)));
        assert!(values.iter().all(|value| Arc::strong_count(value) == 2), "the core has freed a value");
        // The first queue is full after one job.
        for (queue, value) in [jobs, others].iter().zip(&values) {
            let Job { ticket, run } = queue.try_recv().unwrap();
            std::thread::spawn(run).join().unwrap();
            assert_eq!(Arc::strong_count(value), 1);
            services.deliver(ticket.token, Reply::JobDone(JobDone));
        }
    }
}
