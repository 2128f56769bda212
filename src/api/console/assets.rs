//! The files of the console, which the binary contains.

use std::sync::{LazyLock, OnceLock};

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::bundles::{self, Bundle, bundles_of};
use crate::api::problem::Problem;
use crate::api::request::accepts_gzip;
use crate::api::response::{ApiResponse, KEPT_FOR_GOOD, answer, empty, with};
use crate::pages::{self, gzip};

/// HTML of every page of the console; the script renders the rest.
const SHELL: &str = include_str!("web/index.html");

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
    SCRIPT "changes.js",
    SCRIPT "choices.js",
    STYLE "console.css",
    SCRIPT "countries.js",
    SCRIPT "csv.js",
    SCRIPT "date-time-field.js",
    SCRIPT "deletes.js",
    SCRIPT "dialog.js",
    SCRIPT "dom.js",
    SCRIPT "expiry-field.js",
    SCRIPT "field.js",
    SCRIPT "fleet-map.js",
    SCRIPT "fleet-sites.js",
    STYLE "fonts.css",
    SCRIPT "format.js",
    SCRIPT "hosts-apply.js",
    SCRIPT "hosts-dialogs.js",
    SCRIPT "hosts-draft.js",
    SCRIPT "hosts-lists.js",
    SCRIPT "hosts-text.js",
    SCRIPT "hosts-words.js",
    PICTURE "icon.svg",
    SCRIPT "icons.js",
    SCRIPT "import-changes.js",
    SCRIPT "import-report.js",
    SCRIPT "import-rows.js",
    SCRIPT "import-run.js",
    SCRIPT "kept.js",
    SCRIPT "link-cards.js",
    SCRIPT "link-form.js",
    SCRIPT "link-opener.js",
    SCRIPT "link-parts.js",
    SCRIPT "link-visits.js",
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
    SCRIPT "now-week.js",
    STYLE "pages.css",
    SCRIPT "palette.js",
    STYLE "parts.css",
    SCRIPT "parts.js",
    SCRIPT "period.js",
    SCRIPT "plot.js",
    SCRIPT "reports.js",
    SCRIPT "rights.js",
    SCRIPT "roles.js",
    SCRIPT "router.js",
    SCRIPT "rule-conditions.js",
    SCRIPT "rules-card.js",
    SCRIPT "rules-editor.js",
    SCRIPT "rules-try.js",
    SCRIPT "save-file.js",
    SCRIPT "shared-home.js",
    SCRIPT "sign-in.js",
    SCRIPT "strings-access.js",
    SCRIPT "strings-hosts.js",
    SCRIPT "strings-import.js",
    SCRIPT "strings-links.js",
    SCRIPT "strings-rules.js",
    SCRIPT "strings-settings.js",
    SCRIPT "strings-shell.js",
    SCRIPT "strings-tags.js",
    SCRIPT "strings-traffic.js",
    SCRIPT "strings-visits.js",
    SCRIPT "tabs.js",
    SCRIPT "tag-actions.js",
    SCRIPT "tags-field.js",
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
    SCRIPT "view-tags.js",
    SCRIPT "view-usage.js",
    STYLE "views.css",
    SCRIPT "visit-filters.js",
    SCRIPT "visits-card.js",
    SCRIPT "visits-export.js",
    SCRIPT "visits-list.js",
    SCRIPT "visits-plot.js",
};

/// Folder of the files in addresses.
const FOLDER: &str = "/admin/assets/";

/// Style sheets of the pages, in the order in which they apply.
const SHEETS: [&str; 7] =
    ["fonts.css", "tokens.css", "uplot.css", "console.css", "views.css", "parts.css", "pages.css"];

/// File with all style sheets of the pages.
const STYLES: &str = "styles.bundle.css";

/// A file as browsers get it: an asset or a bundle.
struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
    /// ETag, so that browsers load only files that have changed. It is weak, because it stands for the packed file as well.
    tag: String,
    /// The file packed with gzip, from the first request on that asks for it.
    packed: OnceLock<Vec<u8>>,
}

impl File {
    fn new(name: &'static str, kind: &'static str, text: &'static str) -> File {
        let tag = format!("W/\"{:016x}\"", xxh3_64(text.as_bytes()));
        File { name, kind, text, tag, packed: OnceLock::new() }
    }

    fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| gzip::pack(self.text))
    }
}

