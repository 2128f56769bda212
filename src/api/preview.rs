//! `GET /{code}+`: where a link leads, without following it. Nothing is counted, and no visit of a limited link is used up.

use std::fmt::Write;

use carom_shards::{Code, Phase};
use hyper::header;
use hyper::{Request, StatusCode};

use super::page::{as_html, escaped};
use super::{Answer, Context, accepts_html, answer, with};
use crate::hosts::host_of;
use crate::link::Link;
use crate::mail::{StoreAnswer, StoreRequest};
use crate::stats::unix_ms;
use crate::wire::pages;

impl Context {
    /// The preview of a code.
    pub(super) async fn preview<B>(&self, code: &str, request: &Request<B>) -> Answer {
        let place = self.place_of(request);
        if self.is_barred(place) {
            return self.too_many(request);
        }
        let domain = self.domain_of(request);
        let (Ok(code), Some(at)) = (Code::parse(code.as_bytes()), domain) else {
            return self.lost(request, domain, &pages::NOT_FOUND);
        };
        let code = code.within(self.domains().id_at(at));
        let mut answer = self.desk.store(|ticket| StoreRequest::Read { code, ticket }).await;
        if let (StoreAnswer::NotFound, Some(code)) = (&answer, self.domains().fallback_of(&code)) {
            answer = self.desk.store(|ticket| StoreRequest::Read { code, ticket }).await;
        }
        let found = match answer {
            StoreAnswer::Found(link, counts) => {
                let is_spent = link.policy.max_visits.is_some_and(|most| counts.total >= u64::from(most.get()));
                match link.policy.phase(unix_ms()) {
                    Phase::Live if is_spent => Err(&pages::GONE),
                    Phase::Live if self.desk.blocks(link.target.as_bytes()) => Err(&pages::BLOCKED),
                    Phase::Live => Ok(link),
                    Phase::Early => Err(&pages::NOT_FOUND),
                    Phase::Over => Err(&pages::GONE),
                }
            }
            StoreAnswer::NotFound => Err(&pages::NOT_FOUND),
            StoreAnswer::Damaged => Err(&pages::DAMAGED),
            _ => Err(&pages::UNAVAILABLE),
        };
        match found {
            Ok(link) => show(&link, request),
            // Else previews would be the way to guess.
            Err(&pages::NOT_FOUND) if self.misses_too_often(place) => self.too_many(request),
            Err(other) => self.lost(request, domain, other),
        }
    }
}

fn show<B>(link: &Link, request: &Request<B>) -> Answer {
    let answer = if accepts_html(request) {
        let (host, target) = (escaped(host_of(link.target.as_bytes())), escaped(&link.target));
        let mut text = String::new();
        let _ = write!(
            text,
            "<h1>This link leads to {host}</h1><p>{target}</p><p><a rel=\"noreferrer nofollow\" href=\"{target}\">Go there</a></p>"
        );
        as_html(pages::with_content("Where this link leads", &text))
    } else {
        answer(StatusCode::OK, "text/plain; charset=utf-8", format!("{}\n", link.target))
    };
    with(with(answer, header::VARY, "Accept"), header::REFERRER_POLICY, "no-referrer")
}
