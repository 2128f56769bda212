//! The public pages in a browser: by mouse and by keyboard, with and without scripts, on a phone and on a screen, in
//! light and dark.

use serde_json::{Value, json};

use crate::support::browser::{Browser, ENTER, PHONE, SCREEN, SPACE, TAB, are_sound};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until};

const FORM: &str = "Accept: text/html\r\nContent-Type: application/x-www-form-urlencoded\r\n";

const TARGET: &str = "https://example.org/a/long/way?to=go&and=more";

/// A node whose short URLs are where it listens, so that a browser can follow them.
fn node(dir: &std::path::Path) -> Node {
    // Browsers trust pages of loopback, and resolve the names of these tests to it.
    Setup::new(dir).over_kernel().env("CAROM_PAGES_TITLE", "Go").env("CAROM_PAGES_ACCENT", "#0a7d5a").start()
}

/// A page of the node itself, where links may lead without leaving this machine.
fn landing() -> Node {
    let dir = tempfile::tempdir().unwrap().keep();
    Setup::new(&dir).over_kernel().start()
}

#[test]
fn link_is_created_copied_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (node, landing) = (node(dir.path()), landing());
    let browser = Browser::open();
    browser.allow_clipboard();
    browser.go(&node.url("/"));
    assert_eq!(browser.title(), "Shorten a URL - Go");
    browser.fill("#longUrl", &landing.url("/"));
    browser.click("summary");
    browser.fill("#customSlug", "by-browser");
    browser.click("button.button");
    assert_eq!(browser.attribute("#short-url", "href"), node.url("/by-browser"));
    // Loaded again, or opened by its address, the page is the same, and there is still one link.
    browser.go(&browser.url());
    assert_eq!(browser.attribute("#short-url", "href"), node.url("/by-browser"));
    assert_eq!(node.wire().get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"], json!(1));
    // The picture is there and has a size.
    wait_until("a picture", || browser.value("document.querySelector('.qr img').naturalWidth > 0") == true);
    browser.click("#copy");
    wait_until("a word about it", || browser.text("#copied") == "Copied.");
    assert_eq!(browser.value("navigator.clipboard.readText()"), json!(node.url("/by-browser")));
    browser.click("#short-url");
    wait_until("the target", || browser.url() == landing.url("/"));
    browser.close();
    node.terminate();
}

#[test]
fn sent_form_says_that_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let browser = Browser::open();
    browser.go(&node.url("/"));
    browser.value("document.querySelector('form').addEventListener('submit', (event) => event.preventDefault())");
    browser.fill("#longUrl", TARGET);
    let button = "(() => { const { disabled, textContent } = document.querySelector('button.button'); return [disabled, textContent]; })()";
    assert_eq!(browser.value(button), json!([false, "Shorten"]));
    browser.click("button.button");
    wait_until("a form that waits", || browser.value(button) == json!([true, "Shortening…"]));
    // After going back, the form can be sent again.
    browser.value("window.dispatchEvent(new Event('pageshow'))");
    assert_eq!(browser.value(button), json!([false, "Shorten"]));
    browser.close();
    node.terminate();
}

/// Without TLS a browser says less of where a form comes from: what it says must do.
#[test]
fn link_is_created_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::open();
    browser.expect("status of 403");
    let name = |node: &Node| format!("http://plain.test:{}/", node.public.port());
    let foreign = node(dir.path());
    // Nobody knows whose name that is.
    browser.go(&name(&foreign));
    browser.fill("#longUrl", TARGET);
    browser.click("button.button");
    wait_until("a refusal", || browser.text("main").contains("base_url"));
    let node = foreign.terminate().env("CAROM_BASE_URL", "http://plain.test").start();
    browser.go(&name(&node));
    browser.fill("#longUrl", TARGET);
    browser.click("button.button");
    wait_until("the result", || browser.title() == "Your short URL - Go");
    assert_eq!(browser.value("isSecureContext"), json!(false));
    // The whole URL is copied, though the page leaves its scheme out.
    browser.value("addEventListener('copy', (event) => { window.taken = event.clipboardData.getData('text/plain'); })");
    browser.click("#copy");
    wait_until("a word about it", || browser.text("#copied") == "Copied.");
    assert_eq!(browser.value("window.taken"), json!(browser.attribute("#short-url", "href")));
    browser.close();
    node.terminate();
}

/// A script that counts the lines that each part of the short URL takes: the host, and the code.
const LINES: &str = "[...document.querySelector('#short-url').childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => {
    const range = document.createRange();
    range.selectNode(node);
    return range.getClientRects().length;
})";

