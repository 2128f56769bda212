//! The public pages: the form at the root and its result, previews, notices, QR codes, and the branding of a service.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::http::{HOST, Reply, SHORT_URLS, Wire, curl, request_at};
use crate::support::node::{Node, Setup, wait_for, wait_until};

const HTML: &str = "Accept: text/html\r\n";
const FORM: &str = "Accept: text/html\r\nContent-Type: application/x-www-form-urlencoded\r\n";

/// Sends the form.
fn send(wire: &mut Wire, body: &str) -> Reply {
    wire.ask("POST", "/", FORM, body.as_bytes())
}

/// The page of a link that a form has made: where its answer leads, on the same host.
fn result(wire: &mut Wire, host: &str, sent: &Reply) -> Reply {
    assert_eq!(sent.status, 303, "{sent:?}");
    let path = sent.location();
    assert!(path.starts_with("/-/links/"), "{sent:?}");
    assert!(sent.text().starts_with("http"), "{sent:?}");
    wire.send(&request_at(host, "GET", path, HTML, b""));
    let page = wire.reply();
    is_page(&page, 200);
    assert_eq!(page.field("cache-control"), Some("no-store"));
    page
}

/// The text of a page between two others, as a browser would show it.
fn between<'p>(page: &'p str, before: &str, after: &str) -> &'p str {
    let rest = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} behind {before} in {page}")).0
}

