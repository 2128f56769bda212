//! The redirects of domains, for the tasks and the loop of a core.

use std::sync::Arc;

use super::ServiceHandle;
use crate::bridge::{DomainRedirectsAnswer, DomainRedirectsOrder, WriteFailure};
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
        let order = |ticket| DomainRedirectsOrder { domain, changes, ticket };
        self.order(&self.context.domain_redirects, order).await
    }

    /// Replaces the redirects of domains, for the loop.
    pub fn set_domain_redirects(&self, redirects: Arc<DomainRedirects>) {
        self.domain_redirects.replace(redirects);
    }
}
