//! Pictures of every page, on a screen and on a phone, in light and dark, of a node in use and of `carom demo`. Each
//! page must load, fit and report no error. With `CAROM_SCREENS` set to a folder, as `make screens` does, the pictures are taken and
//! kept there, and plots have time to fill. Dialogs, empty pages, errors and work in progress are in `states.rs`, a fleet in `fleet.rs`.

mod fleet;
mod states;

use std::path::{Path, PathBuf};
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

/// Every picture by its name, with what it shows, in the order of `docs/screens/README.md`.
const PICTURES: [(&str, &str); 71] = [
    ("now", "Console: overview"),
    ("now-server", "Console: overview, server details"),
    ("links", "Console: links"),
    ("link", "Console: one link"),
    ("tags", "Console: tags"),
    ("usage", "Console: analytics"),
    ("import", "Console: imports"),
    ("apps", "Console: apps and keys"),
    ("domains", "Console: domains"),
    ("lists", "Console: destination rules"),
    ("fleet", "Console: fleet, with one node"),
    ("fleet-nodes", "Console: fleet, with three nodes"),
    ("settings", "Console: settings"),
    ("sign-in", "Console: sign-in"),
    ("status", "Status page"),
    ("runbook", "What to do about an alarm"),
    ("home", "Public: form"),
    ("result", "Public: result of the form"),
    ("preview", "Public: preview"),
    ("not-found", "Public: unknown link"),
    ("gone", "Public: inactive link"),
    ("new-link", "Create link"),
    ("created-link", "Link created"),
    ("edit-link", "Edit a link"),
    ("qr-code", "QR code"),
    ("rules", "Redirect rules"),
    ("palette", "Command palette"),
    ("links-selected", "Links: three selected"),
    ("delete-links", "Delete three links"),
    ("undo-delete", "Undo after a delete"),
    ("saved-filters", "Saved filters"),
    ("columns", "Columns of the list"),
    ("rename-tag", "Rename a tag"),
    ("account-menu", "Account menu"),
    ("sessions", "Sessions"),
    ("first-key", "First key"),
    ("key-once", "New key, shown once"),
    ("new-key", "New key"),
    ("rotate-key", "Rotate a key"),
    ("revoke-key", "Revoke a key"),
    ("now-empty", "Overview without traffic"),
    ("links-empty", "No links"),
    ("links-none", "No links match"),
    ("link-unvisited", "Link without visits"),
    ("tags-empty", "No tags"),
    ("usage-empty", "Analytics without visits"),
    ("apps-empty", "No keys: open access"),
    ("domains-one", "One domain"),
    ("lists-empty", "No destination rules"),
    ("settings-none", "No settings match"),
    ("sign-in-refused", "Sign-in: wrong key"),
    ("new-link-invalid", "Create link: invalid destination"),
    ("new-link-taken", "Create link: slug in use"),
    ("form-taken", "Public form: slug in use"),
    ("link-missing", "Unknown link"),
    ("role-refused", "Page for another role"),
    ("session-ended", "Session ended during an edit"),
    ("import-unreadable", "Import: unreadable file"),
    ("import-rejected", "Import: rejected lines"),
    ("import-stopped", "Import: stopped"),
    ("now-alarm", "Overview with an alarm"),
    ("status-alarm", "Status page with an alarm"),
    ("now-lost", "Overview without connection"),
    ("tags-unreachable", "Tags: server unreachable"),
    ("form-sent", "Public form: waits for its answer"),
    ("links-loading", "Links are loading"),
    ("link-loading", "Link is loading"),
    ("usage-loading", "Analytics are loading"),
    ("links-searching", "Search is running"),
    ("links-exporting", "Export is running"),
    ("import-running", "Import is running"),
];

/// Pages of the console of a demonstration, which show visits of 90 days, by the names of their pictures.
const DEMO: [(&str, &str); 5] =
    [("now", ""), ("links", "links"), ("link", "links/summer"), ("tags", "tags"), ("usage", "usage")];

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

/// True if a link of [`demo_link`] redirects on the default domain, without a limit.
fn is_plain(number: usize) -> bool {
    ![3, 7, 11, 13, 17].contains(&(number % 29))
}