/// Returns the text of an asset, or an empty string if no asset has the name.
fn text_of(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| asset.text)
}

/// Returns the modules, by name and text.
pub(super) fn scripts() -> Vec<(&'static str, &'static str)> {
    ASSETS.iter().filter(|asset| asset.kind == SCRIPT).map(|asset| (asset.name, asset.text)).collect()
}

static BUNDLES: LazyLock<Vec<Bundle>> = LazyLock::new(|| bundles_of(&scripts()));

static ALL_SHEETS: LazyLock<String> = LazyLock::new(|| SHEETS.map(text_of).join("\n"));

/// All files, from the first request on. The bundles are made in some milliseconds.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let assets = ASSETS.iter().map(|asset| File::new(asset.name, asset.kind, asset.text));
    let bundles = BUNDLES.iter().map(|bundle| File::new(&bundle.name, SCRIPT, &bundle.text));
    assets.chain(bundles).chain([File::new(STYLES, STYLE, &ALL_SHEETS)]).collect()
});

/// Revision of all files, fonts included. Pages name it in the addresses of files, and scripts and style sheets name each
/// other relative to their own. So browsers may keep all of them until one changes.
static REVISION: LazyLock<String> = LazyLock::new(|| {
    let fonts = pages::FONTS.iter().map(|(_, bytes)| format!("{:016x}", xxh3_64(bytes)));
    let all: String = FILES.iter().map(|file| file.tag.clone()).chain(fonts).collect();
    format!("{:016x}", xxh3_64(all.as_bytes()))
});

/// Handles `GET /admin/assets/REVISION/NAME`: returns a file of the console. Without the revision, or with that of
/// another version during an upgrade, browsers ask again each time.
pub(super) fn asset(name: &str, revision: Option<&str>, headers: &HeaderMap) -> ApiResponse {
    let is_current = revision == Some(REVISION.as_str());
    if let Some(font) = pages::font(name) {
        let kept = if is_current { KEPT_FOR_GOOD } else { pages::FONT_KEPT };
        return with(answer(StatusCode::OK, "font/woff2", font), header::CACHE_CONTROL, kept);
    }
    let files: &'static [File] = &FILES;
    let Some(file) = files.iter().find(|file| file.name == name) else {
        return Problem::no_route().because("The console has no such file.").into_answer();
    };
    let answer = if knows_tag(headers, &file.tag) {
        empty(StatusCode::NOT_MODIFIED)
    } else if accepts_gzip(headers) {
        with(answer(StatusCode::OK, file.kind, file.packed()), header::CONTENT_ENCODING, "gzip")
    } else {
        answer(StatusCode::OK, file.kind, file.text)
    };
    let answer = with(with(answer, header::ETAG, &file.tag), header::VARY, "Accept-Encoding");
    with(answer, header::CACHE_CONTROL, if is_current { KEPT_FOR_GOOD } else { "no-cache" })
}

