//! The console in a browser: sign-in, search, edits and live plots, by mouse and by keyboard, on a phone and on a
//! screen, in light and dark, and with hostile content.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::api_client;
use crate::support::browser::{Browser, ENTER, SCREEN, TAB, are_sound};
use crate::support::console::{
    IS_IN_ITS_COLOUR, OpenConsole, TARGET, at, enter_key, lacks, open_node, press, says, shows,
};
use crate::support::http::Wire;
use crate::support::node::{Setup, free_address, wait_until};
use crate::support::sessions::with_key;
use crate::support::stop::StopOnDrop;

/// Every page of the console.
const PAGES: [&str; 12] = [
    "",
    "links",
    "links/hostile",
    "links/gone",
    "tags",
    "import",
    "usage",
    "apps",
    "domains",
    "lists",
    "fleet",
    "settings",
];

#[test]
fn session_searches_edits_and_signs_out() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let mut caller = api_client::ApiClient::new(&node, &key);
    wait_until("the key", || caller.is_known(&node));
    for number in 0..60 {
        let fields = json!({"longUrl": format!("{TARGET}&n={number}"), "customSlug": format!("item-{number:02}"), "title": format!("Item {number}")});
        caller.create(&fields);
    }
    let mut browser = Browser::open();
    browser.expect("status of 401");
    browser.resize(SCREEN);
    // Who is not signed in is led to the form, and from there to the page that was wanted.
    browser.go(&at(&node, "links?q=item-17"));
    assert_eq!(browser.title(), "Sign in - carom");
    browser.is_accessible();
    browser.fill("#key", "carom_ak_wrong");
    browser.click("button");
    assert!(!browser.text("#key-error").is_empty());
    enter_key(&browser, &key);
    says(&browser, "tbody", "Item 17");
    assert_eq!(browser.value("document.querySelectorAll('tbody tr').length"), json!(1));
    assert_eq!(browser.value("document.cookie"), json!(""), "no script sees the cookie");
    // A search as one types; what is asked for stands in the address.
    browser.value("document.querySelector('input[type=search]').select()");
    browser.press("Item 3");
    wait_until("eleven links", || browser.value("document.querySelectorAll('tbody tr').length") == json!(11));
    assert!(browser.url().contains("q=Item+3"), "{}", browser.url());
    browser.go(&at(&node, "links/item-17"));
    shows(&browser, ".destination");
    press(&browser, "main", "edit");
    browser.value("document.querySelector('dialog input[name=title]').select()");
    browser.press("Renamed & <b>bold</b>");
    press(&browser, "dialog", "submit");
    says(&browser, ".history", "Renamed & <b>bold</b>");
    says(&browser, ".history", "ops");
    let has_zone = r"/ \d\d:\d\d [A-Z]\S+$/.test(document.querySelector('.history time').textContent)";
    assert_eq!(browser.value(has_zone), json!(true));
    // What is wrong stands beside its field.
    browser.expect("status of 400");
    press(&browser, "main", "edit");
    browser.value("document.querySelector('dialog [name=longUrl]').select()");
    browser.press("nothing");
    press(&browser, "dialog", "submit");
    shows(&browser, "dialog .error:not([hidden])");
    browser.is_accessible();
    press(&browser, "dialog", "cancel");
    press(&browser, "#account", "account");
    wait_until("the account menu", || browser.value("document.activeElement.dataset.action") == json!("sessions"));
    browser.is_accessible();
    press(&browser, "#account .menu", "sign-out");
    wait_until("the form", || browser.title() == "Sign in - carom");
    browser.go(&at(&node, "links/item-17"));
    assert_eq!(browser.title(), "Sign in - carom");
    browser.close();
    node.terminate();
}

