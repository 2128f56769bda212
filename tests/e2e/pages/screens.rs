//! Pictures of every page, on a screen and on a phone, in light and dark, of a node in use and of `carom demo`. Each
//! page must load, fit and report no error. With `CAROM_SCREENS` set to a folder, as `make screens` does, the pictures are kept there and
//! plots have time to fill.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::api_client;
use crate::support::browser::Browser;
use crate::support::console::enter_key;
use crate::support::demo::Demonstration;
use crate::support::http::Wire;
use crate::support::node::{Setup, free_address, wait_until};
use crate::support::stop::StopOnDrop;

/// The host of short URLs.
const HOST: &str = "acme.example";

const SIZES: [(&str, (u32, u32)); 2] = [("wide", (1280, 860)), ("phone", (390, 844))];

/// Pixels that the whole overview takes on a screen.
const NOW_HEIGHT: u32 = 1_290;

/// Time for which plots fill where pictures are kept.
const FILLING: Duration = Duration::from_secs(45);

/// Pages of the console of a demonstration, which show visits of 90 days, by the names of their pictures.
const DEMO: [(&str, &str); 4] = [("links", "links"), ("link", "links/summer"), ("tags", "tags"), ("usage", "usage")];

/// The other pages of the console, and a list without a match.
const CONSOLE: [(&str, &str); 7] = [
    ("links-none", "links?q=nothing-of-this-name&state=archived"),
    ("import", "import"),
    ("apps", "apps"),
    ("domains", "domains"),
    ("lists", "lists"),
    ("fleet", "fleet"),
    ("settings", "settings"),
];

/// Public pages.
const PUBLIC: [(&str, &str); 4] =
    [("home", "/"), ("preview", "/summer+"), ("not-found", "/nothing-here"), ("gone", "/gone")];

const TITLES: [&str; 6] =
    ["Summer sale", "Quarterly report", "Onboarding guide", "Release notes", "Support article", "Newsletter"];
const TAGS: [&str; 7] = ["2026", "sale", "docs", "mail", "social", "print", "qr"];
const REFERRERS: [&str; 4] =
    ["https://news.example/", "https://mail.example/", "https://social.example/", "https://search.example/"];

fn folder() -> Option<PathBuf> {
    std::env::var_os("CAROM_SCREENS").map(PathBuf::from)
}

/// A number that looks as if it were drawn; the same each time (SplitMix64, Steele, Lea and Flood 2014).
fn mixed(number: usize) -> usize {
    let mut mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 33) as usize
}

fn demo_link(number: usize) -> Value {
    let drawn = mixed(number);
    let tags = TAGS.iter().enumerate().filter(|(at, _)| mixed(number * TAGS.len() + at).is_multiple_of(4));
    let mut link = json!({
        "longUrl": format!("https://www.example.com/{}/{number}?utm_source=news", ["shop", "docs", "blog", "help"][drawn % 4]),
        "title": format!("{} {number}", TITLES[drawn / 4 % TITLES.len()]),
        "tags": tags.map(|(_, tag)| *tag).collect::<Vec<_>>(),
    });
    match number % 29 {
        3 => link["archived"] = json!(true),
        7 => link["validSince"] = json!("2099-01-01T00:00:00Z"),
        11 => link["maxVisits"] = json!(100 + drawn % 400),
        13 | 17 => link["domain"] = json!("go.example.com"),
        _ => {}
    }
    link
}

