//! Base URLs and the domains that carom serves.

use std::collections::HashSet;
use std::fmt;

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};
use carom_model::destination::hosts::host_of;
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::redirects::{TargetKind, placeholder_in};
use carom_model::domains::{Domain, DomainName, Targets, UnknownHost};

/// The beginning of short URLs: scheme, host and port, without a trailing slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Returns the URL, for example `https://example.org`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a base URL.
pub(crate) fn base_url(written: &Written) -> Result<BaseUrl, InvalidValue> {
    let written = text(written)?.trim();
    let wrong = |reason: &str| {
        Err(InvalidValue::new(format!("{} {reason}", quoted(written)), "write a URL such as https://example.org"))
    };
    let lower = written.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return wrong("does not start with http:// or https://");
    }
    let url = match url::Url::parse(written) {
        Ok(url) => url,
        Err(reason) => return wrong(&format!("is not a URL: {reason}")),
    };
    if url.host_str().is_none_or(str::is_empty) {
        return wrong("has no host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("contains a user name or password, which every short URL would reveal");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("has a query or fragment");
    }
    if url.path() != "/" {
        return wrong("has a path; in short URLs, the code directly follows the host");
    }
    Ok(BaseUrl(url.as_str().trim_end_matches('/').to_owned()))
}

/// Reads a domain: its base URL, then its redirect targets for requests that find no link.
pub(crate) fn domain(text: &str) -> Result<Domain, InvalidValue> {
    const RIGHT: &str = "write https://go.example, optionally followed by home=URL, not_found=URL (or regular_404=URL and invalid_short_url=URL) and expired=URL";
    const NOT_A_PART: &str = "is not home=, not_found=, regular_404=, invalid_short_url= or expired=";
    let mut words = text.split_ascii_whitespace();
    let base_url = base_url(&Written::Word(words.next().unwrap_or_default().to_owned()))?;
    let host = host_of(base_url.as_str().as_bytes());
    let name =
        DomainName::parse(host).map_err(|error| InvalidValue::new(format!("{} {error}", quoted(host)), RIGHT))?;
    let mut targets = Targets::default();
    for word in words {
        let wrong = |reason: String| InvalidValue::new(format!("{} {reason}", quoted(word)), RIGHT);
        let (which, url) = word.split_once('=').ok_or_else(|| wrong(NOT_A_PART.into()))?;
        let kinds: &[TargetKind] = match which {
            "home" => &[TargetKind::Home],
            "not_found" => &[TargetKind::Regular404, TargetKind::InvalidShortUrl],
            "regular_404" => &[TargetKind::Regular404],
            "invalid_short_url" => &[TargetKind::InvalidShortUrl],
            "expired" => &[TargetKind::Expired],
            _ => return Err(wrong(NOT_A_PART.into())),
        };
        if let Some(placeholder) = placeholder_in(url) {
            return Err(wrong(format!("has {placeholder}, which carom does not fill in")));
        }
        let url = LongUrl::parse(url, &[]).map_err(|error| wrong(format!("has a URL that {error}")))?;
        for kind in kinds {
            if targets.of_mut(*kind).replace(url.as_str().to_owned()).is_some() {
                return Err(wrong(format!("sets a redirect for the second time: {which}=")));
            }
        }
    }
    Ok(Domain { name, base_url: base_url.as_str().to_owned(), targets })
}

/// Formats a domain so that [`domain`] can read it.
pub(crate) fn domain_text(domain: &Domain) -> String {
    let targets = named(&domain.targets).into_iter().map(|(name, url)| format!(" {name}={url}"));
    std::iter::once(domain.base_url.clone()).chain(targets).collect()
}

/// Returns the redirects of a domain with their names in the settings.
fn named(targets: &Targets) -> Vec<(&'static str, &str)> {
    let Targets { home, regular_404, invalid_short_url, expired } = targets;
    let missing = if regular_404 == invalid_short_url {
        [("not_found", regular_404), ("", &None)]
    } else {
        [("regular_404", regular_404), ("invalid_short_url", invalid_short_url)]
    };
    let all = [("home", home)].into_iter().chain(missing).chain([("expired", expired)]);
    all.filter_map(|(name, url)| Some((name, url.as_deref()?))).collect()
}

/// Returns the conflict of a domain with others. `other` is an earlier domain with the same ID, `default` the default
/// domain, and `own` all hosts of the service, whatever their ports are.
pub(crate) fn wrong_with_domain(
    domain: &Domain,
    other: Option<&Domain>,
    default: Option<&BaseUrl>,
    own: &HashSet<String>,
) -> Vec<InvalidValue> {
    let mut all = Vec::new();
    if let Some(other) = other {
        let reason = if other.name == domain.name {
            format!("{} is listed twice", domain.name)
        } else {
            format!(
                "{} and {} have the same 48-bit hash, by which carom distinguishes domains",
                domain.name, other.name
            )
        };
        all.push(InvalidValue::new(reason, "remove one of the two"));
    }
    if let Some(default) = default
        && host_of(default.as_str().as_bytes()) == domain.name.as_str()
        && default.as_str() != domain.base_url
    {
        let reason = format!("{} is the host of base_url, but base_url is {default}", domain.base_url);
        all.push(InvalidValue::new(reason, "write the same scheme and port in both"));
    }
    for (which, url) in named(&domain.targets) {
        if own.contains(host_of(url.as_bytes())) {
            let reason = format!("{which}={url} is on a host of this service, so the redirect would loop");
            all.push(InvalidValue::new(reason, "use a page on another server"));
        }
    }
    all
}

/// Reads the response to a request for an unknown host.
pub(crate) fn unknown_host(written: &Written) -> Result<UnknownHost, InvalidValue> {
    match text(written)?.trim() {
        "not_found" => Ok(UnknownHost::NotFound),
        "misdirected" => Ok(UnknownHost::Misdirected),
        other => {
            let wrong = format!("{} is neither not_found nor misdirected", quoted(other));
            Err(InvalidValue::new(wrong, "write \"not_found\" or \"misdirected\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Written {
        Written::Word(text.to_owned())
    }

    #[test]
    fn base_urls_keep_scheme_host_and_port_only() {
        for (written, kept) in [
            ("https://Example.ORG", "https://example.org"),
            ("http://example.org:80/", "http://example.org"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
        ] {
            assert_eq!(base_url(&word(written)).unwrap().as_str(), kept);
        }
        for wrong in [
            "example.org",
            "ftp://example.org",
            "http:example.org",
            "http://",
            "http://u:p@example.org",
            "http://example.org/s",
            "http://example.org/?",
            "http://example.org/#a",
            "",
        ] {
            assert!(base_url(&word(wrong)).is_err(), "{wrong}");
        }
    }
}
