//! Requests to the threads of services, and their answers.

use std::sync::mpsc::SyncSender;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::{Answer, Ticket, WriteFailure};
use carom_limits::ANSWER_TIME_MAX;

impl ServiceHandle {
    /// Sends a request to the queue of a thread, and waits for the answer; `None` if it does not come in time. `request`
    /// makes the request from the ticket of its answer.
    ///
    /// # Errors
    /// The reason why the queue does not take the request, in words for the client.
    pub(super) async fn ask_thread<R, A: Answer>(
        &self,
        queue: &SyncSender<R>,
        request: impl FnOnce(Ticket<A>) -> R,
    ) -> Result<Option<A>, &'static str> {
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        queue.try_send(request(waiter.ticket())).map_err(|error| refusal(&error))?;
        Ok(waiter.answer().await)
    }

    /// Sends an order to change something to the queue of a thread, and waits for the answer.
    ///
    /// # Errors
    /// The reason why that was not done, or not for certain.
    pub(super) async fn order<O, A: Answer>(
        &self,
        queue: &SyncSender<O>,
        order: impl FnOnce(Ticket<A>) -> O,
    ) -> Result<A, WriteFailure> {
        let answer = self.ask_thread(queue, order).await.map_err(WriteFailure::Refused)?;
        answer.ok_or(WriteFailure::Unconfirmed(LATE))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc::sync_channel;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::bridge::JobDone;
    use crate::bridge::handle::batches::tests::services;

    /// Returns the result of a request that no thread answers before its deadline.
    pub(in crate::bridge::handle) fn unanswered<T>(services: &ServiceHandle, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = request.as_mut().poll(&mut context) {
            return result;
        }
        // Waiters end without an answer, as at their deadline.
        services.close();
        let Poll::Ready(result) = request.as_mut().poll(&mut context) else { panic!("it waits on") };
        result
    }

    fn ordered(queue_len: usize) -> Result<JobDone, WriteFailure> {
        let (services, _) = services(1);
        let (queue, _orders) = sync_channel(queue_len);
        unanswered(&services, services.order(&queue, |ticket: Ticket<JobDone>| ticket))
    }

    #[test]
    fn a_late_change_cannot_be_confirmed_and_a_full_queue_refuses_it() {
        assert!(matches!(ordered(1), Err(WriteFailure::Unconfirmed(LATE))));
        assert!(matches!(ordered(0), Err(WriteFailure::Refused(_))));
    }
}