/// A restart ends all sessions. Who has typed something, or chosen a file, signs in on the page where that stands.
#[test]
fn input_survives_an_ended_session() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).argument("--admin-listen").argument(free_address().to_string());
    let (node, key) = with_key(&setup);
    let mut caller = api_client::ApiClient::new(&node, &key);
    wait_until("the key", || caller.is_known(&node));
    caller.create(&json!({"longUrl": TARGET, "customSlug": "typed", "title": "Before"}));
    let mut browser = Browser::open();
    for complaint in ["status of 401", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_NETWORK"] {
        browser.expect(complaint);
    }
    browser.go(&at(&node, "links/typed"));
    enter_key(&browser, &key);
    press(&browser, "main", "edit");
    browser.value("document.querySelector('dialog input[name=title]').select()");
    browser.press("After");
    let node = node.restart();
    let is_asked = || browser.value("document.querySelector('dialog input[name=key]') !== null") == true;
    wait_until("who asks for a key", is_asked);
    shows(&browser, "#live[data-state=ended]");
    browser.is_accessible();
    browser.fill("dialog input[name=key]", "carom_ak_wrong");
    press(&browser, "dialog:last-of-type", "submit");
    shows(&browser, "dialog:last-of-type .error:not([hidden])");
    browser.value("document.querySelector('dialog input[name=key]').select()");
    browser.press(&key);
    press(&browser, "dialog:last-of-type", "submit");
    wait_until("the dialog before", || !is_asked());
    assert_eq!(browser.value("document.querySelector('dialog input[name=title]').value"), json!("After"));
    press(&browser, "dialog", "submit");
    says(&browser, ".history", "After");
    // Where nothing is lost the page for it is shown.
    let node = node.restart();
    wait_until("the form", || browser.title() == "Sign in - carom");
    enter_key(&browser, &key);
    says(&browser, ".history", "After");
    browser.close();
    node.terminate();
}

#[test]
fn live_plots_follow_the_traffic() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    let code = node.wire().shorten(TARGET);
    let mut browser = Browser::open();
    browser.go(&at(&node, ""));
    shows(&browser, "#live[data-state=live]");
    shows(&browser, ".server-details:not([open])");
    browser.click(".server-details > summary");
    says(&browser, ".traffic", "No requests in the last two minutes");
    let said = || {
        browser
            .value("document.querySelector('.traffic .plot-picture')?.getAttribute('aria-label') ?? ''")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let drawn = || browser.value("document.querySelector('.traffic .plot-picture canvas')?.toDataURL() ?? ''");
    let rate = || browser.value("document.querySelector('.tile dd')?.innerText ?? ''");
    wait_until("a plot", || !said().is_empty() && rate() == "0");
    let (still, empty) = (said(), drawn());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = node.wire();
            while !stop.load(Ordering::Relaxed) {
                wire.get(&format!("/{code}"));
            }
        });
        // Also when an assertion fails, as the scope waits for the thread.
        let _stop = StopOnDrop(&stop);
        wait_until("a plot that moves", || said() != still && drawn() != empty && rate() != "0");
        says(&browser, ".tiles", "p99 latency (2 min)");
        // In place: the focus stays where it is.
        browser.value("document.querySelector('[data-span=minutes]').focus()");
        let before = said();
        wait_until("the next second", || said() != before);
        assert_eq!(browser.value("document.activeElement.dataset.span"), json!("minutes"));
    });
    // Plots have the colours that stand above them, also when the theme is changed while they are seen.
    browser.go(&at(&node, "usage"));
    for theme in ["light", "dark", "light"] {
        browser.prefer(theme);
        wait_until(theme, || browser.value(IS_IN_ITS_COLOUR) == true);
    }
    // Who looks is told that nobody answers any more.
    browser.go(&at(&node, ""));
    shows(&browser, ".well[data-kind]");
    browser.expect("net::ERR");
    browser.expect("Failed to load resource");
    let setup = node.terminate();
    shows(&browser, "#live[data-state=lost]");
    // It says so once, and nothing else claims to be current.
    says(&browser, ".well", "Connection lost, reconnecting");
    shows(&browser, ".stale > .server .tiles");
    lacks(&browser, "main .notice:not([hidden])");
    says(&browser, ".now-head", "Last known values");
    lacks(&browser, ".now-head .badge");
    drop(setup);
    browser.close();
}

