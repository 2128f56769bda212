//! Requests for a link with more in their path than a short code: slugs with slashes, a path behind the slug, and the query
//! parameter that marks requests which are no visits. They leave the fast path, so redirects without them cost nothing
//! more.

use std::borrow::Cow;

use hyper::Request;
use hyper::body::Incoming;

use super::context::Context;
use super::public::routes;
use super::query::percent_decoded;
use super::request::is_read;
use super::response::ApiResponse;
use carom_http::redirect::{has_parameter, without_parameter};
use carom_model::destination::extra_path::{ExtraPath, with_extra_path};
use carom_model::domains::DomainIndex;
use carom_model::domains::redirects::TargetKind;
use carom_model::redirect::{Destination, Lookup, MissLimit};
use carom_model::visits::record::LoggedKind;
use carom_shards::Code;

/// A link that a path may mean, and the rest of the path.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PathCandidate {
    code: Code,
    extra: String,
}

/// The settings by which a path is read.
#[derive(Clone, Copy, Debug)]
struct PathRules {
    trailing_slash: bool,
    has_extra_path: bool,
    multi_segment: bool,
}

/// Returns the links that the segments of a path may mean, in the order in which they are tried. As in Shlink, all
/// segments come first, then the shortest slug. Slugs with slashes that exist redirect whatever the settings are; a path
/// behind them needs the setting. There are at most 32, because a slug has at most 31 segments.
fn candidates(segments: &[&str], rules: PathRules) -> Vec<PathCandidate> {
    let slug = |segments: &[&str]| Code::from_slug(percent_decoded(&segments.join("/")).as_bytes());
    let mut found = Vec::new();
    let whole = match segments.split_last() {
        Some((&"", segments)) if rules.trailing_slash => segments,
        _ => segments,
    };
    found.extend(slug(whole).ok().map(|code| PathCandidate { code, extra: String::new() }));
    if rules.has_extra_path {
        let most = if rules.multi_segment { segments.len() } else { 2 };
        for len in 1..most.min(segments.len()) {
            // Further segments do not make it a slug.
            let Ok(code) = slug(&segments[..len]) else { break };
            found.push(PathCandidate { code, extra: segments[len..].join("/") });
        }
    }
    found
}

/// The part of a link that a path asks for instead of a redirect, where the slug has slashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathForm {
    Preview,
    QrCode,
    Pixel,
}

/// Splits a decoded path into the code of a link whose slug has slashes, and the part of the link that it asks for.
fn form_of(path: &str) -> Option<(Code, PathForm)> {
    let forms = [("+", PathForm::Preview), ("/qr-code", PathForm::QrCode), ("/track", PathForm::Pixel)];
    let (slug, form) = forms.into_iter().find_map(|(end, form)| Some((path.strip_suffix(end)?, form)))?;
    let code = Code::from_slug(slug.as_bytes()).ok()?;
    code.has_slashes().then_some((code, form))
}

impl Context {
    /// Returns a request with the path that the routes have for it.
    pub(super) fn at_route<B>(&self, request: Request<B>) -> Request<B> {
        let request = routes::at_version_3(request);
        if self.site.slugs.multi_segment { routes::with_whole_slug(request) } else { request }
    }

    /// Answers a request whose path is no route: it may be that of a link with slashes in its slug, or with a path behind
    /// its slug.
    pub(super) async fn off_route(&self, segments: &[&str], request: &Request<Incoming>) -> ApiResponse {
        let asked = form_of(&percent_decoded(&segments.join("/"))).filter(|_| is_read(request.method()));
        let Some((code, form)) = asked else { return self.redirect_path(segments, request).await };
        if self.client_of(request).is_limited() {
            return self.too_many(request);
        }
        // The path behind a shorter slug may end in the same way, and without slashes in slugs such a path is unknown.
        let needs_link = self.site.extra_path != ExtraPath::Off || !self.site.slugs.multi_segment;
        if needs_link && self.read_at(code, self.domain_of(request)).await.0 == Lookup::Missing {
            return self.redirect_path(segments, request).await;
        }
        let slug = code.as_slug().to_string();
        match form {
            PathForm::Preview => self.preview(&slug, request).await,
            PathForm::QrCode => self.public_qr(&slug, request).await,
            PathForm::Pixel => self.pixel(&slug, request).await,
        }
    }