/// Makes links, and changes one of them. Returns the codes of those that can be followed at the default domain.
fn fill(caller: &mut api_client::ApiClient) -> Vec<String> {
    let mut codes = vec!["summer".to_owned()];
    let plain = |number: usize| ![3, 7, 11, 13, 17].contains(&(number % 29));
    for number in 0..300 {
        let code = caller.create(&demo_link(number)).code();
        codes.extend(Some(code).filter(|_| plain(number)));
    }
    for link in [
        json!({"longUrl": "https://www.example.com/spring", "customSlug": "gone", "archived": true}),
        json!({"longUrl": "https://www.example.com/summer", "customSlug": "summer", "title": "Summer sale 2026", "tags": ["sale", "2026"]}),
    ] {
        caller.create(&link).code();
    }
    for change in [
        json!({"longUrl": "https://www.example.com/summer-2026"}),
        json!({"title": "Summer sale", "tags": ["sale", "2026", "print"]}),
    ] {
        let fields = "Content-Type: application/json\r\n";
        assert_eq!(caller.ask("PATCH", "/rest/v3/short-urls/summer", fields, &change.to_string()).status, 200);
    }
    let condition = |kind: &str, value: &str| json!({"type": kind, "matchKey": null, "matchValue": value});
    let rules = json!({"redirectRules": [
        {"longUrl": "https://apps.example.com/shop", "conditions": [condition("device", "android")]},
        {"longUrl": "https://www.example.com/fr/summer-2026", "conditions": [condition("language", "fr"), condition("weight", "50")]},
    ]});
    let fields = "Content-Type: application/json\r\n";
    assert_eq!(caller.ask("POST", "/rest/v3/short-urls/summer/redirect-rules", fields, &rules.to_string()).status, 200);
    codes
}

/// Follows one of these links, the first ones more often than the others.
fn follow(wire: &mut Wire, host: &str, codes: &[String], number: usize) {
    let drawn = mixed(number);
    let code = &codes[(drawn % codes.len()) * (drawn / 1_000 % codes.len()) * (drawn / 1_000_000 % codes.len())
        / codes.len().pow(2)];
    let (referrer, agent) = (
        REFERRERS[drawn % 10 * (drawn / 7 % 10) / 25],
        if number.is_multiple_of(9) { "Googlebot/2.1" } else { "Mozilla/5.0" },
    );
    let request = format!("GET /{code} HTTP/1.1\r\nHost: {host}\r\nReferer: {referrer}\r\nUser-Agent: {agent}\r\n\r\n");
    wire.send(request.as_bytes());
    assert_eq!(wire.reply().status, 302);
}

/// Looks at a page in both sizes and both themes. `open` goes to it: in each size it is loaded, as on a device that has
/// that size.
fn look(browser: &Browser, name: &str, open: impl Fn()) {
    for (size_name, (width, height)) in SIZES {
        // Plots follow the size of the window, which a picture of more than the window changes.
        browser.resize((width, if name == "now" { height.max(NOW_HEIGHT) } else { height }));
        open();
        wait_until("a page that is there", || {
            browser.value("document.querySelector('main h1, dialog') !== null && document.querySelector('.loading, .skeleton, [aria-busy=true]') === null") == true
        });
        assert_eq!(browser.value("document.querySelector('.state.bad')?.innerText ?? null"), Value::Null, "{name}");
        browser.show_iso_dates();
        browser.fits();
        for theme in ["light", "dark"] {
            browser.prefer(theme);
            // Plots are drawn anew in the colours of the theme.
            browser.value(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))",
            );
            // What fades in or out has done so.
            browser.value("Promise.all(document.getAnimations().map((one) => one.finished)).then(() => true)");
            // A dialog is above what the window shows of its page.
            let has_dialog = browser.value("document.querySelector('dialog[open]') !== null") == true;
            let picture = if has_dialog { browser.window() } else { browser.whole_page() };
            assert!(picture.starts_with(b"\x89PNG"), "{name}");
            if let Some(folder) = folder() {
                std::fs::write(folder.join(format!("{name}-{size_name}-{theme}.png")), picture).unwrap();
            }
        }
    }
    browser.resize(SIZES[0].1);
}

/// Looks at the dialogs of the console.
fn look_at_dialogs(browser: &Browser, console: impl Fn(&str) -> String) {
    look(browser, "sessions", || {
        browser.go(&console("settings"));
        browser.click("[data-action=account]");
        let is_open = "document.querySelector('.menu [data-action=sessions]') !== null";
        wait_until("the account menu", || browser.value(is_open) == true);
        browser.click(".menu [data-action=sessions]");
        wait_until("sessions", || browser.value("document.querySelector('dialog tbody tr') !== null") == true);
    });
    look(browser, "rules", || {
        browser.go(&console("links/summer"));
        let is_there = "document.querySelector('[data-action=edit-rules]') !== null";
        wait_until("the button", || browser.value(is_there) == true);
        // On a phone, the fixed bar may cover the button.
        browser.value("document.querySelector('[data-action=edit-rules]').click()");
        wait_until("rules", || browser.value("document.querySelector('dialog .rule-form') !== null") == true);
    });
    look(browser, "palette", || {
        browser.go(&console("links"));
        browser.click("[data-action=palette]");
        wait_until("entries", || browser.value("document.querySelector('dialog .palette-entry') !== null") == true);
    });
    look(browser, "new-link", || {
        browser.go(&console("links"));
        browser.click("[data-action=new-link]");
        wait_until("a form", || browser.value("document.querySelector('dialog form') !== null") == true);
        browser.value("document.querySelectorAll('dialog details').forEach((group) => { group.open = true; })");
    });
}

