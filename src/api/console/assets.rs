//! The files of the console, which the binary contains.

use std::sync::{LazyLock, OnceLock};

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use xxhash_rust::xxh3::xxh3_64;

use crate::api::problem::Problem;
use crate::api::request::accepts_gzip;
use crate::api::response::{ApiResponse, KEPT_FOR_GOOD, answer, empty, with};
use crate::pages::{self, gzip};

/// HTML of every page of the console; the script renders the rest.
pub(super) const SHELL: &str = include_str!("web/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// A file that pages load.
struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// Builds the table of assets from their content types and names.
macro_rules! assets {
    ($($kind:ident $name:literal,)*) => {
        &[$(Asset { name: $name, kind: $kind, text: include_str!(concat!("web/", $name)) },)*]
    };
}

const ASSETS: &[Asset] = assets! {
    SCRIPT "account.js",
    SCRIPT "api.js",
    SCRIPT "app-dialogs.js",
    SCRIPT "app.js",
    SCRIPT "bases.js",
    SCRIPT "breakdowns.js",
    SCRIPT "certificates.js",
    SCRIPT "choices.js",
    STYLE "console.css",
    SCRIPT "countries.js",
    SCRIPT "csv.js",
    SCRIPT "deletes.js",
    SCRIPT "dialog.js",
    SCRIPT "dom.js",
    SCRIPT "field.js",
    SCRIPT "fleet-map.js",
    STYLE "fonts.css",
    SCRIPT "format.js",
    PICTURE "icon.svg",
    SCRIPT "icons.js",
    SCRIPT "import-report.js",
    SCRIPT "import-rows.js",
    SCRIPT "import-run.js",
    SCRIPT "kept.js",
    SCRIPT "link-cards.js",
    SCRIPT "link-form.js",
    SCRIPT "link-parts.js",
    SCRIPT "links-actions.js",
    SCRIPT "links-bar.js",
    SCRIPT "links-columns.js",
    SCRIPT "links-export.js",
    SCRIPT "links-keys.js",
    SCRIPT "links-pager.js",
    SCRIPT "links-pages.js",
    SCRIPT "links-query.js",
    SCRIPT "links-saved.js",
    SCRIPT "links-table.js",
    SCRIPT "links-trend.js",
    SCRIPT "live.js",
    SCRIPT "many.js",
    SCRIPT "menu.js",
    SCRIPT "navigation.js",
    SCRIPT "now-alarms.js",
    SCRIPT "now-bypass.js",
    SCRIPT "now-cores.js",
    SCRIPT "now-health.js",
    SCRIPT "now-latency.js",
    SCRIPT "now-samples.js",
    SCRIPT "now-traffic.js",
    STYLE "pages.css",
    SCRIPT "palette.js",
    STYLE "parts.css",
    SCRIPT "parts.js",
    SCRIPT "period.js",
    SCRIPT "plot.js",
    SCRIPT "rights.js",
    SCRIPT "roles.js",
    SCRIPT "router.js",
    SCRIPT "rule-conditions.js",
    SCRIPT "rules-card.js",
    SCRIPT "rules-editor.js",
    SCRIPT "rules-try.js",
    SCRIPT "sign-in.js",
    SCRIPT "strings-access.js",
    SCRIPT "strings-import.js",
    SCRIPT "strings-links.js",
    SCRIPT "strings-rules.js",
    SCRIPT "strings-shell.js",
    SCRIPT "strings-traffic.js",
    SCRIPT "strings-visits.js",
    SCRIPT "toast.js",
    STYLE "tokens.css",
    STYLE "uplot.css",
    SCRIPT "uplot.js",
    SCRIPT "url-check.js",
    SCRIPT "usage-cards.js",
    SCRIPT "usage-export.js",
    SCRIPT "user-agents.js",
    SCRIPT "view-apps.js",
    SCRIPT "view-domains.js",
    SCRIPT "view-fleet.js",
    SCRIPT "view-import.js",
    SCRIPT "view-link.js",
    SCRIPT "view-links.js",
    SCRIPT "view-lists.js",
    SCRIPT "view-now.js",
    SCRIPT "view-settings.js",
    SCRIPT "view-usage.js",
    STYLE "views.css",
    SCRIPT "visits-list.js",
    SCRIPT "visits-plot.js",
};

/// Folder of the files in addresses.
const FOLDER: &str = "/admin/assets/";

/// ETag of each asset, so that browsers load only files that have changed. It is weak, because it stands for the packed
/// file as well.
static TAGS: LazyLock<Vec<String>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| format!("W/\"{:016x}\"", xxh3_64(asset.text.as_bytes()))).collect());

