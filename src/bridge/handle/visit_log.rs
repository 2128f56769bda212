//! Queries of the log of visits.

use super::batch::LATE;
use super::{ServiceHandle, refusal};
use crate::bridge::Ticket;
use crate::bridge::visit_log::{VisitLogAnswer, VisitLogRequest, VisitPage};
use carom_limits::ANSWER_TIME_MAX;

impl ServiceHandle {
    /// Asks the log of visits. Without such a log, the page is empty and incomplete.
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
}
