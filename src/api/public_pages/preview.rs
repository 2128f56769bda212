//! Previews of links (`GET /{code}+`): show the destination without a redirect, and without counting a visit.

use std::sync::Arc;

use carom_shards::Code;
use hyper::header;
use hyper::{Request, StatusCode};

use super::form::shown;
use crate::api::context::Context;
use crate::api::page::as_html;
use crate::api::request::accepts_html;
use crate::api::response::{ApiResponse, answer, with};
use crate::bridge::LinkAnswer;
use crate::pages::Preview;
use carom_model::destination::hosts::{host_of, unicode_of};
use carom_model::domains::DomainIndex;
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::redirect::Notice;
use carom_model::redirect::{Decision, Destination, Lookup, MissLimit, Response, ResponseRules, decide};

impl Context {
    /// Returns the preview of a code.
    pub(in crate::api) async fn preview<B>(&self, code: &str, request: &Request<B>) -> ApiResponse {
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
    ) -> Result<Arc<Link>, ApiResponse> {
        let mut client = self.client_of(request);
        if client.is_limited() {
            return Err(self.too_many(request));
        }
        let domain = self.domain_of(request);
        let Ok(code) = Code::from_slug(code.as_bytes()) else {
            return Err(self.no_link_page(request, domain, Notice::NotFound));
        };
        let (stored, is_spent) = self.read_at(code, domain).await;
        let blocked = self.services.blocked();
        let redirects = self.services.domain_redirects();
        let response_rules = ResponseRules { blocked: blocked.as_deref(), redirects: &redirects };
        let lookup = match stored.at(self.services.unix_ms()) {
            // As with a redirect, the block list comes before the visit limit.
            Lookup::Live(Destination { target, .. }) if is_spent && !self.services.blocks(target) => Lookup::Expired,
            lookup => lookup,
        };
        let Decision { response, .. } = decide(&response_rules, domain, true, lookup, &mut client);
        match (response, &stored) {
            (Response::Redirect(_), Lookup::Live(link)) => Ok(Arc::clone(link)),
            (Response::Notice(Notice::TooMany), _) => Err(self.too_many(request)),
            (response, _) => Err(self.answer_with_response(request, &response)),
        }
    }

    /// The link of a code at a domain as the store has it, or that of a code that stands in; and whether it has no visits
    /// left.
    pub(in crate::api) async fn read_at(&self, code: Code, domain: Option<DomainIndex>) -> (Lookup<Arc<Link>>, bool) {
        let Some(at) = domain else { return (Lookup::Missing, false) };
        let id = self.domains().id_at(at);
        let mut code = code.within(id);
        let mut answer = self.services.read_link(code).await;
        while let (LinkAnswer::NotFound, Some(next)) = (&answer, self.domains().next_of(&code, id)) {
            code = next;
            answer = self.services.read_link(code).await;
        }
        match answer {
            LinkAnswer::Found(link, counts) => {
                let is_spent = link.policy.max_visits.is_some_and(|most| counts.total >= u64::from(most.get()));
                (Lookup::Live(link), is_spent)
            }
            LinkAnswer::NotFound => (Lookup::Missing, false),
            LinkAnswer::Damaged => (Lookup::Damaged, false),
            LinkAnswer::Refused(_) => (Lookup::NotResident, false),
        }
    }
}

/// Returns a host as people write it, and its punycode form if that differs.
fn hosts_of(target: &str) -> (String, Option<String>) {
    let host = host_of(target.as_bytes()).to_owned();
    match unicode_of(&host) {
        Some(shown) => (shown, Some(host)),
        None => (host, None),
    }
}

impl Context {
    fn show_preview<B>(&self, link: &Link, request: &Request<B>) -> ApiResponse {
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