/// Looks at the pages whose point is visits, on a node that has visits of many days.
fn look_at_demo(browser: &Browser) {
    let demonstration = Demonstration::start(Stdio::null());
    let key = demonstration.admin_key("ops");
    let console = |page: &str| format!("http://{}/admin/{page}", demonstration.admin);
    browser.go(&console("links"));
    enter_key(browser, &key);
    for (name, page) in DEMO {
        look(browser, name, || browser.go(&console(page)));
    }
    // No page follows its status while it ends.
    browser.go("about:blank");
    demonstration.end(Signal::INT);
}

#[test]
fn every_page_is_pictured() {
    let dir = tempfile::tempdir().unwrap();
    let public = free_address();
    let host = format!("{HOST}:{}", public.port());
    let setup = Setup::new(dir.path())
        .argument("--listen")
        .argument(public.to_string())
        .env("CAROM_BASE_URL", &format!("http://{host}"))
        .env("CAROM_DOMAINS_SERVE", "https://go.example.com,https://s.example.org")
        .env("CAROM_BLOCK_HOSTS", "*.phishing.example,evil.example")
        .env("CAROM_PAGES_TITLE", "Acme links")
        .env("CAROM_PAGES_ACCENT", "#0b57d0");
    let key = api_client::new_key(&setup, "ops", "admin");
    api_client::new_key(&setup, "newsletter", "write-own");
    let node = setup.start();
    let mut caller = api_client::ApiClient::new(&node, &key);
    wait_until("the key", || caller.is_known(&node));
    let codes = fill(&mut caller);
    let mut wire = node.wire();
    (0..400).for_each(|number| follow(&mut wire, &host, &codes, number));

    let mut browser = Browser::open();
    for complaint in ["status of 404", "status of 410"] {
        browser.expect(complaint);
    }
    let console = |page: &str| format!("http://{}/admin/{page}", node.admin);
    look(&browser, "sign-in", || browser.go(&console("")));
    enter_key(&browser, &key);
    let is_over = AtomicBool::new(false);
    // Without a pause, clients and node would leave the browser no CPU on a machine with two.
    let pause = if folder().is_some() { Duration::ZERO } else { Duration::from_millis(1) };
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        scope.spawn(|| {
            (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|number| {
                follow(&mut wire, &host, &codes, number);
                std::thread::sleep(pause);
            });
        });
        // The latencies that the page draws are those that it heard.
        let watch = || {
            browser.go(&console(""));
            wait_until("plots", || browser.value("document.querySelector('.plot-picture canvas') !== null") == true);
            std::thread::sleep(folder().map_or(Duration::ZERO, |_| FILLING));
        };
        look(&browser, "now", watch);
        drop(stop);
    });
    for (name, page) in CONSOLE {
        look(&browser, name, || browser.go(&console(page)));
    }
    look_at_dialogs(&browser, console);
    look_at_demo(&browser);
    look(&browser, "status", || browser.go(&format!("http://{}/status", node.admin)));
    for (name, path) in PUBLIC {
        look(&browser, name, || browser.go(&format!("http://{host}{path}")));
    }
    look(&browser, "result", || {
        browser.go(&format!("http://{host}/"));
        browser.fill("#longUrl", "https://www.example.com/a/very/long/way?to=go");
        browser.fill("#key", &key);
        browser.click("button.button");
        wait_until("the result", || browser.value("document.querySelector('#short-url') !== null") == true);
    });
    browser.close();
    node.terminate();
}