#[test]
fn keyboard_reaches_every_control() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    ["by-hob", "by-hand"].iter().for_each(|slug| node.wire().shorten_as(slug, TARGET));
    browser.go(&at(node, "links"));
    says(browser, "tbody", "by-hand");
    browser.press("/");
    wait_until("the search", || browser.value("document.activeElement.type") == "search");
    browser.press("by-ha");
    wait_until("what was searched for", || browser.url().contains("q=by-ha"));
    // Rows from before the search are not those that keys should select.
    wait_until("other rows", || {
        browser.value("document.querySelector('tbody')?.innerText.includes('by-hob')") == false
    });
    says(browser, "tbody", "by-hand");
    browser.value("document.activeElement.blur()");
    browser.press("j");
    browser.press("x");
    wait_until("a selection", || browser.value("document.querySelector('tbody input').checked") == true);
    browser.press(ENTER);
    wait_until("the page of the link", || browser.url() == at(node, "links/by-hand"));
    wait_until("the heading", || browser.value("document.activeElement.tagName") == "H1");
    browser.go(&at(node, "links"));
    says(browser, "tbody", "by-hand");
    browser.press("c");
    wait_until("a form", || browser.value("document.activeElement.name") == "longUrl");
    browser.press(TARGET);
    browser.press(ENTER);
    wait_until("three links", || node.status()["links"] == 3);
    // The first thing that Tab reaches leads past the navigation.
    browser.go(&at(node, "settings"));
    says(browser, "main", "data_dir");
    browser.value("document.activeElement.blur()");
    browser.press(TAB);
    assert_eq!(browser.value("document.activeElement.className"), json!("skip"));
    console.close();
}

#[test]
fn pages_are_accessible_and_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    let evil = "\u{202e}<img src=x onerror=alert(1)><script>alert(2)</script>\"'&";
    let mut wire = node.wire();
    let long = format!("https://xn--bcher-kva.example/{}", "x".repeat(2_000));
    let fields = json!({"longUrl": long, "customSlug": "hostile", "title": format!("{evil}{}", "t".repeat(400)), "tags": [evil, "y".repeat(200)]});
    assert_eq!(wire.create(&fields).status, 200);
    let patch = json!({"title": evil, "longUrl": format!("https://example.org/{evil}")});
    assert_eq!(
        wire.ask("PATCH", "/rest/v3/short-urls/hostile", api_client::JSON, patch.to_string().as_bytes()).status,
        200
    );
    let visit = "Referer: https://evil\"><script>.example/\r\nUser-Agent: <script>alert(3)</script>\r\n";
    wire.ask("GET", "/hostile", visit, b"");
    wire.ask("GET", "/hostile", "Referer: https://news.example/\r\n", b"");
    let mut browser = Browser::open();
    // A page of a link that is not there asks for it.
    browser.expect("status of 404");
    for page in PAGES {
        browser.go(&at(&node, page));
        wait_until("the page", || {
            browser.value("document.querySelector('main h1') !== null && document.querySelector('main .loading, main .row-skeleton, main [aria-busy=true]') === null && document.getAnimations().length === 0") == true
        });
        browser.fits_everywhere(|_| {});
        assert_eq!(
            browser.value("document.querySelectorAll('main img[src=x], main script').length"),
            json!(0),
            "{page}"
        );
        browser.has_no_complaints();
    }
    browser.close();
    let mut admin = Wire::open(node.admin);
    let shell = admin.ask("GET", "/admin/", "Accept: text/html\r\n", b"").text().to_owned();
    let setup = node.terminate().env("CAROM_ADMIN_REQUIRE_KEY", "true");
    let node = setup.start();
    let form = Wire::open(node.admin).get("/admin/sign-in?next=%22%3E%3Cscript%3E").text().to_owned();
    assert!(!form.contains("<script"), "{form}");
    are_sound(&[("shell", &shell), ("form", &form)]);
    for html in [&shell, &form] {
        assert!(!html.contains("://"), "{html}");
        assert!(!html.contains("<style"), "{html}");
        assert!(!html.contains(" style="), "{html}");
    }
    node.terminate();
}

