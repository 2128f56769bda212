//! The domains of a node, from its settings and its first listener, and the addresses that lead to it.

use std::net::SocketAddr;

use crate::config::Settings;
use crate::domains::Domains;
use crate::long_url::Authority;

/// The domains of a node whose first listener has that address. The default one is that of the base URL.
pub fn domains_of(settings: &Settings, first: SocketAddr) -> Domains {
    let given = settings.base_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
    let base_url = given.unwrap_or_else(|| format!("http://{first}"));
    let crate::config::Domains { serve, fallback, unknown_host } = &settings.domains;
    Domains::new(&base_url, serve, *fallback, *unknown_host)
}

/// The hosts and ports that lead to this service.
pub fn own_authorities(domains: &Domains, listening: &[SocketAddr]) -> Vec<Authority> {
    let mut urls: Vec<String> = domains.all().iter().map(|domain| domain.base_url.clone()).collect();
    for address in listening {
        urls.push(format!("http://{address}"));
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            urls.extend(["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{}", address.port())));
        }
    }
    urls.iter().filter_map(|url| Authority::of(url)).collect()
}