#[test]
fn short_url_stays_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let base = "http://plain.test";
    let node = Setup::new(dir.path()).over_kernel().env("CAROM_BASE_URL", &format!("{base}:12345")).start();
    let browser = Browser::open();
    for size in [SCREEN, PHONE] {
        browser.resize(size);
        browser.go(&format!("{base}:{}/", node.public.port()));
        browser.fill("#longUrl", TARGET);
        browser.click("button.button");
        wait_until("the result", || browser.title().starts_with("Your short URL"));
        assert_eq!(browser.value(LINES), json!([1, 1]), "{size:?}");
        browser.fits_fingers();
    }
    browser.close();
    node.terminate();
}

#[test]
fn placeholders_have_contrast() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let browser = Browser::open();
    browser.go(&node.url("/"));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let colours = "[getComputedStyle(document.querySelector('#longUrl'), '::placeholder').color, getComputedStyle(document.querySelector('summary')).color]";
        let colours = browser.value(colours);
        // That of other soft texts, which axe-core looks at.
        assert_eq!(colours[0], colours[1], "{scheme}");
    }
    browser.close();
    node.terminate();
}

/// A time in the form is in the time zone of its user.
#[test]
fn times_are_in_the_viewers_zone() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let mut browser = Browser::open();
    browser.expect("status of 400");
    browser.live_in("Asia/Tokyo");
    browser.go(&node.url("/"));
    browser.fill("#longUrl", "example.org/a");
    browser.click("summary");
    assert!(browser.text("label[for=validUntil]").ends_with(" (GMT+9)"));
    browser.value("document.querySelector('#validUntil').value = '2099-01-02T12:04'");
    browser.fill("#customSlug", "a b");
    browser.click("button.button");
    wait_until("the mistake", || !browser.text("#customSlug-error").is_empty());
    // What was written is still there, and the focus where something is to be done.
    assert_eq!(browser.value("document.querySelector('#validUntil').value"), json!("2099-01-02T12:04"));
    wait_until("the focus", || browser.value("document.activeElement.id") == "customSlug");
    browser.value("document.querySelector('#customSlug').value = 'tokyo'");
    browser.click("button.button");
    wait_until("the result", || browser.title() == "Your short URL - Go");
    let time = "[document.querySelector('time').textContent, document.querySelector('time').title].join(' = ')";
    assert_eq!(browser.value(time), json!("2 Jan 2099, 12:04 GMT+9 = 2 Jan 2099, 03:04 UTC"));
    let link = node.wire().get(&format!("{SHORT_URLS}/tokyo")).json();
    assert_eq!(&link["meta"]["validUntil"], &json!("2099-01-02T03:04:00+00:00"));
    assert_eq!(&link["longUrl"], &json!("https://example.org/a"));
    browser.go(&node.url("/tokyo+"));
    assert_eq!(browser.text("#expires"), "2 Jan 2099, 12:04 GMT+9");
    // Each date may have a line of its own, which no separator begins.
    assert!(!browser.text(".times").contains('·'), "{}", browser.text(".times"));
    browser.close();
    node.terminate();
}

#[test]
fn errors_stand_beside_their_fields() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    node.wire().shorten_as("taken", TARGET);
    let mut browser = Browser::open();
    // The answer to a form with mistakes is a 400, which the console tells of.
    browser.expect("status of 400");
    browser.go(&node.url("/"));
    browser.fill("#longUrl", TARGET);
    browser.click("summary");
    browser.fill("#customSlug", "taken");
    browser.click("button.button");
    assert!(!browser.text("#customSlug-error").is_empty());
    assert_eq!(browser.attribute("#customSlug", "aria-invalid"), "true");
    assert_eq!(browser.value("document.querySelector('#longUrl').value"), json!(TARGET));
    browser.is_accessible();
    browser.close();
    node.terminate();
}

#[test]
fn keyboard_reaches_every_control() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let browser = Browser::open();
    browser.go(&node.url("/"));
    // The first field has the focus already.
    wait_until("the focus", || browser.value("document.activeElement.id") == "longUrl");
    browser.press(TARGET);
    browser.press(TAB);
    browser.press(SPACE);
    browser.press(TAB);
    browser.press("typed");
    browser.press(ENTER);
    wait_until("the result", || browser.title() == "Your short URL - Go");
    assert_eq!(browser.attribute("#short-url", "href"), node.url("/typed"));
    // Where the focus is can be seen.
    browser.press(TAB);
    let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(browser.value("document.activeElement.id"), json!("short-url"));
    assert_eq!(outline, json!("solid"));
    browser.close();
    node.terminate();
}

