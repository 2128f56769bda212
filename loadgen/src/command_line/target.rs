//! Targets as the user writes them: a URL, or `HOST:PORT`.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::command_line::values::visible;
use crate::plan::Target;
use crate::protocol::tls::{TargetTls, TrustedRoots};

/// Options that hold for all targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetOptions<'a> {
    /// Certificates to trust.
    pub(crate) trust: &'a TrustedRoots,
    /// True to use TLS without `https://`, too.
    pub(crate) is_tls: bool,
    /// Server name for TLS; `None` for the host of the target.
    pub(crate) sni: Option<&'a str>,
    /// Value of the header `Host`; `None` for the host and port of the target.
    pub(crate) host: Option<&'a str>,
    /// True if the path of the URL is requested; false if links are.
    pub(crate) takes_path: bool,
    /// True for HTTP/2.
    pub(crate) http2: bool,
}

/// Parts of a URL.
#[derive(PartialEq, Eq, Debug)]
struct Parts<'a> {
    is_https: bool,
    /// Host, and port if there is one.
    place: &'a str,
    /// Path and query. Begins with a slash.
    path: String,
}

impl TargetOptions<'_> {
    /// Parses a target and resolves its host.
    ///
    /// # Errors
    /// The fault of the text, or the reason why the host has no address.
    pub(crate) fn target(&self, text: &str) -> Result<Target, String> {
        let Parts { is_https, place, path } = split(text)?;
        if !self.takes_path && !path.trim_end_matches('/').is_empty() {
            return Err(format!(
                "`{text}` has a path, but --codes, --create and --mix choose the paths; pass only the host and port"
            ));
        }
        let is_tls = is_https || self.is_tls;
        // An IPv6 address without a port ends with its bracket.
        let port = place.rsplit_once(':').filter(|_| !place.ends_with(']')).map(|(_, port)| port);
        let with_port = match port {
            Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => place.to_owned(),
            Some(port) => return Err(format!("`{port}` in `{text}` is not a port from 1 to 65535")),
            None if is_tls => format!("{place}:443"),
            None => format!("{place}:80"),
        };
        let wrong =
            |reason: &dyn std::fmt::Display| format!("`{text}` is not an address such as 127.0.0.1:8080: {reason}");
        let address: Option<SocketAddr> = with_port.to_socket_addrs().map_err(|error| wrong(&error))?.next();
        let address = address.ok_or_else(|| wrong(&"the host name has no address"))?;
        let host = self.host.unwrap_or(place).to_owned();
        visible(&host)?;
        let tls = if is_tls {
            let name = with_port.rsplit_once(':').map_or(place, |(name, _)| name).trim_matches(['[', ']']);
            Some(TargetTls::new(self.sni.unwrap_or(name), self.trust, self.http2)?)
        } else {
            None
        };
        Ok(Target { name: text.to_owned(), address, host, path, tls })
    }
}

/// Splits a URL, or a host with an optional port and path.
fn split(text: &str) -> Result<Parts<'_>, String> {
    let scheme = text.split_once("://").filter(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let (is_https, rest) = match scheme {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
        Some((scheme, _)) => return Err(format!("`{scheme}` is not supported; expected http or https")),
        None => (false, text),
    };
    // Clients do not send the fragment.
    let rest = rest.split('#').next().unwrap_or_default();
    let (place, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if place.contains('@') {
        // The text may contain a password, so the error does not show it.
        return Err("the URL contains a user name; send it with -H 'Authorization: ...' instead".to_owned());
    }
    if place.is_empty() {
        return Err(format!("`{text}` has no host; expected a URL such as http://127.0.0.1:8080/abc"));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("the path of `{text}` has a character that is not printable ASCII; percent-encode it"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Parts { is_https, place, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_scheme_host_port_and_path() {
        let parts = |is_https, place: &'static str, path: &str| {
            Ok::<_, String>(Parts { is_https, place, path: path.to_owned() })
        };
        assert_eq!(split("http://host/CODE"), parts(false, "host", "/CODE"));
        assert_eq!(split("HTTPS://host:8443/a/b?c=d#e"), parts(true, "host:8443", "/a/b?c=d"));
        assert_eq!(split("http://[::1]:81?q"), parts(false, "[::1]:81", "/?q"));
        assert_eq!(split("127.0.0.1:8080"), parts(false, "127.0.0.1:8080", "/"));
        assert_eq!(split("host:80/to?u=http://other/"), parts(false, "host:80", "/to?u=http://other/"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_named() {
        for (text, words) in [
            ("ftp://host/", "http or https"),
            ("http:///abc", "no host"),
            ("http://me:geheim@host/", "user name"),
            ("http://host/a b", "percent-encode"),
        ] {
            let error = split(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("geheim"), "{text}: {error}");
        }
    }

    #[test]
    fn path_is_a_mistake_where_links_are_requested() {
        let (trust, http2) = (&TrustedRoots::Anybody, false);
        let options = TargetOptions { trust, is_tls: false, sni: None, host: None, takes_path: false, http2 };
        assert!(options.target("http://127.0.0.1:80/a").unwrap_err().contains("path"));
        assert_eq!(options.target("http://127.0.0.1:80/").unwrap().host, "127.0.0.1:80");
        let target = TargetOptions { takes_path: true, ..options }.target("http://127.0.0.1/a?b").unwrap();
        assert_eq!((&*target.path, target.address.port()), ("/a?b", 80));
    }
}
