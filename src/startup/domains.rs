//! The domains of a node, from its settings and its first listener, and the addresses that reach it.

use std::net::SocketAddr;

use carom_model::destination::long_url::Authority;
use carom_model::domains::Domains;
use carom_model::query::domain_index_key;
use carom_settings::Settings;
use carom_store::links::catalog::{IndexKind, tag_key};
use carom_store::links::{Links, StoreError};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Returns the domains of a node whose first listener has the address `first`. The default one is that of the base URL.
pub fn domains_of(settings: &Settings, first: SocketAddr) -> Domains {
    let given = settings.base_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
    let is_secure = settings.tls.secure.first().is_some_and(|secure| *secure);
    let base_url = given.unwrap_or_else(|| url_at(first, is_secure));
    let carom_settings::DomainSettings { serve, fallback, unknown_host } = &settings.domains;
    Domains::new(&base_url, serve, *fallback, *unknown_host)
        .hiding_expired(settings.api.shlink_strict)
        .inheriting_redirects(settings.api.shlink_strict)
        .ignoring_case(settings.slugs.ignores_case())
}

/// Returns the hosts and ports that reach this service.
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

/// Raises an alarm if links are hidden: those of a domain that has become the default one, whose host now means other
/// links.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn warn_of_hidden_links(domains: &Domains, links: &Links, stats: &NodeStats) -> Result<(), StoreError> {
    let name = &domains.all()[0].name;
    let prefix = tag_key(&domain_index_key(name.id()), &[]);
    if let Some(found) = links.view().keys_with_prefix(IndexKind::Tags, &prefix).next() {
        found?;
        let text = format!(
            "links created while {name} was in domains.serve are unreachable, because it is now the host of base_url; restore the former base_url and list {name} in domains.serve"
        );
        stats.alarms.raise(Alarm::DomainHidden, text);
    }
    Ok(())
}

/// Returns the scheme and address that the URLs of a listener begin with.
pub(crate) fn url_at(address: SocketAddr, is_secure: bool) -> String {
    format!("{}://{address}", if is_secure { "https" } else { "http" })
}