#[test]
fn keys_are_shown_once_and_revoked() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "apps"));
    enter_key(browser, &key);
    says(browser, "main", "ops");
    press(browser, "main", "new-key");
    // The title of a dialog and its button have one verb.
    says(browser, "dialog h2", "Create key");
    says(browser, "dialog [data-action=submit]", "Create key");
    // The most common role is the first one, and an app without a name gets that of the key.
    let first_role = "document.querySelector('dialog input[name=role]').value";
    assert_eq!(browser.value(first_role), json!("write-own"));
    browser.fill("dialog input[name=name]", "Web Shop");
    assert_eq!(browser.value("document.querySelector('dialog input[name=app]').value"), json!("web-shop"));
    browser.value("document.querySelector('dialog input[name=app]').select()");
    browser.press("shop");
    browser.press(ENTER);
    wait_until("a key", || {
        browser.value("document.querySelector('dialog .secret')?.textContent.startsWith('carom_ak_') ?? false") == true
    });
    browser.is_accessible();
    let shown = browser.value("document.querySelector('dialog .secret').textContent");
    press(browser, "dialog", "copied");
    let mut shop = api_client::ApiClient::new(node, shown.as_str().unwrap());
    wait_until("the new key", || shop.is_known(node));
    says(browser, "main", "shop");
    assert!(
        !browser.value("document.body.innerText").as_str().unwrap().contains(shown.as_str().unwrap()),
        "it is shown again"
    );
    let told: Value = api_client::ApiClient::new(node, &key).get("/rest/v3/tags").json();
    assert!(told["tags"].is_object(), "{told}");
    // The question and the message name the key, and not its ID alone.
    press(browser, ".keys:has(.key-name)", "revoke");
    says(browser, "dialog h2", "Revoke key “Web Shop” (");
    says(browser, "dialog [data-action=confirm]", "Revoke key");
    press(browser, "dialog", "confirm");
    says(browser, "#toasts", "Key “Web Shop” (");
    console.close();
}

/// Script: the p99 that the overview shows of a window with requests, of one without, and of none.
const SHOWN_P99: &str =
    "import(new URL('now-latency.js', document.querySelector('script[type=module]').src)).then(({ quantiles }) => {
    const sinceStart = { count: 9, p50: 1, p90: 2, p99: 3, p999: 4 };
    const idle = { count: 0, p50: null, p90: null, p99: null, p999: null };
    const windows = [{ ...sinceStart, p99: 30 }, idle, null];
    return windows.map((window) => quantiles({ window, sinceStart })).map(({ p99, isRecent }) => [p99, isRecent]);
})";

#[test]
fn p99_is_of_the_window_or_the_start() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    assert_eq!(browser.value(SHOWN_P99), json!([[30, true], [3, false], [3, false]]));
    console.close();
}

/// Script: how the page Fleet shows a contact that is current, none, and one after which links may be missing; and the relay
/// among several nodes, and among nodes without one.
const SHOWN_SITES: &str =
    "import(new URL('fleet-sites.js', document.querySelector('script[type=module]').src)).then(({ contactOf, relaysOf, siteLag }) => {
    const site = { current: true, mayLack: false, lagMillis: 400 };
    const sites = [site, { ...site, current: false, lagMillis: null }, { ...site, mayLack: true }];
    const of = (node, silentMillis, relay) => ({ node, silentMillis, about: { relay } });
    const nodes = [of('n0', 9000, true), of('n1', 100, true), of('n2', 100, false), { node: 'n3', silentMillis: 1, about: null }];
    return [...sites.map((one) => [...contactOf(one), siteLag(one)]), relaysOf({ nodes }), relaysOf({ nodes: [nodes[2]] })];
})";

#[test]
fn contact_of_sites_is_said_in_words() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "fleet"));
    // A node that is alone is in a picture without Redis.
    says(browser, "main", "Single node");
    says(browser, ".map.alone .map-node", "Ready");
    // The settings of a fleet, step by step.
    let steps = "[...document.querySelectorAll('main ol > li')].map((step) => [...step.querySelectorAll('code')].map((name) => name.textContent))";
    let settings = [json!(["redis", "fleet.prefix"]), json!(["space_key_file"]), json!(["fleet.node"])];
    assert_eq!(browser.value(steps), json!(settings));
    let shown = [
        json!(["Current", "good", "400 ms"]),
        json!(["No contact", "warn", "Unknown"]),
        json!(["May lack links", "bad", "400 ms"]),
        json!("n1"),
        json!("Unknown"),
    ];
    assert_eq!(browser.value(SHOWN_SITES), json!(shown));
    console.close();
}

