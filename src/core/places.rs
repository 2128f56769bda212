//! Virtual hosts: the domain that a request's host names, and the responses that depend on it.

use std::sync::Arc;

use carom_shards::Code;

use super::data;
use super::mesh::Question;
use super::work::Work;
use crate::wire::Ask;
use crate::wire::answer::{Found, Told};
use carom_model::domains::{Domains, Place, UnknownHost};

/// The domains of a service, or `None` inside if it has only the default one, which then serves any host.
#[derive(Clone, Debug)]
pub(super) struct Places(Option<Arc<Domains>>);

impl Places {
    pub(super) fn new(domains: &Arc<Domains>) -> Places {
        Places(domains.is_strict().then(|| Arc::clone(domains)))
    }

    /// True if a request may name one of several domains.
    #[inline]
    pub(super) fn are_many(&self) -> bool {
        self.0.is_some()
    }

    /// Resolves the host of a request: sets the domain and the code within it. The domain is `None` if the service does
    /// not have it.
    #[inline]
    pub(super) fn locate(&self, ask: &mut Ask, head: &[u8]) {
        if self.are_many() {
            (ask.place, ask.code) = self.of_host(ask.code, ask.host.of(head));
        }
    }

    /// Returns the domain of a host, and the code within it.
    #[inline]
    pub(super) fn of_host(&self, code: Code, host: &[u8]) -> (Option<Place>, Code) {
        let Some(domains) = &self.0 else { return (Some(Place::default()), code) };
        match domains.of_host(host) {
            Some(place) => (Some(place), code.within(domains.id_at(place))),
            None => (None, code),
        }
    }

    /// Returns the code of the default domain that may stand in where `code` has no link, if any.
    #[inline]
    pub(super) fn fallback_of(&self, code: &Code) -> Option<Code> {
        self.0.as_ref().and_then(|domains| domains.fallback_of(code))
    }

    /// Returns the response of domain `place`, given the response that the default rules produce.
    #[inline]
    pub(super) fn told<'a>(&'a self, told: Told<'a>, place: Option<Place>) -> Told<'a> {
        match &self.0 {
            Some(domains) => told_by(domains, told, place),
            None => told,
        }
    }
}

fn told_by<'a>(domains: &'a Domains, told: Told<'a>, place: Option<Place>) -> Told<'a> {
    let Told::Found(found @ (Found::Missing | Found::Early | Found::Gone)) = told else { return told };
    let Some(place) = place else {
        return if domains.unknown_host() == UnknownHost::Misdirected { Told::Misdirected } else { told };
    };
    let targets = &domains.at(place).targets;
    let target = if found == Found::Gone { &targets.expired } else { &targets.not_found };
    target.as_deref().map_or(told, Told::Away)
}

impl Work {
    /// Looks up the link of the default domain that may stand in for a missing one.
    pub(super) fn ask_again(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let token = conn.token();
        let Some(asking) = conn.asking.as_mut().filter(|asking| asking.again) else { return };
        asking.again = false;
        let code = asking.ask.code;
        let Some(mut data) = self.data.take() else { return };
        match data.find(&code, self.now.unix_ms) {
            data::Place::Here(found) | data::Place::Copy(found) => {
                // The caller resumes the connection.
                self.take_answer(token, &found, true, &mut Vec::new());
            }
            data::Place::There { owner, hash, wanted } => {
                asking.wanted = wanted;
                self.stats.forwarded_out.add(1);
                data.mesh.ask(owner, Question { token, hash, code });
            }
        }
        self.data = Some(data);
    }
}
