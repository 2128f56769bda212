//! A service with three domains, asked over both HTTP paths and on every core.

use serde_json::{Value, json};

use crate::support::http::{Reply, Wire};
use crate::support::node::{Node, Setup};

pub(crate) const SERVE: &str = "https://go.test, http://b\u{fc}cher.test:8080";

pub(crate) const TARGET: &str = "https://example.org/";

/// A service with the default domain `s.test` and two others.
pub(crate) fn setup(dir: &std::path::Path, cores: usize) -> Setup {
    Setup::new(dir).cores(cores).argument("--base-url").argument("https://s.test").env("CAROM_DOMAINS_SERVE", SERVE)
}

/// Asks a host over both HTTP paths and on every core. Fails unless all responses agree.
pub(crate) fn everybody<T: PartialEq + std::fmt::Debug>(
    node: &Node,
    host: &str,
    path: &str,
    tell: impl Fn(&Reply) -> T,
) -> T {
    let mut all: Vec<T> = (0..8)
        .map(|number| {
            let mut wire = node.wire();
            if number % 2 == 0 {
                // From here on hyper drives it.
                wire.get("/rest/health");
            }
            tell(&wire.get_at(host, path))
        })
        .collect();
    assert!(all.iter().all(|one| *one == all[0]), "{host}{path}: {all:?}");
    all.remove(0)
}

pub(crate) fn status(node: &Node, host: &str, path: &str) -> u16 {
    everybody(node, host, path, |reply| reply.status)
}

/// The destination for a path at a host, or the status where there is none.
pub(crate) fn leads(node: &Node, host: &str, path: &str) -> String {
    everybody(node, host, path, |reply| match reply.field("location") {
        Some(target) => target.to_owned(),
        None => reply.status.to_string(),
    })
}

pub(crate) fn create(wire: &mut Wire, body: &Value) -> Value {
    let reply = wire.create(body);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// A link of that slug in a domain, whose target says so.
pub(crate) fn make(wire: &mut Wire, domain: &str, slug: &str) -> Value {
    let target = format!("{TARGET}{domain}/{slug}");
    create(wire, &json!({"longUrl": target, "domain": domain, "customSlug": slug}))
}

pub(crate) fn target(domain: &str, slug: &str) -> String {
    format!("{TARGET}{domain}/{slug}")
}

pub(crate) fn codes(list: &Reply) -> Vec<String> {
    let links = list.json()["shortUrls"]["data"].as_array().unwrap().clone();
    links.iter().map(|link| link["shortUrl"].as_str().unwrap().to_owned()).collect()
}
