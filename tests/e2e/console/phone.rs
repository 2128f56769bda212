//! The console on a phone: nothing scrolls sideways, rows are cards, fingers hit their targets, and the navigation says
//! which page is shown.

use serde_json::json;

use crate::support::browser::{ENTER, ESCAPE, PHONE};
use crate::support::console::{OpenConsole, TARGET, at, enter_key, press, says, shows};
use crate::support::node::wait_until;

const PAGES: [&str; 11] =
    ["", "links", "links/first", "tags", "import", "usage", "apps", "domains", "lists", "fleet", "settings"];

/// Script: how far the page moved while it was drawn, as browsers measure it: 0.1 is the most that people do not mind.
const SHIFT: &str = "new Promise((done) => {
    setTimeout(() => done(0), 200);
    const sum = (all) => all.getEntries().reduce((sum, one) => sum + one.value, 0);
    new PerformanceObserver((all) => done(sum(all))).observe({ type: 'layout-shift', buffered: true });
})";

/// Script: true if the fonts that come with carom are in use.
const HAS_FONTS: &str = "['Inter', 'JetBrains Mono'].every((name) =>
    [...document.fonts].some((one) => one.family.includes(name) && one.status === 'loaded'))";

#[test]
fn pages_fit_a_phone_and_a_finger() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for code in ["first", "second"] {
        let fields = json!({"longUrl": format!("{TARGET}/{}", "x".repeat(300)), "customSlug": code, "title": "t".repeat(90), "tags": ["sale", "2026"]});
        assert_eq!(node.wire().create(&fields).status, 200);
    }
    node.wire().ask(
        "GET",
        "/first",
        "Referer: https://news.example/\r\nUser-Agent: Mozilla/5.0 Firefox/132.0\r\n",
        b"",
    );
    browser.resize(PHONE);
    for page in PAGES {
        browser.go(&at(node, page));
        wait_until("the page", || {
            browser.value("document.querySelector('main h1') !== null && document.querySelector('main .loading, main .row-skeleton, main [aria-busy=true]') === null") == true
        });
        let shift = browser.value(SHIFT).as_f64().unwrap();
        assert!(shift < 0.1, "{page} moved by {shift}");
        wait_until("the fonts", || page != "settings" || browser.value(HAS_FONTS) == true);
        browser.value("document.querySelectorAll('main details').forEach((one) => { one.open = true; })");
        browser.fits();
        browser.scrolls_nowhere_sideways();
        browser.fits_fingers();
        browser.is_accessible();
    }
    console.close();
}

#[test]
fn bar_opens_all_pages_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "links"));
    says(browser, "#tabs [aria-current]", "Links");
    let more = "document.querySelector('[data-action=more]')";
    browser.value(&format!("{more}.focus()"));
    browser.press(ENTER);
    assert_eq!(browser.value(&format!("{more}.getAttribute('aria-expanded')")), "true");
    wait_until("the focus", || browser.value("document.activeElement.closest('#nav') !== null") == true);
    browser.fits_fingers();
    browser.is_accessible();
    browser.press(ESCAPE);
    assert_eq!(browser.value("document.activeElement.dataset.action"), "more");
    browser.press(ENTER);
    browser.click("#nav a[href='/admin/fleet']");
    wait_until("the fleet", || browser.url() == at(node, "fleet"));
    shows(browser, "#tabs [data-current]");
    says(browser, "#tabs [data-current]", "Fleet");
    assert_eq!(browser.value("document.querySelector('.side').checkVisibility()"), json!(false));
    console.close();
}

/// Script: how labels are aligned with their values, which are as high as a finger needs where they are links.
const ALIGNMENT: &str =
    "getComputedStyle(document.querySelector('.as-cards td[data-label]:has(> a), .facts > div:has(a)')).alignItems";

#[test]
fn labels_stand_on_the_line_of_their_values() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "tagged", "tags": ["sale"]});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.resize(PHONE);
    browser.go(&at(node, "tags"));
    says(browser, "tbody", "sale");
    assert_eq!(browser.value(ALIGNMENT), json!("baseline"));
    browser.go(&at(node, "links/tagged"));
    says(browser, ".facts", "sale");
    assert_eq!(browser.value(ALIGNMENT), json!("baseline"));
    console.close();
}

/// Script: the pixels between the title of a link and its destination.
const GAP: &str = "(() => {
    const [title, target] = ['.title', '.target'].map((part) => document.querySelector(`tbody ${part}`).getBoundingClientRect());
    return target.top - title.bottom;
})()";

#[test]
fn title_opens_the_page_of_its_link() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "titled", "title": "Spring sale", "validUntil": "2099-01-02T00:00:00Z"});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.resize(PHONE);
    browser.go(&at(node, "links"));
    says(browser, "tbody .title", "Spring sale");
    says(browser, "tbody .dates", "Expires");
    let gap = browser.value(GAP);
    assert!(gap.as_f64() >= Some(0.0), "{gap}");
    browser.fits_fingers();
    // The bar at the bottom may cover the row.
    browser.value("document.querySelector('tbody .title').scrollIntoView({ block: 'center' })");
    browser.click("tbody .title");
    wait_until("the page of the link", || browser.url() == at(node, "links/titled"));
    console.close();
}

/// Script: how many choices of the dialog reach into the next one.
const OVERLAPS: &str = "[...document.querySelectorAll('dialog .choice')].filter((one, at, all) => {
    const next = all[at + 1]?.getBoundingClientRect().top ?? Infinity;
    return [...one.querySelectorAll('*')].some((part) => part.getBoundingClientRect().bottom > next);
}).length";

#[test]
fn roles_of_a_key_do_not_overlap() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "apps"));
    enter_key(browser, &key);
    press(browser, "main", "new-key");
    shows(browser, "dialog .choice");
    assert_eq!(browser.value(OVERLAPS), json!(0));
    browser.fits_fingers();
    console.close();
}