/// Decodes a page as a browser would show it.
fn shown(text: &str) -> String {
    [("&#x2f;", "/"), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Looks at what every page has to have.
fn is_page(reply: &Reply, status: u16) {
    assert_eq!((reply.status, reply.field("content-type")), (status, Some("text/html; charset=utf-8")), "{reply:?}");
    let policy = reply.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
    let text = reply.text();
    let referrer = if text.contains("<form") { "same-origin" } else { "no-referrer" };
    assert_eq!(reply.field("referrer-policy"), Some(referrer));
    assert!(text.contains("<html lang=\"en\">"), "{text}");
    assert!(text.contains("name=\"viewport\""), "{text}");
    assert!(!text.contains("<style"), "{text}");
    assert!(!text.contains(" style="), "{text}");
    assert!(!text.contains("http-equiv"), "{text}");
}

/// The text of the QR code in a picture, as a reader that knows nothing of us reads it.
fn read_qr(dir: &Path, picture: &[u8], is_svg: bool) -> String {
    let (drawn, png) = (dir.join("qr.svg"), dir.join("qr.png"));
    if is_svg {
        fs::write(&drawn, picture).unwrap();
        let made = Command::new("rsvg-convert").args(["--width", "400", "-o"]).arg(&png).arg(&drawn).status();
        assert!(made.expect("rsvg-convert, which `make test` installs").success());
    } else {
        fs::write(&png, picture).unwrap();
    }
    let read = Command::new("zbarimg").args(["--quiet", "--raw"]).arg(&png).output();
    let read = read.expect("zbarimg, which `make test` installs");
    String::from_utf8(read.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn submitted_link_redirects() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).cores(2).start();
    let mut wire = node.wire();
    let form = wire.ask("GET", "/", HTML, b"");
    is_page(&form, 200);
    assert!(form.text().contains("<form method=\"post\" action=\"/\">"));
    assert!(!form.text().contains("name=\"key\""));
    let made = send(
        &mut wire,
        "longUrl=https%3A%2F%2Fexample.org%2Fa%3Fb%3Dc&customSlug=by-hand&validUntil=2099-01-02T03%3A04&maxVisits=3&tags=one%2C+two",
    );
    let url = node.url("/by-hand");
    assert_eq!(made.text(), format!("{url}\n"));
    let address = made.location().to_owned();
    let page = shown(result(&mut wire, HOST, &made).text());
    // The scheme is left out, and a line may end before the code only.
    let host = url.strip_prefix("http://").unwrap().strip_suffix("by-hand").unwrap();
    assert!(page.contains(&format!("<a id=\"short-url\" href=\"{url}\">{host}<wbr>by-hand</a>")), "{page}");
    for text in ["https://example.org/a?b=c", "2 Jan 2099, 03:04 UTC", "0 of 3"] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    let link = wire.get(&format!("{SHORT_URLS}/by-hand")).json();
    assert_eq!(&link["tags"], &json!(["one", "two"]));
    assert_eq!(&link["meta"]["maxVisits"], &json!(3));
    assert_eq!(wire.get("/by-hand").location(), "https://example.org/a?b=c");
    // What the page loads is there.
    for path in ["/-/style.css", "/-/page.js", "/-/icon.svg"] {
        assert_eq!(wire.get(path).status, 200, "{path}");
    }
    let qr_code = "/by-hand/qr-code?format=svg&size=240";
    assert_eq!(wire.get(qr_code).status, 200);
    assert!(page.contains(qr_code), "{page}");
    // A reload of the page of the result creates no link, and shows how often the link was followed.
    let again = wait_for("the visit", || {
        let again = wire.ask("GET", &address, HTML, b"");
        again.text().contains("1 of 3").then_some(again)
    });
    is_page(&again, 200);
    assert_eq!(wire.get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"], json!(1));
    // The code alone does not show the page, nor does the address of an earlier link of the slug.
    let (path, mark) = address.split_once("?mark=").unwrap();
    for other in [
        format!("{path}?mark={}", "0".repeat(mark.len())),
        format!("{path}?mark={}", &mark[1..]),
        format!("/-/links/none?mark={mark}"),
        path.to_owned(),
    ] {
        is_page(&wire.ask("GET", &other, HTML, b""), 404);
    }
    assert_eq!(wire.delete("by-hand").status, 204);
    is_page(&wire.ask("GET", &address, HTML, b""), 404);
    // It is told apart by when it was made.
    wait_until("another second", || {
        wire.shorten_as("by-hand", "https://example.org/");
        let status = wire.ask("GET", &address, HTML, b"").status;
        if status != 404 {
            assert_eq!(wire.delete("by-hand").status, 204);
        }
        status == 404
    });
    let made = send(&mut wire, "longUrl=https%3A%2F%2Fexample.org&validUntil=9999-12-31T23%3A59");
    let page = result(&mut wire, HOST, &made);
    assert!(shown(page.text()).contains("31 Dec 9999, 23:59 UTC"), "{}", page.text());
    let made = send(&mut wire, "longUrl=example.org%2Fa");
    assert!(shown(result(&mut wire, HOST, &made).text()).contains("https://example.org/a"), "{made:?}");
    // For programs a line will do.
    assert!(wire.get("/").text().starts_with("carom: a URL shortener"));
    node.terminate();
}

#[test]
fn errors_keep_the_submitted_values() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    wire.shorten_as("taken", "https://example.org/");
    let evil = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for (body, status, field, said) in [
        ("", 400, "longUrl", "missing"),
        ("longUrl=javascript%3Aalert(1)", 400, "longUrl", "http"),
        ("longUrl=https%3A%2F%2Fa.example&validUntil=2020-01-02T03%3A04", 400, "validUntil", "in the future"),
        ("longUrl=nothing", 400, "longUrl", "Enter a complete URL that begins with https:// or http://."),
        ("longUrl=https%3A%2F%2Fa.example&customSlug=a+b", 400, "customSlug", ""),
        ("longUrl=https%3A%2F%2Fa.example&customSlug=taken", 400, "customSlug", "already in use"),
        ("longUrl=https%3A%2F%2Fa.example&validUntil=tomorrow", 400, "validUntil", ""),
        ("longUrl=https%3A%2F%2Fa.example&maxVisits=-1", 400, "maxVisits", "whole number"),
        ("longUrl=https%3A%2F%2Fa.example&maxVisits=-1&customSlug=a+b", 400, "maxVisits", "whole number"),
        ("longUrl=https%3A%2F%2Fa.example&maxVisits=-1&customSlug=a+b", 400, "customSlug", ""),
        (&format!("longUrl={evil}&tags={evil}"), 400, "longUrl", ""),
    ] {
        let again = send(&mut wire, body);
        is_page(&again, status);
        let page = again.text();
        let error = shown(between(page, &format!("id=\"{field}-error\">"), "</strong>"));
        assert!(error.contains(said), "{body}: {error}");
        assert!(error.ends_with('.'), "{body}: {error}");
        assert!(page.contains("aria-invalid=\"true\""), "{page}");
        assert!(!page.contains("<script>"), "{page}");
        // What was written is still there.
        for pair in body.split('&').filter(|pair| pair.contains("https")) {
            assert!(shown(page).contains("value=\"https://a.example\""), "{pair} is gone: {page}");
        }
    }
    let open = send(&mut wire, "longUrl=x&tags=one");
    assert!(open.text().contains("<details open>"));
    assert!(!send(&mut wire, "longUrl=x").text().contains("<details open>"));
    node.terminate();
}

#[test]
fn cross_site_submission_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    let body = b"longUrl=https%3A%2F%2Fa.example&customSlug=evil";
    for field in
        ["Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"]
    {
        is_page(&wire.ask("POST", "/", &format!("{FORM}{field}\r\n"), body), 403);
        assert_eq!(wire.get("/evil").status, 404, "{field}");
    }
    let own = format!("{FORM}Origin: http://carom.test\r\nSec-Fetch-Site: same-origin\r\n");
    // A name that is nobody's may be theirs, however it leads here.
    is_page(&wire.ask("POST", "/", &own, body), 403);
    let node = node.terminate().env("CAROM_BASE_URL", "http://carom.test").start();
    assert_eq!(node.wire().ask("POST", "/", &own, body).status, 303);
    // A proxy in front that asks for us by our address; without TLS there is no other word of the browser's.
    let plain = b"longUrl=https%3A%2F%2Fa.example";
    let proxied = |origin: &str| {
        let mut wire = node.wire();
        let fields =
            format!("{FORM}User-Agent: Mozilla/5.0\r\nOrigin: {origin}\r\nContent-Length: {}\r\n", plain.len());
        wire.send(&[format!("POST / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n{fields}\r\n").as_bytes(), plain].concat());
        wire.reply()
    };
    assert_eq!(proxied("http://carom.test").status, 303);
    is_page(&proxied("http://evil.test"), 403);
    node.terminate();
}

/// The first key of a node, from when on its form asks for one.
fn key_of(node: &Node, grant: &Value) -> String {
    let made = Wire::open(node.admin).ask("POST", "/apps", JSON, grant.to_string().as_bytes());
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let asks = || (0..8).all(|_| node.wire().ask("GET", "/", HTML, b"").text().contains("name=\"key\""));
    wait_until("a form that asks", asks);
    key
}

#[test]
fn result_uses_the_links_domain() {
    let dir = tempfile::tempdir().unwrap();
    let setup =
        Setup::new(dir.path()).env("CAROM_BASE_URL", "http://carom.test").env("CAROM_DOMAINS_SERVE", "http://b.test");
    let node = setup.start();
    let key = key_of(&node, &json!({"app": "shop", "role": "write-own", "domains": ["b.test"]}));
    let made = |host: &str| {
        let mut wire = node.wire();
        let body = format!("longUrl=https%3A%2F%2Fa.example&customSlug=at-{}&key={key}", &host[..1]);
        let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\n{FORM}Content-Length: {}\r\n\r\n", body.len());
        wire.send(&[head.as_bytes(), body.as_bytes()].concat());
        let made = wire.reply();
        result(&mut wire, host, &made)
    };
    let (there, elsewhere) = (made("b.test"), made("carom.test"));
    for (reply, path, sources) in
        [(&there, "/at-b", "img-src 'self';"), (&elsewhere, "http://b.test/at-c", "img-src 'self' http://b.test;")]
    {
        assert!(shown(reply.text()).contains(&format!("src=\"{path}/qr-code?")), "{}", reply.text());
        assert!(reply.field("content-security-policy").unwrap().contains(sources), "{reply:?}");
    }
    assert!(shown(elsewhere.text()).contains("href=\"http://b.test/at-c\""));
    node.terminate();
}

#[test]
fn cross_site_api_calls_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).all_interfaces().env("CAROM_BASE_URL", "https://go.example").start();
    node.wire().shorten_as("secret", "https://example.org/secret");
    let list = format!("{SHORT_URLS}?page=1");
    let open = |host: &str, fields: &str| {
        let mut statuses = Vec::new();
        for path in [&*list, "/rest/v3/short-urls/secret"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
            let mut wire = node.wire();
            wire.send(request.as_bytes());
            statuses.push(wire.reply().status);
        }
        statuses.dedup();
        statuses
    };
    // What a page cannot leave out. Its name leads here, as it likes; it may know the port.
    for field in
        ["User-Agent: Mozilla/5.0 (X11)", "Accept-Language: *", "Origin: http://evil.example:8080", "Referer: x"]
    {
        let field = format!("{field}\r\n");
        assert_eq!(open("evil.example:8080", &field), [403], "{field}");
        assert_eq!(open("127.0.0.1.evil.example", &field), [403], "{field}");
    }
    let of_page = "User-Agent: Mozilla/5.0 (X11)\r\nAccept-Language: en\r\n";
    for host in ["127.0.0.1:8080", "[::1]:8080", "localhost", "carom", "GO.example", "a.localhost:1"] {
        assert_eq!(open(host, of_page), [200], "{host}");
        assert_eq!(open(host, &format!("{of_page}Sec-Fetch-Site: cross-site\r\n")), [403], "{host}");
    }
    assert_eq!(open("any.example", "User-Agent: curl/8.5.0\r\n"), [200]);
    // This one answers with scripts, and takes what a picture's address says.
    let yourls = node.url("/yourls-api.php?action=expand&shorturl=secret&format=jsonp&callback=x");
    for (field, status) in [("A: b", 200), ("User-Agent: Mozilla/5.0", 403), ("Referer: http://127.0.0.1/", 403)] {
        assert_eq!(curl(&["-H", field, &yourls]).status, status, "{field}");
    }
    let refused = curl(&["-A", "Mozilla/5.0", "-H", "Host: evil.example", &node.url(&list)]);
    assert!(refused.text().contains("carom app add"), "{refused:?}");
    node.terminate();
}

