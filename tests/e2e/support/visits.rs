//! Visits of links: the fields by which visitors differ, and the visits that a node has counted.

use std::path::Path;

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup};

/// Field of a person with Chrome.
pub(crate) const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36\r\n";

/// Field of a person with Firefox on Linux.
pub(crate) const FIREFOX: &str =
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0\r\n";

/// Field of a crawler.
pub(crate) const BOT: &str = "User-Agent: Googlebot/2.1 (+http://www.google.com/bot.html)\r\n";

/// Sets up a node that logs single visits.
pub(crate) fn logging(dir: &Path) -> Setup {
    Setup::new(dir).env("CAROM_VISITS_LOG", "on")
}

/// Follows a link with these fields, and asserts that it redirects.
pub(crate) fn follow(wire: &mut Wire, path: &str, fields: &str) {
    assert_eq!(wire.ask("GET", path, fields, b"").status, 302, "{path}");
}

/// Returns the number of visits that a node has counted for a link; 0 if it has no such link.
pub(crate) fn counted(node: &Node, slug: &str) -> u64 {
    let told = node.wire().get(&format!("{SHORT_URLS}/{slug}/visits")).json();
    told["visits"]["summary"]["total"].as_u64().unwrap_or_default()
}
