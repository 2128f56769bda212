//! APIs of other shorteners, for clients that already exist. Requests are translated to those of the REST API, and
//! responses to the other format.

mod bitly;
pub(super) mod form;
mod yourls;

use std::sync::Arc;

use carom_shards::Code;
use hyper::StatusCode;
use serde_json::{Map, Value};

use super::context::Context;
use super::problem::Problem;
use carom_model::domains::{DEFAULT_DOMAIN, DomainName};
use carom_model::link::Link;
use carom_model::visits::tally::VisitCounts;

impl Context {
    /// Names the default domain in a create that names none, so that only a link of this domain can be returned: clients of
    /// other shorteners know a single domain.
    fn name_domain(&self, fields: &mut Map<String, Value>) {
        if self.caller.implied_domain().is_none() {
            fields.entry("domain").or_insert_with(|| DEFAULT_DOMAIN.into());
        }
    }

    /// Returns the codes that a search term may name: in the domain that it names, or in each domain of the
    /// service.
    pub(super) fn codes_named(&self, term: &str) -> Vec<Code> {
        let domains = self.domains();
        let mut codes = Vec::new();
        for NameMeaning { host, slug } in meanings_of(term, self.site.slugs.multi_segment) {
            let Ok(exact) = Code::from_slug(slug.as_bytes()) else { continue };
            let lower = exact.in_lower_case().filter(|_| domains.ignores_case());
            for code in [Some(exact), lower].into_iter().flatten() {
                match host.map(|host| domains.of_host(host.as_bytes())) {
                    Some(Some(place)) => codes.push(code.within(domains.id_at(place))),
                    // The URL has the host of another service.
                    Some(None) => {}
                    None => {
                        let places = domains.all().iter().filter_map(|domain| domains.place_of(&domain.name));
                        codes.extend(places.map(|place| code.within(domains.id_at(place))));
                    }
                }
            }
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Finds a link by its code or by its short URL, with or without a scheme. A host that the service does not
    /// serve is ignored.
    async fn find_named(&self, name: &str) -> Result<(Arc<Link>, VisitCounts), Problem> {
        let mut missing = Problem::no_link(code_in(name));
        let multi_segment = self.site.slugs.multi_segment;
        for NameMeaning { host, slug } in meanings_of(name, multi_segment) {
            let place = host.and_then(|host| self.domains().of_host(host.as_bytes()));
            // It may be a segment of a slug as well, and the rest would be another link.
            let may_be_segment = multi_segment && host.is_some_and(|host| Code::parse(host.as_bytes()).is_ok());
            let domain = match place {
                Some(place) => self.domains().id_at(place),
                None if may_be_segment => continue,
                None => self.caller.implied_domain().map(DomainName::id),
            };
            let Ok(code) = Code::from_slug(slug.as_bytes()) else { continue };
            match self.find(self.exact_or_lower(code.within(domain)).await).await {
                // Any other problem says nothing about whether the link exists, so no other may stand in.
                Err(problem) if problem.status() == StatusCode::NOT_FOUND => missing = problem,
                answer => return answer,
            }
        }
        Err(missing)
    }
}

/// A meaning of a name: a slug, and the host before it if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameMeaning<'n> {
    host: Option<&'n str>,
    slug: &'n str,
}

/// Returns the meanings of a name, in the order in which they are tried: the whole name is a slug; all segments behind
/// the host are one; the last segment is one, unless the others may belong to the slug.
fn meanings_of(name: &str, multi_segment: bool) -> Vec<NameMeaning<'_>> {
    let host = host_in(name);
    let end = name.find(['?', '#']).unwrap_or(name.len());
    let whole = name[..end].trim_matches('/');
    let behind_scheme = whole.split_once("://").map_or(whole, |(_, rest)| rest);
    let path = host.and_then(|host| behind_scheme.strip_prefix(host)).map_or(whole, |path| path.trim_matches('/'));
    let mut all = vec![NameMeaning { host: None, slug: whole }, NameMeaning { host, slug: path }];
    if !multi_segment {
        all.push(NameMeaning { host, slug: code_in(name) });
    }
    all.dedup();
    all
}

/// Returns the host of a short URL, with or without a scheme.
fn host_in(name: &str) -> Option<&str> {
    let behind_scheme = name.split_once("://").map_or(name, |(_, rest)| rest);
    behind_scheme.split_once('/').map(|(host, _)| host).filter(|host| !host.is_empty())
}

/// Returns the code in a short URL: the text behind its last slash and before a query.
fn code_in(name: &str) -> &str {
    let end = name.find(['?', '#']).unwrap_or(name.len());
    let path = name[..end].trim_end_matches('/');
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_many_names() {
        for name in [
            "abc",
            "go.example/abc",
            "https://go.example:8080/abc",
            "http://go.example/abc/?x=/y#z",
            "go.example/a/abc",
        ] {
            assert_eq!(code_in(name), "abc", "{name}");
            let host = host_in(name).map(|host| host.trim_end_matches(":8080"));
            assert_eq!(host, Some("go.example").filter(|_| name != "abc"), "{name}");
        }
        assert_eq!((code_in(""), code_in("/"), code_in("?")), ("", "", ""));
    }

    #[test]
    fn a_slug_with_slashes_is_called_like_others() {
        let of = |name: &'static str| {
            meanings_of(name, false).into_iter().map(|one| (one.host, one.slug)).collect::<Vec<_>>()
        };
        assert_eq!(of("abc"), [(None, "abc")]);
        assert_eq!(of("/docs/a/"), [(None, "docs/a"), (None, "a")]);
        assert_eq!(of("docs/a"), [(None, "docs/a"), (Some("docs"), "a")]);
        let host = Some("go.example:81");
        let url = "https://go.example:81/docs/a?b=/c";
        assert_eq!(of(url), [(None, "https://go.example:81/docs/a"), (host, "docs/a"), (host, "a")]);
        let [_, behind_host] = meanings_of(url, true)[..] else { panic!("the last segment may be a part of a slug") };
        assert_eq!(behind_host, NameMeaning { host, slug: "docs/a" });
    }
}