#[test]
fn form_asks_for_a_key_when_required() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let node = setup.start();
    let key = key_of(&node, &json!({"app": "by-hand", "role": "write-own", "createsPerSecond": 1}));
    let mut wire = node.wire();
    let link = "longUrl=https%3A%2F%2Fa.example";
    for wrong in [link.to_owned(), format!("{link}&key=carom_ak_{}", "0".repeat(33))] {
        let refused = send(&mut wire, &wrong);
        is_page(&refused, 401);
        assert!(refused.text().contains("id=\"key-error\""), "{refused:?}");
        assert!(!refused.text().contains("carom_ak_"), "{refused:?}");
    }
    let made = send(&mut wire, &format!("{link}&key={key}"));
    let page = result(&mut wire, HOST, &made);
    assert!(!page.text().contains(&key));
    assert!(page.text().contains("id=\"short-url\""));
    // Programs that send it are told what those of the API are.
    let again = (0..50).map(|_| send(&mut wire, &format!("{link}&key={key}"))).find(|reply| reply.status != 303);
    let again = again.expect("a key that has a rate");
    is_page(&again, 429);
    assert_eq!(again.field("retry-after"), Some("1"));
    assert_eq!(again.field("x-ratelimit-limit"), Some("1"));
    assert!(again.text().contains("this app may create 1 link per second"), "{again:?}");
    assert!(!again.text().contains(&key), "{again:?}");
    // Nobody has shown a key yet when a form is read.
    let long = send(&mut node.wire(), &format!("{link}&title={}", "x".repeat(64 * 1024)));
    is_page(&long, 413);
    assert!(long.text().contains("The request body is too large"), "{long:?}");
    assert!(long.text().contains("<form"), "{long:?}");
    node.terminate();
}

