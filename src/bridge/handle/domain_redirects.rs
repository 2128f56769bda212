//! The redirects of domains, for the tasks and the loop of a core.

use std::sync::Arc;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::{DomainRedirectsAnswer, DomainRedirectsOrder};
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
    /// The reason why that cannot be done now, in words for the client.
    pub async fn change_domain_redirects(
        &self,
        domain: DomainName,
        changes: Vec<(TargetKind, Option<LongUrl>)>,
    ) -> Result<DomainRedirectsAnswer, &'static str> {
        let waiter = self.expect_within(ANSWER_TIME_MAX);
        let order = DomainRedirectsOrder { domain, changes, ticket: waiter.ticket() };
        self.context.domain_redirects.try_send(order).map_err(|error| refusal(&error))?;
        waiter.answer().await.ok_or(LATE)
    }

    /// Replaces the redirects of domains, for the loop.
    pub fn take_domain_redirects(&self, redirects: Arc<DomainRedirects>) {
        self.domain_redirects.replace(redirects);
    }
}