/// Script: what a page says of nodes whose visits are missing, for a reason that the console knows and for others.
const SHOWN_LACKS: &str =
    "import(new URL('parts.js', document.querySelector('script[type=module]').src)).then(({ sourcesNote }) => {
    const since = '2026-01-02T03:04:05+00:00';
    const lacks = ['unsent', 'later', 'all'].map((reason, at) => ({ node: `n${at}`, since, reason }));
    return sourcesNote({ nodes: ['n9'], lacks })[0].textContent.replaceAll(/since [^)]+/g, 'since');
})";

#[test]
fn unknown_reasons_of_lost_visits_are_named() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    let shown = "Visits are missing: n0 (not sent by that node since), n1 (later since), n2 (all since)";
    assert_eq!(browser.value(SHOWN_LACKS), json!(shown));
    console.close();
}

#[test]
fn first_key_stays_shown_until_copied() {
    let console = OpenConsole::open().expecting(&["status of 400", "status of 401", "ERR_INCOMPLETE_CHUNKED_ENCODING"]);
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    browser.go(&at(node, "apps"));
    // The notice warns once, and one button creates the key.
    shows(browser, ".open-notice");
    shows(browser, "main [data-action=new-key][hidden]");
    lacks(browser, "#account > *");
    press(browser, "main", "first-key");
    says(browser, "dialog h2", "Create your admin key");
    // An invalid name is refused with a valid suggestion.
    browser.press("Anna Smith");
    press(browser, "dialog", "submit");
    says(browser, "dialog .field .error", "such as anna-smith");
    // The hint and the error state one rule.
    for part in ["small", ".error"] {
        says(browser, &format!("dialog .field {part}"), "“_” and “-”, with a letter or digit first");
    }
    browser.value("document.querySelector('dialog input[name=app]').select()");
    browser.press("ops");
    // Nothing is asked that would leave nobody who can sign in.
    let asked = "[...document.querySelectorAll('dialog input, dialog select')].map((one) => one.name)";
    assert_eq!(browser.value(asked), json!(["app", "name"]));
    press(browser, "dialog", "submit");
    wait_until("a key", || browser.value("Boolean(document.querySelector('dialog .secret'))") == true);
    let shown = browser.value("document.querySelector('dialog .secret').textContent");
    wait_until("a node that asks", || Wire::open(node.admin).get("/admin/api/session").status == 401);
    // The page continues with the new key: behind the dialog, nothing is lost, and nothing says that access is open.
    says(browser, "#account", "ops");
    lacks(browser, ".open-notice");
    browser.value("document.dispatchEvent(new Event('visibilitychange'))");
    wait_until("the live status", || browser.value("document.querySelector('#live').dataset.state") == "live");
    for _ in 0..20 {
        assert_eq!(browser.value("document.querySelector('dialog .secret')?.textContent"), shown);
        assert_ne!(browser.value("document.querySelector('#live').dataset.state"), json!("lost"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    press(browser, "dialog", "copied");
    lacks(browser, "dialog");
    says(browser, "main", "ops");
    assert!(browser.url().ends_with("/admin/apps"), "{}", browser.url());
    // What is wrong with an end of one's own stands where it was typed.
    press(browser, "main", "new-key");
    browser.press("shop");
    browser.value("(() => { const ends = document.querySelector('dialog select'); ends.value = 'own'; ends.dispatchEvent(new Event('change')); document.querySelector('dialog [name=until]').value = '2001-01-01T00:00'; })()");
    press(browser, "dialog", "submit");
    let beside = "document.querySelector('dialog [name=until]').closest('.field').querySelector('.error:not([hidden])')?.innerText ?? ''";
    wait_until("what is wrong", || browser.value(beside).as_str().is_some_and(|said| !said.is_empty()));
    console.close();
}
