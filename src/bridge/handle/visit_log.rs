//! Queries of the visit log.

use super::batch::LATE;
use super::{ServiceHandle, refusal};
use crate::bridge::Ticket;
use crate::bridge::visit_log::{
    VisitFilter, VisitLogAnswer, VisitLogRequest, VisitPage, VisitStatistics, VisitStatisticsAnswer,
};
use carom_limits::ANSWER_TIME_MAX;

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
        let waiter = self.expect_within(ANSWER_TIME_MAX);
        queue.try_send(request(waiter.ticket())).map_err(|error| refusal(&error))?;
        waiter.answer().await.map_or(Err(LATE), |VisitLogAnswer(answer)| answer)
    }

    /// Counts the visits of the log. Without such a log, there are none.
    ///
    /// # Errors
    /// The reason why they cannot be counted now, in words for the client.
    pub async fn count_logged_visits(&self, filter: VisitFilter) -> Result<Box<VisitStatistics>, &'static str> {
        let Some(queue) = &self.context.lists.visits else { return Ok(Box::default()) };
        let waiter = self.expect_within(ANSWER_TIME_MAX);
        let request = VisitLogRequest::Count(filter, waiter.ticket());
        queue.try_send(request).map_err(|error| refusal(&error))?;
        waiter.answer().await.map_or(Err(LATE), |VisitStatisticsAnswer(statistics)| Ok(statistics))
    }
}
