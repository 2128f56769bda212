//! The names of links that people type: short codes and short URLs.

use crate::commands::node_api::{NodeApi, escaped};
use carom_model::destination::hosts::without_port;
use carom_settings::exit::{Exit, Reason};

/// The path of all links in the API.
pub(super) const LINKS: &str = "/rest/v3/short-urls";

/// Longest short code, in bytes.
const CODE_LEN_MAX: usize = 64;

/// Names of the API below the path of all links: a link with such a slug is reached with an escape.
const NAMES_OF_API: [&str; 3] = ["bulk", "export", "shorten"];

/// A link of a node, by its code and domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinkName {
    code: String,
    /// The domain as the API knows it; `None` for that which the key implies.
    domain: Option<String>,
}

impl LinkName {
    /// Finds out which link a text means. Asks the node for its domains if the text is a short URL.
    ///
    /// # Errors
    /// [`Reason::Usage`] if it can mean no link of this node.
    pub(super) fn find(api: &NodeApi, text: &str, domain: Option<&str>) -> Result<LinkName, Exit> {
        let (authority, code) = parsed(text)?;
        let Some(authority) = authority else {
            return Ok(LinkName { code, domain: domain.map(str::to_owned) });
        };
        if domain.is_some() {
            let what = format!("{text} names its domain already");
            return Err(Exit::new(Reason::Usage, what).with_remedy("pass the short code, or leave out --domain"));
        }
        let answer = api.get("/rest/v3/domains")?;
        let listed = answer["domains"]["data"].as_array().ok_or_else(|| api.foreign("it has no list of domains"))?;
        let domains: Vec<(&str, bool)> = listed
            .iter()
            .filter_map(|domain| Some((domain["domain"].as_str()?, domain["isDefault"] == true)))
            .collect();
        let Some(domain) = domain_of(&authority, &domains) else {
            let names: Vec<&str> = domains.iter().map(|(name, _)| *name).collect();
            let what = format!("{authority} is not a domain of {}; it has {}", api.url(), names.join(", "));
            return Err(Exit::new(Reason::Usage, what).with_remedy("log in to the node of that domain, or pass --url"));
        };
        Ok(LinkName { code, domain: Some(domain) })
    }

    /// Returns the short code.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// Returns the path of the link in the API, with its query.
    pub(super) fn path(&self) -> String {
        self.path_below("", "")
    }

    /// Returns a path below that of the link, with further parameters, such as `a=b&c=d`.
    pub(super) fn path_below(&self, below: &str, parameters: &str) -> String {
        let code = if NAMES_OF_API.contains(&self.code.as_str()) {
            format!("%{:02X}{}", self.code.as_bytes()[0], &self.code[1..])
        } else {
            self.code.clone()
        };
        let domain = self.parameter();
        let query: Vec<&str> = [domain.as_str(), parameters].into_iter().filter(|part| !part.is_empty()).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("{LINKS}/{code}{below}{query}")
    }

    /// Returns the parameter of the domain; empty without one.
    pub(super) fn parameter(&self) -> String {
        self.domain.as_ref().map_or(String::new(), |domain| format!("domain={}", escaped(domain)))
    }
}

/// Divides what was typed into the host of a short URL, with its port, and the code.
fn parsed(text: &str) -> Result<(Option<String>, String), Exit> {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let path = text[..end].trim_end_matches(['/', '+']);
    let (has_scheme, behind) = path.split_once("://").map_or((false, path), |(_, rest)| (true, rest));
    let (authority, code) = match behind.rsplit_once('/') {
        Some((before, code)) => (before.split('/').next().filter(|authority| !authority.is_empty()), code),
        None => (None, behind),
    };
    // What looks like a URL must have a host and a path.
    let is_whole = authority.is_some() == (has_scheme || behind.contains('/'));
    let is_code = (1..=CODE_LEN_MAX).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if is_code && is_whole {
        return Ok((authority.map(str::to_owned), code.to_owned()));
    }
    Err(Exit::new(Reason::Usage, format!("{text} is neither a short code nor a short URL"))
        .with_remedy("pass a short code such as EKyEUwU, or a short URL such as https://go.example/EKyEUwU"))
}

/// Returns the domain that a host belongs to; `None` if none has it.
fn domain_of(authority: &str, domains: &[(&str, bool)]) -> Option<String> {
    let host = std::str::from_utf8(without_port(authority.as_bytes())).unwrap_or(authority);
    let named = |name: &str| {
        let own = std::str::from_utf8(without_port(name.as_bytes())).unwrap_or(name);
        name.eq_ignore_ascii_case(authority) || own.eq_ignore_ascii_case(host)
    };
    // The exact one first: several domains of a machine may differ by their ports.
    let exact = domains.iter().find(|(name, _)| name.eq_ignore_ascii_case(authority));
    let found = exact.or_else(|| domains.iter().find(|(name, _)| named(name)));
    match (found, domains) {
        (Some((_, true)), _) => Some("DEFAULT".to_owned()),
        (Some((name, false)), _) => Some((*name).to_owned()),
        // A service with one domain answers under every host.
        (None, [(_, true)]) => Some("DEFAULT".to_owned()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_short_urls_are_understood() {
        let read = |text: &str| parsed(text).ok();
        let url = |host: &str| Some((Some(host.to_owned()), "Ab-_1".to_owned()));
        assert_eq!(read("Ab-_1"), Some((None, "Ab-_1".to_owned())));
        for text in
            ["https://go.example/Ab-_1", "https://go.example/Ab-_1/", "go.example/Ab-_1+", "go.example/Ab-_1?a#b"]
        {
            assert_eq!(read(text), url("go.example"), "{text}");
        }
        assert_eq!(read("http://[::1]:8080/Ab-_1"), url("[::1]:8080"));
        for wrong in [
            "",
            "a b",
            "https://go.example",
            "http://localhost",
            "https://",
            "https://go.example/a.b",
            "/Ab-_1",
            &"x".repeat(65),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hosts_lead_to_their_domain() {
        let domains = [("s.example:8080", true), ("go.example", false)];
        let of = |host: &str| domain_of(host, &domains);
        assert_eq!(of("s.example:8080").as_deref(), Some("DEFAULT"));
        assert_eq!(of("S.example").as_deref(), Some("DEFAULT"));
        assert_eq!(of("GO.example:443").as_deref(), Some("go.example"));
        assert_eq!(of("other.example"), None);
        assert_eq!(domain_of("localhost:8080", &domains[..1]).as_deref(), Some("DEFAULT"));
        assert_eq!(domain_of("localhost:8080", &domains[1..]), None);
    }

    #[test]
    fn paths_reach_every_slug() {
        let name =
            |code: &str, domain: Option<&str>| LinkName { code: code.to_owned(), domain: domain.map(str::to_owned) };
        assert_eq!(name("abc", None).path(), "/rest/v3/short-urls/abc");
        assert_eq!(name("bulk", None).path(), "/rest/v3/short-urls/%62ulk");
        let below = name("abc", Some("go.example:1")).path_below("/visits", "page=1");
        assert_eq!(below, "/rest/v3/short-urls/abc/visits?domain=go.example%3A1&page=1");
    }
}
