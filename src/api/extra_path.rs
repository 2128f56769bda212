//! Requests for a link with more than its code: a path behind the code, and the query parameter that marks requests
//! which are no visits. They leave the fast path, so redirects without either cost nothing more.

use std::borrow::Cow;

use hyper::body::Incoming;
use hyper::{Method, Request};

use super::context::Context;
use super::query::percent_decoded;
use super::request::is_read;
use super::response::ApiResponse;
use carom_http::redirect::{has_parameter, without_parameter};
use carom_model::destination::extra_path::{ExtraPath, with_extra_path};
use carom_model::domains::redirects::TargetKind;
use carom_model::redirect::{Destination, Lookup, MissLimit};
use carom_model::visits::record::LoggedKind;
use carom_shards::Code;

impl Context {
    /// Returns the code in a path that is no route, and the segments behind it, if the settings give them a meaning.
    pub(super) fn behind_code<'p>(&self, segments: &[&'p str], method: &Method) -> Option<(&'p str, Vec<&'p str>)> {
        let (code, extra) = segments.split_first().filter(|(code, _)| !code.is_empty())?;
        let is_slash = extra == [""];
        let has_meaning = is_slash && self.site.trailing_slash || self.site.extra_path != ExtraPath::Off;
        (is_read(method) && !extra.is_empty() && has_meaning).then(|| (*code, extra.to_vec()))
    }

    /// Answers a request for a link with a path behind its code.
    pub(super) async fn redirect_with(&self, code: &str, extra: Vec<&str>, request: &Request<Incoming>) -> ApiResponse {
        if self.client_of(request).is_limited() {
            return self.too_many(request);
        }
        let domain = self.domain_of(request);
        let Ok(code) = Code::parse(percent_decoded(code).as_bytes()) else {
            return self.orphan_page(request, domain, LoggedKind::Regular404);
        };
        let (code, lookup) = self.look_up_at(code, domain, request).await;
        let extra = extra.join("/");
        let appends = self.site.extra_path == ExtraPath::Append && !extra.is_empty();
        let lookup = match lookup {
            Lookup::Live(Destination { policy, target }) if appends => {
                Lookup::Live(Destination { policy, target: with_extra_path(&target, extra.as_bytes()).into() })
            }
            other => other,
        };
        self.answer_lookup(request, domain, code, &lookup, TargetKind::Regular404)
    }

    /// True if a request is no visit, by its query.
    pub(super) fn is_untracked<B>(&self, request: &Request<B>) -> bool {
        let name = self.services.context().nostat;
        !name.is_empty() && request.uri().query().is_some_and(|query| has_parameter(query.as_bytes(), name))
    }

    /// Returns the part of a query that goes to the destination.
    pub(super) fn forwarded_query<'q>(&self, query: &'q str) -> Cow<'q, str> {
        match self.services.context().nostat {
            "" => Cow::Borrowed(query),
            name => Cow::Owned(without_parameter(query, name)),
        }
    }
}
