//! The redirects of domains, for the tasks and the loop of a core.

use std::sync::Arc;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::{DomainRedirectsAnswer, DomainRedirectsOrder, WriteFailure};
use carom_limits::ANSWER_TIME_MAX;
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::DomainName;
use carom_model::domains::redirects::{DomainRedirects, TargetKind};

impl ServiceHandle {
    /// Returns the redirects of domains for requests that find no link.
    pub fn domain_redirects(&self) -> Arc<DomainRedirects> {
        Arc::clone(&self.domain_redirects.borrow())
    }

    /// Replaces redirects of a domain of the service.
    ///
    /// # Errors
    /// The reason why that was not done, or not for certain.
    pub async fn change_domain_redirects(
        &self,
        domain: DomainName,
        changes: Vec<(TargetKind, Option<LongUrl>)>,
    ) -> Result<DomainRedirectsAnswer, WriteFailure> {
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        let order = DomainRedirectsOrder { domain, changes, ticket: waiter.ticket() };
        let sent = self.context.domain_redirects.try_send(order);
        sent.map_err(|error| WriteFailure::Refused(refusal(&error)))?;
        waiter.answer().await.ok_or(WriteFailure::Unconfirmed(LATE))
    }

    /// Replaces the redirects of domains, for the loop.
    pub fn set_domain_redirects(&self, redirects: Arc<DomainRedirects>) {
        self.domain_redirects.replace(redirects);
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
    use crate::bridge::handle::batches::tests::services;

    fn changed(queue_len: usize) -> Result<DomainRedirectsAnswer, WriteFailure> {
        let (mut services, _) = services(1);
        let (queue, _orders) = sync_channel(queue_len);
        Rc::get_mut(&mut services).unwrap().context.domain_redirects = queue;
        let domain = services.context.domains.all()[0].name.clone();
        let mut changing = pin!(services.change_domain_redirects(domain, Vec::new()));
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = changing.as_mut().poll(&mut context) {
            return answer;
        }
        // Waiters end without an answer, as at their deadline.
        services.close();
        let Poll::Ready(answer) = changing.as_mut().poll(&mut context) else { panic!("it waits on") };
        answer
    }

    #[test]
    fn a_late_change_cannot_be_confirmed_and_a_full_queue_refuses_it() {
        assert_eq!(changed(1), Err(WriteFailure::Unconfirmed(LATE)));
        assert!(matches!(changed(0), Err(WriteFailure::Refused(_))));
    }
}
