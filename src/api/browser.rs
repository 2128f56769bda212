//! Detects requests that pages of other sites made a browser send, from the headers that browsers add.

use std::net::Ipv4Addr;

use hyper::Request;
use hyper::header::{self, HeaderValue};

use super::context::Context;
use super::problem::Problem;
use super::request::is_read;
use super::rest::domains::host_of;
use carom_model::destination::hosts::without_port;

/// Headers that no page can remove from the requests of its browser (Fetch, section 2.2.2: a page may change the
/// language, but not drop it). Without TLS, browsers omit `Sec-Fetch-Site`, and omit `Origin` on reads.
const TELLTALES: [&str; 4] = ["sec-fetch-site", "origin", "referer", "accept-language"];

impl Context {
    /// Refuses pages of other sites while the API is open because no API keys exist. Such a page may reach this
    /// service under its own host name, which it resolves to this machine (DNS rebinding), and read every response.
    ///
    /// # Errors
    /// 403 if a page of another site sent the request.
    pub(super) fn refuse_foreign_page<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        if !self.is_open()
            || !is_of_a_browser(request)
            || self.is_own_name(host_of(request)) && !self.is_cross_site(request)
        {
            return Ok(());
        }
        Err(Problem::forbidden(
            "Cross-site browser requests are refused while no API key exists. Use the address of the node or the host of base_url, or create a key with `carom app add`.",
        ))
    }

    /// Refuses every browser while the API is open because no API keys exist. Meant for an API that pages can use
    /// without revealing their origin.
    ///
    /// # Errors
    /// 403 if a browser sent the request.
    pub(super) fn refuse_browser<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        if self.is_open() && is_of_a_browser(request) {
            Err(Problem::forbidden(
                "Browser requests are refused here while no API key exists. Create a key with `carom app add`.",
            ))
        } else {
            Ok(())
        }
    }

    /// True if a page of another site sent a request. A proxy may have forwarded it under another name than the
    /// browser used.
    pub(super) fn is_cross_site<B>(&self, request: &Request<B>) -> bool {
        let origin = request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        let is_proxied = !request.headers().contains_key("sec-fetch-site") && self.domains().is_origin(origin);
        is_foreign(request) && !is_proxied
    }

    /// True if the API is open: no API key was ever created, and the node knows that for certain.
    fn is_open(&self) -> bool {
        !self.services.keys().had_keys() && !self.services.keys().is_unsure()
    }

    /// True if no other party can define a host, with or without a port: an address, a name that only this machine
    /// or its network resolves, or a name of the service.
    fn is_own_name(&self, host: &[u8]) -> bool {
        let name = String::from_utf8_lossy(without_port(host)).to_ascii_lowercase();
        let is_address = name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok();
        let is_local = !name.contains('.') || name.ends_with(".localhost");
        is_address || is_local || self.domains().of_host(host).is_some()
    }
}

/// True if a browser sent a request, as far as its headers tell.
fn is_of_a_browser<B>(request: &Request<B>) -> bool {
    let agent = request.headers().get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    agent.starts_with(b"Mozilla/") || TELLTALES.iter().any(|name| request.headers().contains_key(*name))
}

/// True if a page of another site sent a request, according to the headers of the browser.
pub(super) fn is_foreign<B>(request: &Request<B>) -> bool {
    let field = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    match (field("sec-fetch-site"), field(header::ORIGIN.as_str())) {
        (Some(site), _) => site != b"same-origin" && site != b"none",
        (None, Some(origin)) => {
            let host = memchr::memmem::find(origin, b"://").map(|at| &origin[at + 3..]);
            !host.is_some_and(|host| host.eq_ignore_ascii_case(host_of(request)))
        }
        (None, None) => false,
    }
}

/// True if a page of another site embeds a resource, such as an image; browsers send no origin for those. Following
/// a link from another site is allowed.
pub(super) fn is_of_foreign_page<B>(request: &Request<B>) -> bool {
    let is = |name: &str, value: &[u8]| request.headers().get(name).is_some_and(|field| field.as_bytes() == value);
    is_foreign(request) && !(is_read(request.method()) && is("sec-fetch-mode", b"navigate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().uri("/").header("host", "go.example:8080");
        fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn requests_of_other_sites_are_known() {
        let of = |fields: &[(&str, &str)]| is_foreign(&request(fields));
        assert!(!of(&[]));
        assert!(!of(&[("origin", "https://GO.example:8080")]));
        assert!(!of(&[("sec-fetch-site", "same-origin")]));
        for foreign in [
            ("origin", "null"),
            ("origin", "https://evil.example"),
            ("origin", "https://go.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(of(&[foreign]), "{foreign:?}");
        }
    }

    #[test]
    fn browsers_are_known_by_what_they_cannot_leave_out() {
        assert!(!is_of_a_browser(&request(&[("user-agent", "curl/8.5.0"), ("accept", "*/*")])));
        for field in
            [("user-agent", "Mozilla/5.0 (X11)"), ("accept-language", ""), ("origin", "null"), ("referer", "x")]
        {
            assert!(is_of_a_browser(&request(&[field])), "{field:?}");
        }
    }
}
