//! The names of links that people type: slugs and short URLs.

use crate::commands::node_api::{NodeApi, escaped};
use crate::commands::profile::is_this_machine;
use crate::commands::terminal::plain;
use carom_model::destination::hosts::{authority_of, without_port};
use carom_model::domains::DomainName;
use carom_settings::exit::{Exit, Reason};

/// The path of all links in the API.
pub(super) const LINKS: &str = "/rest/v3/short-urls";

/// Longest slug, in bytes.
const CODE_LEN_MAX: usize = 64;

/// Names of the API below the path of all links: a link with such a slug is reached with an escape.
const NAMES_OF_API: [&str; 3] = ["bulk", "export", "shorten"];

/// A link of a node, by its slug and domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinkName {
    code: String,
    /// The domain as the API knows it; `None` for that which the key implies.
    domain: Option<String>,
}

impl LinkName {
    /// Finds out which link a text means. Asks the node for its domains if the text may be a short URL.
    ///
    /// # Errors
    /// [`Reason::Usage`] if it can mean no link of this node.
    pub(super) fn find(api: &NodeApi, text: &str, domain: Option<&str>) -> Result<LinkName, Exit> {
        let (authority, code) = parsed(text)?;
        if authority.is_some() && domain.is_some() {
            let what = format!("{text} names its domain already");
            return Err(Exit::new(Reason::Usage, what).with_remedy("pass the slug alone, or leave out --domain"));
        }
        if authority.is_none() && (domain.is_some() || !code.contains('/')) {
            return Ok(LinkName { code, domain: domain.map(str::to_owned) });
        }
        let answer = api.get("/rest/v3/domains")?;
        let listed = answer["domains"]["data"].as_array().ok_or_else(|| api.foreign("it has no list of domains"))?;
        let domains: Vec<(&str, bool)> = listed
            .iter()
            .filter_map(|domain| Some((domain["domain"].as_str()?, domain["isDefault"] == true)))
            .collect();
        let own = authority_of(api.url());
        let Some(authority) = authority else {
            // A word before a slash may be a host without a dot. Otherwise, a slug begins with it.
            let below_host = code.split_once('/').and_then(|(host, rest)| {
                let domain = domain_of(host, own, &domains)?;
                Some(LinkName { code: rest.to_owned(), domain: Some(domain) })
            });
            return Ok(below_host.unwrap_or(LinkName { code, domain: None }));
        };
        let Some(domain) = domain_of(&authority, own, &domains) else {
            let names: Vec<String> = domains.iter().map(|(name, _)| plain(name)).collect();
            let what = format!("{authority} is not a domain of {}; it has {}", api.url(), names.join(", "));
            return Err(Exit::new(Reason::Usage, what).with_remedy(
                "log in to the node of that domain, or pass --url; pass the slug alone for a link of this node",
            ));
        };
        Ok(LinkName { code, domain: Some(domain) })
    }

