//! Previews of links (`GET /{code}+`): show the destination without a redirect, and without counting a visit.

use std::sync::Arc;

use carom_shards::{Code, Phase};
use hyper::header;
use hyper::{Request, StatusCode};

use super::home::shown;
use crate::api::page::as_html;
use crate::api::{Answer, Context, accepts_html, answer, with};
use crate::bridge::{StoreAnswer, StoreRequest};
use crate::pages::{Notice, Preview};
use carom_model::dates;
use carom_model::destination::hosts::host_of;
use carom_model::link::Link;
use carom_telemetry::clock::unix_ms;

impl Context {
    /// Returns the preview of a code.
    pub(in crate::api) async fn preview<B>(&self, code: &str, request: &Request<B>) -> Answer {
        match self.find_followable(code, request).await {
            Ok(link) => self.show_preview(&link, request),
            Err(answer) => answer,
        }
    }

    /// Finds a link that redirects now, without counting a visit.
    ///
    /// # Errors
    /// The response to send instead.
    pub(in crate::api) async fn find_followable<B>(
        &self,
        code: &str,
        request: &Request<B>,
    ) -> Result<Arc<Link>, Answer> {
        let place = self.place_of(request);
        if self.is_barred(place) {
            return Err(self.too_many(request));
        }
        let domain = self.domain_of(request);
        let (Ok(code), Some(at)) = (Code::parse(code.as_bytes()), domain) else {
            return Err(self.lost(request, domain, Notice::NotFound));
        };
        let code = code.within(self.domains().id_at(at));
        let mut answer = self.desk.store(|ticket| StoreRequest::Read { code, ticket }).await;
        if let (StoreAnswer::NotFound, Some(code)) = (&answer, self.domains().fallback_of(&code)) {
            answer = self.desk.store(|ticket| StoreRequest::Read { code, ticket }).await;
        }
        let other = match answer {
            StoreAnswer::Found(link, counts) => {
                let is_spent = link.policy.max_visits.is_some_and(|most| counts.total >= u64::from(most.get()));
                match link.policy.phase(unix_ms()) {
                    Phase::Live if is_spent => Notice::Gone,
                    Phase::Live if self.desk.blocks(link.target.as_bytes()) => Notice::Blocked,
                    Phase::Live => return Ok(link),
                    Phase::Early => Notice::NotFound,
                    Phase::Over => Notice::Gone,
                }
            }
            StoreAnswer::NotFound => Notice::NotFound,
            StoreAnswer::Damaged => Notice::Damaged,
            _ => Notice::Unavailable,
        };
        // Otherwise previews would allow unlimited guesses.
        if other == Notice::NotFound && self.misses_too_often(place) {
            return Err(self.too_many(request));
        }
        Err(self.lost(request, domain, other))
    }
}

/// Returns a host as people write it, and its punycode form if that differs.
fn hosts_of(target: &str) -> (String, Option<String>) {
    let host = host_of(target.as_bytes()).to_owned();
    let (shown, is_sound) = idna::domain_to_unicode(&host);
    if is_sound.is_ok() && shown != host { (shown, Some(host)) } else { (host, None) }
}

impl Context {
    fn show_preview<B>(&self, link: &Link, request: &Request<B>) -> Answer {
        let answer = if accepts_html(request) {
            let (host, punycode) = hosts_of(&link.target);
            let base_url = self.domains().base_url_of(link.labels.domain.as_ref());
            let page = self.pages().preview(&Preview {
                short_url: format!("{base_url}/{}", link.code.as_slug()),
                target: link.target.to_string(),
                host,
                punycode,
                title: link.labels.title.as_deref().map(str::to_owned),
                created: shown(link.created_ms),
                created_at: dates::format(link.created_ms),
                ends: link.policy.valid_until_ms.map(shown),
                ends_at: link.policy.valid_until_ms.map(dates::format),
            });
            as_html(StatusCode::OK, page)
        } else {
            answer(StatusCode::OK, "text/plain; charset=utf-8", format!("{}\n", link.target))
        };
        with(with(answer, header::VARY, "Accept"), header::REFERRER_POLICY, "no-referrer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_shown_as_people_write_it() {
        let of = |target: &str| hosts_of(target);
        assert_eq!(
            of("https://xn--bcher-kva.example:81/x"),
            ("bücher.example".to_owned(), Some("xn--bcher-kva.example".to_owned()))
        );
        assert_eq!(of("https://a.example/"), ("a.example".to_owned(), None));
        assert_eq!(of("https://[2001:db8::1]/"), ("[2001:db8::1]".to_owned(), None));
    }
}