    async fn redirect_path(&self, segments: &[&str], request: &Request<Incoming>) -> ApiResponse {
        let domain = self.domain_of(request);
        let rules = PathRules {
            trailing_slash: self.site.trailing_slash,
            has_extra_path: self.site.extra_path != ExtraPath::Off,
            multi_segment: self.site.slugs.multi_segment,
        };
        let candidates = if is_read(request.method()) { candidates(segments, rules) } else { Vec::new() };
        let Some(PathCandidate { code: first, .. }) = candidates.first() else {
            return self.orphan_page(request, domain, LoggedKind::Regular404);
        };
        if self.client_of(request).is_limited() {
            return self.too_many(request);
        }
        let kind = if rules.multi_segment { TargetKind::InvalidShortUrl } else { TargetKind::Regular404 };
        let mut is_unconfirmed = false;
        for PathCandidate { code, extra } in &candidates {
            let (code, lookup) = self.look_up_at(*code, domain, request).await;
            let appends = self.site.extra_path == ExtraPath::Append && !extra.is_empty();
            let lookup = match lookup {
                Lookup::Missing | Lookup::Unconfirmed => {
                    is_unconfirmed |= lookup == Lookup::Unconfirmed;
                    continue;
                }
                Lookup::Live(Destination { policy, target }) if appends => {
                    Lookup::Live(Destination { policy, target: with_extra_path(&target, extra.as_bytes()).into() })
                }
                other => other,
            };
            return self.answer_lookup(request, domain, code, &lookup, kind);
        }
        let is_slash = segments.last() == Some(&"") && rules.trailing_slash;
        if !is_unconfirmed && !is_slash && !rules.has_extra_path && !rules.multi_segment {
            return self.missing_page(request, domain);
        }
        let id = domain.and_then(|domain| self.domains().id_at(domain));
        let lookup = if is_unconfirmed { Lookup::Unconfirmed } else { Lookup::Missing };
        self.answer_lookup(request, domain, first.within(id), &lookup, kind)
    }

    /// Returns the response for a page that no setting makes a short URL. It counts for the miss limit, since the path
    /// was looked up.
    fn missing_page(&self, request: &Request<Incoming>, domain: Option<DomainIndex>) -> ApiResponse {
        if domain.is_some() && self.client_of(request).misses_too_often() {
            return self.too_many(request);
        }
        self.orphan_page(request, domain, LoggedKind::Regular404)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: PathRules = PathRules { trailing_slash: false, has_extra_path: false, multi_segment: false };
    const EXTRA: PathRules = PathRules { has_extra_path: true, ..PLAIN };
    const ALL: PathRules = PathRules { trailing_slash: true, has_extra_path: true, multi_segment: true };

    fn of(path: &str, rules: PathRules) -> Vec<(String, String)> {
        let segments: Vec<&str> = path.split('/').collect();
        candidates(&segments, rules).into_iter().map(|one| (one.code.as_slug().to_string(), one.extra)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(slug, extra)| ((*slug).to_owned(), (*extra).to_owned())).collect()
    }

    #[test]
    fn all_segments_come_first_then_the_shortest_slug() {
        assert_eq!(of("a/b/c", PLAIN), pairs(&[("a/b/c", "")]));
        assert_eq!(of("a/b/c", EXTRA), pairs(&[("a/b/c", ""), ("a", "b/c")]));
        assert_eq!(of("a/b/c", ALL), pairs(&[("a/b/c", ""), ("a", "b/c"), ("a/b", "c")]));
        assert_eq!(of("a/b/", ALL), pairs(&[("a/b", ""), ("a", "b/"), ("a/b", "")]));
        assert_eq!(of("a/", PathRules { trailing_slash: true, ..PLAIN }), pairs(&[("a", "")]));
        assert_eq!(of("a/%62/x.html", ALL), pairs(&[("a", "%62/x.html"), ("a/b", "x.html")]));
        for none in ["a//b", "/a", "a/", "a/x.html", "%20/b"] {
            assert!(of(none, PLAIN).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_path_says_what_it_asks_of_a_link() {
        let code = Code::from_slug(b"a/b").unwrap();
        assert_eq!(form_of("a/b+"), Some((code, PathForm::Preview)));
        assert_eq!(form_of("a/b/qr-code"), Some((code, PathForm::QrCode)));
        assert_eq!(form_of("a/b/track"), Some((code, PathForm::Pixel)));
        // These are routes, paths that redirect, or no paths of links.
        for other in ["a", "a+", "a/", "a/qr-code", "a/track", "a/b", "a/b/", "a//b+", "a/b.html+", "/a/b/track"] {
            assert_eq!(form_of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn candidates_are_few_and_cover_the_path(path in "[ab/.%]{0,80}") {
            let found = of(&path, ALL);
            prop_assert!(found.len() <= 32);
            for (slug, extra) in &found[..] {
                let together = if extra.is_empty() { slug.clone() } else { format!("{slug}/{extra}") };
                prop_assert_eq!(together.trim_end_matches('/'), path.trim_end_matches('/'));
            }
        }
    }
}