    /// Returns the slug.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// Returns the domain as the API knows it; `None` for that which the key implies.
    pub(super) fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
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
            escaped(&self.code)
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

/// Divides what was typed into the host of a short URL, with its port, and the code. Without a scheme, only a host has a
/// dot or a port: other words before a slash remain in the code.
fn parsed(text: &str) -> Result<(Option<String>, String), Exit> {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let path = text[..end].trim_end_matches(['/', '+']);
    let (scheme, behind) = path.split_once("://").map_or((None, path), |(scheme, rest)| (Some(scheme), rest));
    let (authority, code) = match behind.split_once('/') {
        Some((first, rest)) if scheme.is_some() || first.contains(['.', ':']) => (Some(first), rest),
        _ => (None, behind),
    };
    // What looks like a URL must have a host and a path.
    let is_whole = scheme.is_none_or(|scheme| {
        let is_web = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
        is_web && authority.is_some_and(|authority| !authority.is_empty())
    });
    let is_segment = |segment: &str| {
        !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if is_whole && code.len() <= CODE_LEN_MAX && code.split('/').all(is_segment) {
        return Ok((authority.map(str::to_owned), code.to_owned()));
    }
    Err(Exit::new(Reason::Usage, format!("{text} is neither a slug nor a short URL"))
        .with_remedy("pass a slug such as EKyEUwU, or a short URL such as https://go.example/EKyEUwU"))
}

/// Returns the domain that a host belongs to; `None` if none has it. `own` is the host at which the node was asked.
fn domain_of(authority: &str, own: &str, domains: &[(&str, bool)]) -> Option<String> {
    // The exact one first: several domains of a machine may differ by their ports.
    let exact = domains.iter().find(|(name, _)| name.eq_ignore_ascii_case(authority));
    let found = exact.or_else(|| domains.iter().find(|(name, _)| is_same(name, authority)));
    match (found, domains) {
        (Some((_, true)), _) => Some("DEFAULT".to_owned()),
        (Some((name, false)), _) => Some((*name).to_owned()),
        // A node with one domain answers under every host. A host that is not its own may be that of another service.
        (None, [(_, true)]) if is_same(own, authority) || are_local(own, authority) => Some("DEFAULT".to_owned()),
        (None, _) => None,
    }
}

/// Divides an authority into its host and its port, which may be empty.
fn divided(authority: &str) -> (&str, &str) {
    let host = std::str::from_utf8(without_port(authority.as_bytes())).unwrap_or(authority);
    (host, authority[host.len()..].trim_start_matches(':'))
}

/// True unless two authorities name different ports.
fn may_share_port(one: &str, other: &str) -> bool {
    let (port, other_port) = (divided(one).1, divided(other).1);
    port.is_empty() || other_port.is_empty() || port == other_port
}

/// True if two authorities have the same host, in any spelling, and their ports do not differ.
fn is_same(one: &str, other: &str) -> bool {
    let (host, other_host) = (divided(one).0, divided(other).0);
    let normal = |host: &str| DomainName::parse(host).ok();
    let is_same_host = host.eq_ignore_ascii_case(other_host)
        || normal(host).is_some_and(|name| normal(other_host).is_some_and(|other| other == name));
    is_same_host && may_share_port(one, other)
}

/// True if two authorities are names of this machine, and their ports do not differ.
fn are_local(one: &str, other: &str) -> bool {
    let is_local = |authority: &str| is_this_machine(&format!("http://{authority}"));
    is_local(one) && is_local(other) && may_share_port(one, other)
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
        // Slashes belong to the slug, and never make it another one.
        assert_eq!(read("docs/start"), Some((None, "docs/start".to_owned())));
        assert_eq!(read("go.example/docs/start/"), Some((Some("go.example".to_owned()), "docs/start".to_owned())));
        for wrong in [
            "",
            "a b",
            "https://go.example",
            "http://localhost",
            "https://",
            "https://go.example/a.b",
            "/Ab-_1",
            "docs//start",
            "https:///Ab-_1",
            "ftp://go.example/Ab-_1",
            &"x".repeat(65),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hosts_lead_to_their_domain() {
        let domains = [("s.example:8080", true), ("go.example", false)];
        let of = |host: &str| domain_of(host, "s.example:8080", &domains);
        assert_eq!(of("s.example:8080").as_deref(), Some("DEFAULT"));
        assert_eq!(of("S.example").as_deref(), Some("DEFAULT"));
        assert_eq!(of("GO.example:443").as_deref(), Some("go.example"));
        assert_eq!(of("go.example.").as_deref(), Some("go.example"));
        assert_eq!(of("other.example"), None);
        assert_eq!(of("s.example:9090"), None);
    }

    #[test]
    fn nodes_with_one_domain_have_no_links_of_others() {
        let domains = [("127.0.0.1:8080", true)];
        let of = |host: &str, own: &str| domain_of(host, own, &domains);
        for (host, own) in [
            ("127.0.0.1:8080", "node.internal"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("node.internal", "node.internal"),
            ("NODE.internal:80", "node.internal"),
        ] {
            assert_eq!(of(host, own).as_deref(), Some("DEFAULT"), "{host} at {own}");
        }
        for (host, own) in [
            ("bit.example", "127.0.0.1:8080"),
            ("localhost:9090", "127.0.0.1:8080"),
            ("localhost:8080", "node.internal"),
        ] {
            assert_eq!(of(host, own), None, "{host} at {own}");
        }
        assert_eq!(domain_of("go.example", "go.example", &[("s.example", false)]), None);
    }

    #[test]
    fn paths_reach_every_slug() {
        let name =
            |code: &str, domain: Option<&str>| LinkName { code: code.to_owned(), domain: domain.map(str::to_owned) };
        assert_eq!(name("abc", None).path(), "/rest/v3/short-urls/abc");
        assert_eq!(name("bulk", None).path(), "/rest/v3/short-urls/%62ulk");
        assert_eq!(name("docs/visits", None).path(), "/rest/v3/short-urls/docs%2Fvisits");
        let below = name("abc", Some("go.example:1")).path_below("/visits", "page=1");
        assert_eq!(below, "/rest/v3/short-urls/abc/visits?domain=go.example%3A1&page=1");
    }
}