/// Revision of all files, fonts included. Pages name it in the addresses of files, and scripts and style sheets name each
/// other relative to their own. So browsers may keep all of them until one changes.
static REVISION: LazyLock<String> = LazyLock::new(|| {
    let fonts = pages::FONTS.iter().map(|(_, bytes)| format!("{:016x}", xxh3_64(bytes)));
    let all: String = TAGS.iter().cloned().chain(fonts).collect();
    format!("{:016x}", xxh3_64(all.as_bytes()))
});

/// Each file packed with gzip, from the first request on that asks for it.
static PACKED: [OnceLock<Vec<u8>>; ASSETS.len()] = [const { OnceLock::new() }; ASSETS.len()];

fn packed(at: usize) -> &'static [u8] {
    PACKED[at].get_or_init(|| gzip::pack(ASSETS[at].text))
}

/// Handles `GET /admin/assets/REVISION/NAME`: returns a file of the console. Without the revision, or with that of
/// another version during an upgrade, browsers ask again each time.
pub(super) fn asset(name: &str, revision: Option<&str>, headers: &HeaderMap) -> ApiResponse {
    let is_current = revision == Some(REVISION.as_str());
    if let Some(font) = pages::font(name) {
        let kept = if is_current { KEPT_FOR_GOOD } else { pages::FONT_KEPT };
        return with(answer(StatusCode::OK, "font/woff2", font), header::CACHE_CONTROL, kept);
    }
    let Some(at) = ASSETS.iter().position(|asset| asset.name == name) else {
        return Problem::no_route().because("The console has no such file.").into_answer();
    };
    let tag = &TAGS[at];
    let has_it = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let file = &ASSETS[at];
    let answer = if has_it {
        empty(StatusCode::NOT_MODIFIED)
    } else if accepts_gzip(headers) {
        with(answer(StatusCode::OK, file.kind, packed(at)), header::CONTENT_ENCODING, "gzip")
    } else {
        answer(StatusCode::OK, file.kind, file.text)
    };
    let answer = with(with(answer, header::ETAG, tag), header::VARY, "Accept-Encoding");
    with(answer, header::CACHE_CONTROL, if is_current { KEPT_FOR_GOOD } else { "no-cache" })
}

