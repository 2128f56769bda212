//! Which domain a request means, and what that changes of its answer: where the service has several.

use std::sync::Arc;

use carom_shards::Code;

use super::conn::{Awaits, ConnState};
use super::data::Remote;
use super::mesh::Question;
use super::work::Work;
use crate::domains::{Domains, Place};
use crate::wire::RedirectRequest;

/// The domains of a service; none where there is only the default one, which any host means.
#[derive(Clone, Debug)]
pub(super) struct Places(Option<Arc<Domains>>);

impl Places {
    pub(super) fn new(domains: &Arc<Domains>) -> Places {
        Places(domains.is_strict().then(|| Arc::clone(domains)))
    }

    /// Whether there is more than one that a request may mean.
    #[inline]
    pub(super) fn are_many(&self) -> bool {
        self.0.is_some()
    }

    /// The domain that a request means, and its code there; no domain where its host is none of the service.
    #[inline]
    pub(super) fn resolve(&self, request: &RedirectRequest, head: &[u8]) -> (Option<Place>, Code) {
        match self.are_many() {
            true => self.of_host(request.code, request.host.of(head)),
            false => (Some(Place::default()), request.code),
        }
    }

    /// The domain of a host, and the code there.
    #[inline]
    pub(super) fn of_host(&self, code: Code, host: &[u8]) -> (Option<Place>, Code) {
        let Some(domains) = &self.0 else { return (Some(Place::default()), code) };
        match domains.of_host(host) {
            Some(place) => (Some(place), code.within(domains.id_at(place))),
            None => (None, code),
        }
    }

    /// What else may be meant where there is no link of that code.
    #[inline]
    pub(super) fn fallback_of(&self, code: &Code) -> Option<Code> {
        self.0.as_ref().and_then(|domains| domains.fallback_of(code))
    }
}

impl Work {
    /// Asks for the link of the default domain that may stand in for one that there is not.
    pub(super) fn ask_again(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let token = conn.token();
        let ConnState::LookingUp(pending) = &mut conn.state else { return };
        if pending.awaits != Awaits::Turn {
            return;
        }
        let code = pending.code;
        let Some(mut data) = self.data.take() else { return };
        match data.find(&code, self.now.unix_ms) {
            Ok(found) => {
                // Whoever calls resumes it.
                self.take_answer(token, &found, true, &mut Vec::new());
            }
            Err(Remote { owner, hash, wanted }) => {
                pending.awaits = Awaits::Owner { wanted };
                self.stats.forwarded_out.add(1);
                data.mesh.ask(owner, Question { token, hash, code });
            }
        }
        self.data = Some(data);
    }
}