/// Makes links, and changes one of them. Returns the codes of those that can be followed at the default domain.
fn fill(caller: &mut api_client::ApiClient) -> Vec<String> {
    let mut codes = vec!["summer".to_owned()];
    for number in 0..300 {
        let code = caller.create(&demo_link(number)).code();
        codes.extend(Some(code).filter(|_| is_plain(number)));
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

/// Script: true if the page is there, with all that it loads.
const IS_THERE: &str = "document.querySelector('main h1, dialog') !== null && document.querySelector('.loading, .skeleton, [aria-busy=true]') === null";

/// Script: resolves once everything that fades or slides has done so. Skeletons, which pulse forever, stay as they are at
/// first.
const AT_REST: &str = "(() => {
    const isEndless = (one) => one.effect.getComputedTiming().iterations === Infinity;
    const [endless, others] = [true, false].map((wanted) => document.getAnimations().filter((one) => isEndless(one) === wanted));
    endless.forEach((one) => { one.pause(); one.currentTime = 0; });
    return Promise.all(others.map((one) => one.finished)).then(() => true);
})()";

/// The size of the window for a picture. Plots follow it, which a picture of more than the window changes.
fn window_of(name: &str, (width, height): (u32, u32)) -> (u32, u32) {
    (width, if name.starts_with("now") { height.max(NOW_HEIGHT) } else { height })
}

/// Looks at a page in both sizes and both themes. `open` goes to it: in each size it is loaded, as on a device that has
/// that size.
fn look(browser: &Browser, name: &str, open: impl Fn()) {
    for (size_name, size) in SIZES {
        browser.resize(window_of(name, size));
        open();
        wait_until("a page that is there", || browser.value(IS_THERE) == true);
        assert_eq!(browser.value("document.querySelector('.state.bad')?.innerText ?? null"), Value::Null, "{name}");
        fits(browser, name);
        photograph(browser, name, size_name);
    }
    browser.resize(SIZES[0].1);
}

/// Looks at what is shown, in both sizes; in both themes where pictures are kept. It is not loaded again.
fn look_at(browser: &Browser, name: &str) {
    for (size_name, size) in SIZES {
        browser.resize(window_of(name, size));
        fits(browser, name);
        if size_name == "phone" {
            browser.scrolls_nowhere_sideways();
            browser.fits_fingers();
        }
        if folder().is_some() {
            photograph(browser, name, size_name);
        }
    }
    browser.resize(SIZES[0].1);
}

/// Asserts that the page is as wide as its window, with dates in their longest form, and that its picture is in the list.
fn fits(browser: &Browser, name: &str) {
    assert!(PICTURES.iter().any(|(known, _)| *known == name), "{name} is not in the list of pictures");
    browser.show_iso_dates();
    browser.fits();
}

/// Shows both themes. Takes a picture of each where pictures are kept, and otherwise only of the first page on a phone: drawing and
/// packing a picture keeps a CPU busy for longer than loading the page, and nobody would look at it.
fn photograph(browser: &Browser, name: &str, size_name: &str) {
    for theme in ["light", "dark"] {
        browser.prefer(theme);
        // Plots are drawn again in the colours of the theme.
        browser.value(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))",
        );
        if folder().is_none() && (name, size_name) != ("sign-in", "phone") {
            continue;
        }
        browser.value(AT_REST);
        // Dialogs, menus and messages are above what the window shows of its page.
        let is_above = browser.value("document.querySelector('dialog[open], .menu, .toast') !== null") == true;
        let picture = if is_above { browser.window() } else { browser.whole_page() };
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        if let Some(folder) = folder() {
            std::fs::write(folder.join(format!("{name}-{size_name}-{theme}.png")), picture).unwrap();
        }
    }
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
            // Open in one size, they stay open in the next one.
            browser.value("document.querySelector('.server-details:not([open]) > summary')?.click()");
            std::thread::sleep(folder().map_or(Duration::ZERO, |_| FILLING));
        };
        look(&browser, "now-server", watch);
        drop(stop);
    });
    for (name, page) in CONSOLE {
        look(&browser, name, || browser.go(&console(page)));
    }
    look_at_dialogs(&browser, console);
    look_at_demo(&browser);
    look(&browser, "status", || browser.go(&format!("http://{}/status", node.admin)));
    look(&browser, "runbook", || browser.go(&format!("http://{}/runbook/disk_full", node.admin)));
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

#[test]
fn readme_lists_every_picture() {
    let picture = |name: &str, size: &str, theme: &str| format!("[{theme}]({name}-{size}-{theme}.png)");
    let pair = |name: &str, size: &str| ["light", "dark"].map(|theme| picture(name, size, theme)).join(", ");
    let expected =
        PICTURES.map(|(name, title)| format!("| {title} | {} | {} |", pair(name, "wide"), pair(name, "phone")));
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/screens/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let listed: Vec<&str> = readme.lines().filter(|line| line.contains(".png)")).collect();
    assert_eq!(listed, expected);
}