#[test]
fn qr_code_decodes_to_the_short_url() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).start();
    let mut wire = node.wire();
    wire.shorten_as("to-scan", "https://example.org/");
    for path in ["/to-scan/qr-code".to_owned(), format!("{SHORT_URLS}/to-scan/qr")] {
        for query in [
            "",
            "?size=50&margin=0",
            "?correction=H&size=1000",
            "?format=svg",
            "?format=svg&margin=0&errorCorrection=L",
        ] {
            let picture = wire.get(&format!("{path}{query}"));
            let is_svg = query.contains("svg");
            let kind = if is_svg { "image/svg+xml" } else { "image/png" };
            assert_eq!((picture.status, picture.field("content-type")), (200, Some(kind)), "{path}{query}");
            // A code of 50 pixels without white around it is no promise.
            if !query.contains("margin=0") {
                assert_eq!(read_qr(dir.path(), &picture.body, is_svg), node.url("/to-scan"), "{path}{query}");
            }
        }
        let wrong = wire.get(&format!("{path}?format=gif&size=1")).problem(400, "/invalid-data");
        assert_eq!(wrong["invalidElements"], json!(["format", "size"]));
    }
    assert_eq!(wire.get("/none/qr-code").status, 404);
    wire.get(&format!("{SHORT_URLS}/none/qr")).problem(404, "/short-url-not-found");
    // Looking at a code is no visit.
    assert_eq!(wire.get(&format!("{SHORT_URLS}/to-scan")).json()["visitsSummary"]["total"], 0);
    node.terminate();
}