/// Content security policy of the console: pages use files of this listener only, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns a page of the console, with the revision in the addresses of its files.
pub(super) fn page(status: StatusCode, html: &str) -> ApiResponse {
    let html = html.replace(FOLDER, &format!("{FOLDER}{}/", *REVISION));
    let answer = answer(status, "text/html; charset=utf-8", html);
    // With `no-referrer` a browser would send `Origin: null` with the console's own forms.
    with(with(answer, header::CONTENT_SECURITY_POLICY, POLICY), header::REFERRER_POLICY, "same-origin")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_console_is_served() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/console/web");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| [".js", ".css", ".svg", ".woff2"].iter().any(|kind| name.ends_with(kind)))
            .collect();
        let fonts = pages::FONTS.iter().map(|(name, _)| *name);
        let mut served: Vec<&str> = ASSETS.iter().map(|asset| asset.name).chain(fonts).collect();
        files.sort();
        served.sort_unstable();
        assert_eq!(files, served);
    }

    #[test]
    fn fonts_are_those_of_their_style_sheet() {
        let sheet = ASSETS.iter().find(|asset| asset.name == "fonts.css").unwrap();
        let named: Vec<&str> = sheet.text.split("url(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(named, pages::FONTS.map(|(name, _)| name));
        for (name, bytes) in pages::FONTS {
            assert!(bytes.starts_with(b"wOF2"), "{name}");
            assert_eq!(asset(name, None, &HeaderMap::new()).headers()[header::CONTENT_TYPE], "font/woff2");
        }
        assert!(pages::FONTS.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 120_000);
    }

    /// Returns the selectors of a style sheet outside media queries.
    fn selectors(css: &str) -> Vec<&str> {
        let is_rule = |line: &&str| line.contains('{') && !line.starts_with([' ', '@', '/']);
        css.lines().filter(is_rule).filter_map(|line| line.split(" {").next()).collect()
    }

    /// Every page loads all style sheets, so two definitions of one component would mix.
    #[test]
    fn no_component_is_defined_in_two_style_sheets() {
        let sheets: Vec<&Asset> =
            ASSETS.iter().filter(|asset| asset.kind == STYLE && asset.name != "uplot.css").collect();
        for (at, sheet) in sheets.iter().enumerate() {
            for other in &sheets[at + 1..] {
                let known = selectors(other.text);
                let twice: Vec<&str> = selectors(sheet.text).into_iter().filter(|one| known.contains(one)).collect();
                assert!(twice.is_empty(), "{} and {}: {twice:?}", sheet.name, other.name);
            }
        }
    }

    /// Without preloads, a browser finds the modules one level of imports after the other, each with a round trip.
    #[test]
    fn pages_preload_every_module_of_the_start() {
        let mut modules = vec!["app.js"];
        let mut next = 0;
        while let Some(name) = modules.get(next) {
            let file = ASSETS.iter().find(|asset| asset.name == *name).unwrap();
            for import in file.text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                if !modules.contains(&import) {
                    modules.push(import);
                }
            }
            next += 1;
        }
        modules.sort_unstable();
        let preloads = SHELL.split("\"modulepreload\" href=\"/admin/assets/").skip(1);
        let mut preloaded: Vec<&str> = preloads.filter_map(|rest| rest.split('"').next()).chain(["app.js"]).collect();
        preloaded.sort_unstable();
        assert_eq!(preloaded, modules);
    }

    /// The console offers the countries that the node accepts in conditions.
    #[test]
    fn countries_are_those_of_redirect_rules() {
        let codes: String = carom_model::link::rules::countries::all().collect();
        let countries = ASSETS.iter().find(|asset| asset.name == "countries.js").unwrap();
        assert!(countries.text.contains(&format!("\"{codes}\"")));
    }

    #[test]
    fn a_file_that_a_browser_has_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let first = asset("app.js", None, &headers);
        assert_eq!((first.status(), first.headers().get(header::CONTENT_ENCODING)), (StatusCode::OK, None));
        assert_eq!(first.headers()[header::CACHE_CONTROL], "no-cache");
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(asset("app.js", None, &headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asset("../mod.rs", None, &headers).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn files_with_a_revision_are_kept_for_good() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, "gzip, br".parse().unwrap());
        for name in ["app.js", "inter.woff2"] {
            let answer = asset(name, Some(REVISION.as_str()), &headers);
            assert_eq!(answer.headers()[header::CACHE_CONTROL], KEPT_FOR_GOOD, "{name}");
            let is_packed = answer.headers().contains_key(header::CONTENT_ENCODING);
            assert_eq!(is_packed, name == "app.js", "{name}");
        }
        // A page of another version must not keep the files of this one.
        assert_eq!(asset("app.js", Some("0"), &headers).headers()[header::CACHE_CONTROL], "no-cache");
        let all: usize = ASSETS.iter().map(|file| file.text.len()).sum();
        let packed: usize = (0..ASSETS.len()).map(|at| packed(at).len()).sum();
        assert!(packed < all / 2, "{packed} of {all} bytes");
    }
}
