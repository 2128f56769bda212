//! Virtual hosts: the domain that a request's host names, and the code within it.

use std::sync::Arc;

use carom_shards::Code;

use carom_http::RedirectRequest;
use carom_model::domains::{DomainIndex, Domains};

/// The domains of a service, or `None` inside if it has only the default one, which then serves any host.
#[derive(Clone, Debug)]
pub(super) struct HostRouter(Option<Arc<Domains>>);

impl HostRouter {
    pub(super) fn new(domains: &Arc<Domains>) -> HostRouter {
        HostRouter(domains.is_strict().then(|| Arc::clone(domains)))
    }

    /// True if a request may name one of several domains.
    #[inline]
    pub(super) fn has_several_domains(&self) -> bool {
        self.0.is_some()
    }

    /// The domain of a request, and its code there; no domain if the service does not serve the host.
    #[inline]
    pub(super) fn resolve(&self, request: &RedirectRequest, head: &[u8]) -> (Option<DomainIndex>, Code) {
        if self.has_several_domains() {
            self.of_host(request.code, request.host.of(head))
        } else {
            (Some(DomainIndex::default()), request.code)
        }
    }

    /// Returns the domain of a host, and the code within it.
    #[inline]
    pub(super) fn of_host(&self, code: Code, host: &[u8]) -> (Option<DomainIndex>, Code) {
        let Some(domains) = &self.0 else { return (Some(DomainIndex::default()), code) };
        match domains.of_host(host) {
            Some(domain) => (Some(domain), code.within(domains.id_at(domain))),
            None => (None, code),
        }
    }

    /// Returns the code of the default domain that may stand in where `code` has no link, if any.
    #[inline]
    pub(super) fn fallback_of(&self, code: &Code) -> Option<Code> {
        self.0.as_ref().and_then(|domains| domains.fallback_of(code))
    }
}