#[test]
fn form_works_without_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let browser = Browser::open();
    browser.switch_scripts_off();
    browser.go(&node.url("/"));
    browser.fill("#longUrl", TARGET);
    browser.fill("#longUrl", ENTER);
    wait_until("the result", || browser.title() == "Your short URL - Go");
    assert!(browser.attribute("#short-url", "href").starts_with(&node.url("/")));
    assert_eq!(browser.text("#copy"), "", "it cannot be seen");
    assert!(browser.text("dl").contains(TARGET));
    browser.close();
    node.terminate();
}

/// Every public page, by a name and its path.
fn every_page(node: &Node) -> Vec<(&'static str, String)> {
    let mut wire = node.wire();
    let evil = "\u{202e}<script>alert(1)</script>\"'&";
    let long = format!("https://xn--bcher-kva.example/{}", "x".repeat(1_900));
    wire.create(
        &json!({"longUrl": long, "customSlug": "long", "title": format!("{evil}{}", "t".repeat(400)), "tags": [evil]}),
    );
    wire.create(&json!({"longUrl": TARGET, "customSlug": "over", "archived": true}));
    [("home", "/"), ("preview", "/long+"), ("missing", "/none"), ("over", "/over")]
        .map(|(name, path)| (name, node.url(path)))
        .into()
}

#[test]
fn pages_are_accessible_at_every_size() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let mut browser = Browser::open();
    for text in ["status of 404", "status of 410"] {
        browser.expect(text);
    }
    for (name, url) in every_page(&node) {
        browser.go(&url);
        for size in [PHONE, SCREEN] {
            browser.resize(size);
            browser.fits();
            for scheme in ["light", "dark"] {
                browser.prefer(scheme);
                browser.is_accessible();
                let colour = browser.value("getComputedStyle(document.body).backgroundColor");
                let expected = if scheme == "dark" { "rgb(18, 22, 28)" } else { "rgb(246, 247, 249)" };
                assert_eq!(colour, json!(expected), "{name}");
            }
        }
        assert_eq!(browser.value("typeof alerted"), json!("undefined"));
        browser.has_no_complaints();
    }
    browser.close();
    node.terminate();
}

#[test]
fn pages_are_valid_and_self_contained() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let mut pages = Vec::new();
    for (name, url) in every_page(&node) {
        let path = url.split_once(&node.public.to_string()).unwrap().1.to_owned();
        pages.push((name, html(node.wire(), "GET", &path, "")));
    }
    let made = node.wire().ask("POST", "/", FORM, b"longUrl=https%3A%2F%2Fexample.org%2F&maxVisits=3");
    pages.push(("made", html(node.wire(), "GET", made.location(), "")));
    pages.push(("wrong", html(node.wire(), "POST", "/", "longUrl=nothing&maxVisits=none&tags=a")));
    let pages: Vec<(&str, &str)> = pages.iter().map(|(name, html)| (*name, html.as_str())).collect();
    are_sound(&pages);
    for (name, html) in &pages {
        for source in html.split("src=\"").skip(1).chain(html.split("<link").skip(1)) {
            assert!(!source.split('>').next().unwrap().contains("://"), "{name}: {source}");
        }
    }
    node.terminate();
}

fn html(mut wire: Wire, method: &str, path: &str, body: &str) -> String {
    wire.ask(method, path, FORM, body.as_bytes()).text().to_owned()
}

#[test]
fn status_page_has_no_console_errors() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).over_kernel().cores(2).start();
    let browser = Browser::open();
    browser.go(&format!("http://{}/status", node.admin));
    browser.fits_everywhere(|_| {});
    // It lives: what is drawn is renewed by itself.
    let before: Value = browser.value("document.querySelector('main').innerText");
    // What somebody is at stays what it is, and open.
    browser.value("document.querySelector('details').open = true");
    browser.value("(window.held = document.querySelector('header a')).focus()");
    node.wire().shorten(TARGET);
    wait_until("a page that has changed", || browser.value("document.querySelector('main').innerText") != before);
    assert_eq!(browser.value("document.activeElement === window.held && window.held.isConnected"), true);
    assert_eq!(browser.value("document.querySelector('details').open"), true);
    browser.close();
    node.terminate();
}
