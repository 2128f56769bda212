//! APIs of other shorteners, for clients that already exist. Requests are translated to those of the REST API, and
//! responses to the other format.

mod bitly;
pub(super) mod form;
mod yourls;

use std::sync::Arc;

use carom_shards::Code;

use super::context::Context;
use super::problem::Problem;
use carom_model::domains::DomainName;
use carom_model::link::Link;
use carom_model::visits::tally::VisitCounts;

impl Context {
    /// Returns the codes that a search term may name: in the domain that it names, or in each domain of the
    /// service.
    pub(super) fn codes_called(&self, term: &str) -> Vec<Code> {
        let domains = self.domains();
        let Ok(code) = Code::parse(code_in(term).as_bytes()) else { return Vec::new() };
        match host_in(term).map(|host| domains.of_host(host.as_bytes())) {
            Some(Some(place)) => vec![code.within(domains.id_at(place))],
            // The URL has the host of another service.
            Some(None) => Vec::new(),
            None => {
                let places = domains.all().iter().filter_map(|domain| domains.place_of(&domain.name));
                let mut codes: Vec<Code> = places.map(|place| code.within(domains.id_at(place))).collect();
                codes.sort_unstable();
                codes.dedup();
                codes
            }
        }
    }

    /// Finds a link by its code or by its short URL, with or without a scheme. A host that the service does not
    /// serve is ignored.
    async fn find_called(&self, name: &str) -> Result<(Arc<Link>, VisitCounts), Problem> {
        let named = host_in(name).and_then(|host| self.domains().of_host(host.as_bytes()));
        let domain = match named {
            Some(place) => self.domains().id_at(place),
            None => self.caller.domain_meant().map(DomainName::id),
        };
        let code = code_in(name);
        let parsed = Code::parse(code.as_bytes()).map_err(|_| Problem::no_link(code))?;
        self.find(parsed.within(domain)).await
    }
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
}
