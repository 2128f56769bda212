//! Virtual hosts: the domain that a request's host names, and the code within it.

use std::sync::Arc;

use carom_shards::{Code, DomainId};

use carom_http::RedirectRequest;
use carom_model::domains::{DomainIndex, Domains};

/// The domains of a service, and the fallback codes of missing ones.
#[derive(Clone, Debug)]
pub(super) struct HostRouter {
    /// The domains; `None` if the service has only the default one, which then serves any host.
    domains: Option<Arc<Domains>>,
    /// True if a code that has no link leads to the link with its form in lower case.
    ignores_case: bool,
}

impl HostRouter {
    pub(super) fn new(domains: &Arc<Domains>) -> HostRouter {
        HostRouter { domains: domains.is_strict().then(|| Arc::clone(domains)), ignores_case: domains.ignores_case() }
    }

    /// True if a request may name one of several domains.
    #[inline]
    pub(super) fn has_several_domains(&self) -> bool {
        self.domains.is_some()
    }

    /// Returns the domain of a request, and its code there. The domain is `None` if the service does not serve the
    /// host.
    #[inline]
    pub(super) fn resolve(&self, request: &RedirectRequest, head: &[u8]) -> (Option<DomainIndex>, Code) {
        if self.has_several_domains() {
            self.resolve_host(request.code, request.host.of(head))
        } else {
            (Some(DomainIndex::default()), request.code)
        }
    }

    /// Returns the domain of a host, and the code within it.
    #[inline]
    pub(super) fn resolve_host(&self, code: Code, host: &[u8]) -> (Option<DomainIndex>, Code) {
        let Some(domains) = &self.domains else { return (Some(DomainIndex::default()), code) };
        match domains.of_host(host) {
            Some(domain) => (Some(domain), code.within(domains.id_at(domain))),
            None => (None, code),
        }
    }

    /// Returns the code that is looked up when `code` is missing, for a request on that domain, if there is one.
    #[inline]
    pub(super) fn fallback_of(&self, code: &Code, domain: DomainIndex) -> Option<Code> {
        self.fallback_at(code, || self.domains.as_ref().and_then(|domains| domains.id_at(domain)))
    }

    /// True if another code is looked up after this one was missing.
    pub(super) fn has_fallback(&self, code: &Code) -> bool {
        self.fallback_at(code, || code.domain()).is_some()
    }

    #[inline]
    fn fallback_at(&self, code: &Code, at: impl FnOnce() -> Option<DomainId>) -> Option<Code> {
        match &self.domains {
            Some(domains) => domains.next_of(code, at()),
            None if self.ignores_case => code.in_lower_case(),
            None => None,
        }
    }
}
