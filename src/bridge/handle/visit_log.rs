//! Queries of the visit log.

use super::{LATE, ServiceHandle};
use crate::bridge::visit_log::{
    VisitDeletion, VisitFilter, VisitLogAnswer, VisitLogRequest, VisitPage, VisitStatistics, VisitStatisticsAnswer,
};
use crate::bridge::{Ticket, WriteFailure};

impl ServiceHandle {
    /// Asks the visit log. Without such a log, the page is empty and incomplete.
    ///
    /// # Errors
    /// The reason why it cannot be answered now, in words for the client.
    pub async fn ask_visit_log(
        &self,
        request: impl FnOnce(Ticket<VisitLogAnswer>) -> VisitLogRequest,
    ) -> Result<VisitPage, &'static str> {
        let Some(queue) = &self.context.lists.visits else { return Ok(VisitPage::default()) };
        let VisitLogAnswer(answer) = self.ask_thread(queue, request).await?.ok_or(LATE)?;
        answer
    }

    /// Deletes visits from the log, and returns their number. Without such a log, there are none.
    ///
    /// # Errors
    /// The reason why they were not deleted, or not for certain.
    pub async fn delete_logged_visits(&self, deletion: VisitDeletion) -> Result<u64, WriteFailure> {
        let Some(queue) = &self.context.lists.visits else { return Ok(0) };
        let VisitLogAnswer(answer) = self.order(queue, |ticket| VisitLogRequest::Delete(deletion, ticket)).await?;
        answer.map(|page| page.total).map_err(WriteFailure::Refused)
    }

    /// Counts the visits of the log. Without such a log, there are none.
    ///
    /// # Errors
    /// The reason why they cannot be counted now, in words for the client.
    pub async fn count_logged_visits(&self, filter: VisitFilter) -> Result<Box<VisitStatistics>, &'static str> {
        let Some(queue) = &self.context.lists.visits else { return Ok(Box::default()) };
        let answer = self.ask_thread(queue, |ticket| VisitLogRequest::Count(filter, ticket)).await?;
        answer.map(|VisitStatisticsAnswer(statistics)| statistics).ok_or(LATE)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::mpsc::sync_channel;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::bridge::Reply;
    use crate::bridge::handle::batches::tests::services;

    /// Deletes visits, with this answer of the log, or none in time.
    fn deleted(queue_len: usize, answer: Option<Result<VisitPage, &'static str>>) -> Result<u64, WriteFailure> {
        let (mut services, _) = services(1);
        let (queue, requests) = sync_channel(queue_len);
        Rc::get_mut(&mut services).unwrap().context.lists.visits = Some(queue);
        let mut deleting = pin!(services.delete_logged_visits(VisitDeletion::Orphans));
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = deleting.as_mut().poll(&mut context) {
            return answer;
        }
        let Ok(VisitLogRequest::Delete(VisitDeletion::Orphans, ticket)) = requests.try_recv() else {
            panic!("no request")
        };
        match answer {
            Some(answer) => services.deliver(ticket.token, Reply::VisitLog(VisitLogAnswer(answer))),
            // Waiters end without an answer, as at their deadline.
            None => services.close(),
        }
        let Poll::Ready(answer) = deleting.as_mut().poll(&mut context) else { panic!("it waits on") };
        answer
    }

    #[test]
    fn a_late_deletion_cannot_be_confirmed() {
        assert_eq!(deleted(1, None), Err(WriteFailure::Unconfirmed(LATE)));
        assert!(matches!(deleted(0, None), Err(WriteFailure::Refused(_))));
        assert_eq!(deleted(1, Some(Err("full"))), Err(WriteFailure::Refused("full")));
        assert_eq!(deleted(1, Some(Ok(VisitPage { total: 7, ..VisitPage::default() }))), Ok(7));
    }
}