#[test]
fn preview_shows_both_forms_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": "https://bücher.example/x", "customSlug": "books", "title": "<b>Books</b>"}));
    let page = wire.ask("GET", "/books+", HTML, b"");
    is_page(&page, 200);
    let text = shown(page.text());
    assert_eq!(between(&text, "<p class=\"host\"><bdi>", "</bdi>"), "bücher.example");
    assert!(text.contains("<bdi>xn--bcher-kva.example</bdi>"), "{text}");
    assert!(text.contains("<bdi><b>Books</b></bdi>"), "{text}");
    assert!(page.text().contains("&lt;b&gt;Books"), "{text}");
    assert!(text.contains("href=\"https://xn--bcher-kva.example/x\""), "{text}");
    node.terminate();
}

/// A page over a connection of the fast way, and over one that hyper drives.
fn both_ways(node: &Node, path: &str) -> [Reply; 2] {
    let mut slow = node.wire();
    assert_eq!(slow.get("/rest/health").status, 200);
    [node.wire().ask("GET", path, HTML, b""), slow.ask("GET", path, HTML, b"")]
}

#[test]
fn fonts_of_the_style_sheet_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    let style = wire.get("/-/style.css");
    let fonts: Vec<&str> = style.text().split("url(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(fonts.len(), 3);
    for font in fonts {
        let reply = wire.get(&format!("/-/{font}"));
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("font/woff2")), "{font}");
    }
    let form = wire.ask("GET", "/", HTML, b"");
    assert!(form.text().contains("href=\"/-/fonts/inter.woff2\""));
    assert!(form.field("content-security-policy").unwrap().contains("font-src 'self';"));
    assert_eq!(wire.get("/-/fonts/none.woff2").status, 404);
    // The addresses on pages change with the files, so browsers may keep these.
    let named = |path: &str| form.text().split('"').find(|part| part.starts_with(path)).unwrap();
    let [kept, script] = ["/-/style.css?", "/-/page.js?"].map(|path| {
        let kept = wire.ask("GET", named(path), "Accept-Encoding: gzip\r\n", b"");
        assert_eq!(kept.field("cache-control"), Some("public, max-age=31536000, immutable"), "{path}");
        kept
    });
    assert_eq!((script.status, script.field("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert_eq!((kept.field("content-encoding"), kept.field("vary")), (Some("gzip"), Some("Accept-Encoding")));
    let plain = wire.get("/-/style.css");
    assert_eq!((plain.field("cache-control"), plain.field("content-encoding")), (Some("public, max-age=300"), None));
    node.terminate();
}

/// Public pages have the colours of the console unless a setting names another.
#[test]
fn default_accent_is_the_consoles() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let style = node.wire().get("/-/style.css").text().to_owned();
    let own = style.split(":root { --accent: ").nth(1).unwrap();
    let (accent, on_it) = own.split_once(" }").unwrap().0.split_once(' ').unwrap();
    // Once in the tokens of the console, and once in those of the service.
    for token in [format!("--accent: {accent}"), on_it.to_owned()] {
        assert_eq!(style.matches(&format!(" {token}")).count(), 2, "{token}");
    }
    let icon = node.wire().get("/-/icon.svg").text().to_owned();
    let console = include_str!("../../../src/api/console/web/icon.svg");
    assert_eq!(icon.trim(), console.trim());
    node.terminate();
}

#[test]
fn branding_and_templates_apply() {
    let dir = tempfile::tempdir().unwrap();
    let (logo, templates) = (dir.path().join("logo.svg"), dir.path().join("templates"));
    fs::write(&logo, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
    fs::create_dir(&templates).unwrap();
    fs::write(
        templates.join("410.html"),
        "<!DOCTYPE html><title>{{ service.title }}</title><p>{{ number }}, sorry.</p>",
    )
    .unwrap();
    let data = dir.path().join("data");
    let node = Setup::new(&data)
        .env("CAROM_PAGES_TITLE", "Go <links>")
        .env("CAROM_PAGES_ACCENT", "#ffcc00")
        .env("CAROM_PAGES_LOGO", &logo.display().to_string())
        .env("CAROM_PAGES_TEMPLATES", &templates.display().to_string())
        .start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": "https://example.org/", "customSlug": "over", "archived": true}));
    for missing in both_ways(&node, "/none") {
        is_page(&missing, 404);
        assert!(missing.text().contains("Go &lt;links&gt;</span>"));
        assert!(missing.text().contains("src=\"&#x2f;-&#x2f;logo\""));
    }
    for over in both_ways(&node, "/over") {
        assert_eq!(
            (over.status, over.text()),
            (410, "<!DOCTYPE html><title>Go &lt;links&gt;</title><p>410, sorry.</p>")
        );
    }
    assert!(wire.get("/-/style.css").text().contains(":root { --accent: #ffcc00; --on-accent: #000; }"));
    assert_eq!(wire.get("/-/logo").field("content-type"), Some("image/svg+xml"));
    node.terminate();

    for (name, value, said) in [
        ("CAROM_PAGES_ACCENT", "blue", "pages.accent"),
        ("CAROM_PAGES_HOME", "on", "pages.home"),
        ("CAROM_PAGES_LOGO", "/nowhere/logo.png", "pages.logo: /nowhere/logo.png: cannot be read"),
        ("CAROM_PAGES_LOGO", "/etc/hostname", "pages.logo: /etc/hostname: is not an image"),
        ("CAROM_PAGES_TEMPLATES", "/nowhere", "pages.templates: /nowhere cannot be read"),
    ] {
        let (code, text) = Setup::new(&data).env(name, value).fail();
        assert_eq!(code, 2, "{name}: {code}: {text}");
        assert!(text.contains(said), "{name}: {code}: {text}");
    }
    fs::write(templates.join("home.html"), "{{ problem.no.such }}").unwrap();
    let (code, text) = Setup::new(&data).env("CAROM_PAGES_TEMPLATES", &templates.display().to_string()).fail();
    assert_eq!(code, 2, "{code}: {text}");
    assert!(text.contains("home.html:1"), "{code}: {text}");
}

#[test]
fn home_can_be_off_or_redirect() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path())
        .env("CAROM_PAGES_HOME", "off")
        .env("CAROM_BASE_URL", "http://carom.test")
        .env("CAROM_DOMAINS_SERVE", "http://go.example  home=https://www.example/")
        .start();
    let mut wire = node.wire();
    is_page(&wire.ask("GET", "/", HTML, b""), 404);
    is_page(&send(&mut wire, "longUrl=https%3A%2F%2Fa.example"), 404);
    assert_eq!(wire.get_at("go.example", "/").location(), "https://www.example/");
    node.terminate();
}

#[test]
fn invalid_files_are_all_named() {
    let dir = tempfile::tempdir().unwrap();
    let templates = dir.path().join("templates");
    fs::create_dir(&templates).unwrap();
    fs::write(templates.join("notice.html"), "{% if %}").unwrap();
    let file = dir.path().join("c.toml");
    let text = format!(
        "data_dir = {0:?}\n[pages]\nlogo = {1:?}\ntemplates = {templates:?}\n[tls]\ncert = {2:?}\nkey = {2:?}\n",
        dir.path().join("data"),
        dir.path().join("none.svg"),
        dir.path().join("none.pem"),
    );
    fs::write(&file, text).unwrap();
    let checked = Command::new(crate::support::node::CAROM).arg("check-config").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{said}");
    for part in ["pages.logo: ", "none.svg", "pages.templates: ", "notice.html", "none.pem"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