/// True if the `If-None-Match` of a request has an entity tag, as a strong or a weak one, or stands for any (RFC 9110,
/// section 13.1.2).
fn knows_tag(headers: &HeaderMap, tag: &str) -> bool {
    fn opaque(tag: &[u8]) -> &[u8] {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    let lines = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut known = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    known.any(|known| known == b"*" || opaque(known) == opaque(tag.as_bytes()))
}

/// Content security policy of the console: pages use files of this listener only, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the page at a path for a session: it has the description of the session, and loads the files of its view
/// together with those of the start.
pub(super) fn shell(path: &str, session: &Value) -> ApiResponse {
    page(StatusCode::OK, &with_session(&shell_at(path), session))
}

/// Writes the description of a session into a page. No text in it can end the element, or be taken for an address of the
/// page: JSON has both characters in strings only, where they can be escaped.
fn with_session(html: &str, session: &Value) -> String {
    let session = session.to_string().replace('<', "\\u003c").replace('/', "\\/");
    html.replace(NO_SESSION, &NO_SESSION.replace("null", &session))
}

/// End of the tag of the element with the session, and its content in the file.
const NO_SESSION: &str = "id=\"session\">null<";

/// Returns the shell with preloads for the view of a path. Without them, a browser would learn of the view only once the
/// start has run.
fn shell_at(path: &str) -> String {
    let view = bundles::view_at(text_of("router.js"), path).map(bundles::file_of);
    let bundle = view.and_then(|view| BUNDLES.iter().find(|bundle| bundle.name == view));
    let files = bundle.into_iter().flat_map(|bundle| std::iter::once(&bundle.name).chain(&bundle.needs));
    let preload = |file: &String| format!("<link rel=\"modulepreload\" href=\"{FOLDER}{file}\">\n");
    // The page names the start itself.
    let preloads: String = files.filter(|file| !SHELL.contains(file.as_str())).map(preload).collect();
    SHELL.replace(MODULE, &format!("{preloads}{MODULE}"))
}

/// Beginning of the element that loads the start.
const MODULE: &str = "<script type=\"module\"";

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

    /// The browser needs three rounds of requests: the page, its files, and the data.
    #[test]
    fn pages_name_every_file_of_their_view() {
        let preloaded = |path: &str| -> Vec<String> {
            let page = shell_at(path);
            let files = page.split("\"modulepreload\" href=\"/admin/assets/").skip(1);
            files.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
        };
        assert_eq!(preloaded("/admin/links"), ["view-links.bundle.js", "shared.bundle.js"]);
        let plots = ["view-now.bundle.js", "plots.bundle.js", "shared.bundle.js", "uplot.js"];
        assert_eq!(preloaded("/admin/"), plots);
        assert_eq!(preloaded("/admin/links/abc")[0], "view-link.bundle.js");
        assert!(preloaded("/admin/none").is_empty());
        let named = SHELL.split("=\"/admin/assets/").skip(1).filter_map(|rest| rest.split('"').next());
        let known: Vec<&str> = FILES.iter().map(|file| file.name).chain(pages::FONTS.map(|(name, _)| name)).collect();
        assert!(named.clone().all(|name| known.contains(&name)), "{:?}", named.collect::<Vec<_>>());
        assert!(SHELL.contains(MODULE));
        assert!(SHELL.contains("/app.bundle.js"));
    }

    #[test]
    fn pages_have_their_session() {
        let session = serde_json::json!({"userAgent": "</script><b>\"null\" /admin/assets/", "csrf": null});
        let page = with_session(&shell_at("/admin/"), &session);
        let element = page.split("id=\"session\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(element).unwrap(), session);
        assert!(!element.contains(FOLDER), "{element}");
        assert_eq!(SHELL.matches(NO_SESSION).count(), 1);
    }

    #[test]
    fn one_file_has_all_style_sheets() {
        let mut sheets: Vec<&str> = ASSETS.iter().filter(|asset| asset.kind == STYLE).map(|asset| asset.name).collect();
        let mut joined = SHEETS;
        sheets.sort_unstable();
        joined.sort_unstable();
        assert_eq!(sheets, joined);
        assert!(SHELL.contains(STYLES));
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
        let tag = first.headers()[header::ETAG].to_str().unwrap();
        let strong = tag.strip_prefix("W/").expect("the tag is weak");
        for (lines, status) in [
            (vec!["\"0\"".to_owned()], StatusCode::OK),
            (vec![format!("\"0\", {strong}")], StatusCode::NOT_MODIFIED),
            (vec!["\"0\"".to_owned(), tag.to_owned()], StatusCode::NOT_MODIFIED),
            (vec!["*".to_owned()], StatusCode::NOT_MODIFIED),
        ] {
            headers.clear();
            lines.iter().for_each(|line| _ = headers.append(header::IF_NONE_MATCH, line.parse().unwrap()));
            assert_eq!(asset("app.js", None, &headers).status(), status, "{lines:?}");
        }
        assert_eq!(asset("../mod.rs", None, &headers).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn files_with_a_revision_are_kept_for_good() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, "gzip, br".parse().unwrap());
        for name in ["app.js", "app.bundle.js", "inter.woff2"] {
            let answer = asset(name, Some(REVISION.as_str()), &headers);
            assert_eq!(answer.headers()[header::CACHE_CONTROL], KEPT_FOR_GOOD, "{name}");
            let is_packed = answer.headers().contains_key(header::CONTENT_ENCODING);
            assert_eq!(is_packed, name != "inter.woff2", "{name}");
        }
        // A page of another version must not keep the files of this one.
        assert_eq!(asset("app.js", Some("0"), &headers).headers()[header::CACHE_CONTROL], "no-cache");
        let all: usize = FILES.iter().map(|file| file.text.len()).sum();
        let packed: usize = FILES.iter().map(|file| file.packed().len()).sum();
        assert!(packed < all / 2, "{packed} of {all} bytes");
    }
}
