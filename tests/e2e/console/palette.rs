//! The command palette, by keyboard alone: it finds pages, links and actions.

use serde_json::json;

use crate::support::browser::{CONTROL, DOWN, ENTER, ESCAPE};
use crate::support::console::{OpenConsole, TARGET, at, lacks, press, says, shows};
use crate::support::node::wait_until;

#[test]
fn palette_finds_pages_links_and_actions() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "summer", "title": "Summer <b>sale</b>"});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.go(&at(node, "settings"));
    says(browser, "main", "data_dir");
    // A page, by the beginning of its name.
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("anal");
    says(browser, ".palette-entry[aria-selected=true]", "Analytics");
    browser.press(ENTER);
    wait_until("analytics", || browser.url() == at(node, "usage"));
    shows(browser, ".period");
    // A link, by a word of its title.
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("summer");
    says(browser, ".palette-list", "Summer <b>sale</b>");
    browser.fits_everywhere(|_| {});
    browser.press(ENTER);
    wait_until("the link", || browser.url() == at(node, "links/summer"));
    // Arrows move on, and Escape gives the focus back.
    press(browser, ".top", "palette");
    shows(browser, "dialog.palette");
    says(browser, ".palette-entry[aria-selected=true]", "Create link");
    browser.press(DOWN);
    says(browser, ".palette-entry[aria-selected=true]", "Overview");
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    // An action, from anywhere. What it creates is offered at once.
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("new li");
    says(browser, ".palette-entry[aria-selected=true]", "Create link");
    browser.press(ENTER);
    wait_until("a form", || browser.value("document.activeElement.name") == "longUrl");
    let expires = "document.querySelector('dialog select[name=expires]').selectedOptions[0].textContent";
    assert_eq!(browser.value(expires), json!("In 2 years (default)"));
    // The slug stands behind the host of the short URL.
    let domains = node.wire().get("/rest/v3/domains").json();
    let host = domains["domains"]["data"][0]["domain"].as_str().unwrap();
    assert_eq!(browser.value("document.querySelector('dialog .prefix').textContent"), json!(format!("{host}/")));
    browser.press("https://example.org/another");
    browser.press(ENTER);
    shows(browser, "dialog .created");
    says(browser, "dialog .created-times", "Expires ");
    wait_until("a picture", || browser.value("document.querySelector('dialog .qr img').naturalWidth > 0") == true);
    browser.is_accessible();
    press(browser, "dialog", "another");
    wait_until("the next form", || browser.value("document.activeElement.name") == "longUrl");
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    assert_eq!(node.status()["links"], 2);
    console.close();
}

/// Script: whether each of some hosts is that of this machine alone.
const LOOPBACK_HOSTS: &str =
    "import(new URL('link-parts.js', document.querySelector('script[type=module]').src)).then(({ isLoopback }) =>
    ['127.0.0.1', '[::1]', 'localhost', 'go.localhost', '192.168.0.7', 'go.example', 'notlocalhost'].map(isLoopback))";

#[test]
fn qr_codes_of_this_machine_are_warned_of() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("code", TARGET);
    browser.go(&at(node, "links/code"));
    press(browser, "main", "qr");
    shows(browser, "dialog .qr img");
    assert_eq!(browser.value(LOOPBACK_HOSTS), json!([true, true, true, true, false, false, false]));
    let url = node.wire().get("/rest/v3/short-urls/code").json()["shortUrl"].as_str().unwrap().to_owned();
    let warns = browser.value("document.querySelector('dialog .notice.warn') !== null");
    assert_eq!(warns, json!(url.starts_with("http://127.")), "{url}");
    browser.fits_everywhere(|_| {});
    if warns == true {
        // The setting is on another page, which no dialog covers.
        says(browser, "dialog .notice", "This short URL works only on this machine. Set base_url.");
        browser.value("document.querySelector('dialog .notice a').click()");
        wait_until("the setting", || browser.url() == at(node, "settings?filter=base_url"));
        lacks(browser, "dialog");
    }
    console.close();
}

/// Script: the settings without a title, and whether each title is that of one setting alone.
const WITHOUT_TITLE: &str = "(async () => {
    const { titles } = await import(new URL('strings-settings.js', document.querySelector('script[type=module]').src));
    const { settings } = await (await fetch('/admin/api/settings')).json();
    const known = Object.values(titles);
    return [settings.map(({ name }) => name).filter((name) => !(name in titles)), known.length === settings.length && new Set(known).size === known.length];
})()";

/// Settings were once listed by their names, and by any word of their descriptions.
#[test]
fn settings_are_found_by_their_titles() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    shows(browser, "main [data-action=new-link]");
    assert_eq!(browser.value(WITHOUT_TITLE), json!([[], true]));
    let found = "[...document.querySelectorAll('.palette-name')].map((one) => one.textContent)";
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("default exp");
    wait_until("the setting", || browser.value(found) == json!(["links.default_ttl"]));
    browser.is_accessible();
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    console.close();
}

#[test]
fn palette_knows_other_words_and_urls() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    shows(browser, "main [data-action=new-link]");
    // The list of shortcuts has that of the palette.
    press(browser, "main", "shortcuts");
    says(browser, "dialog .facts", "Search links, pages and actions");
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    // A page, by another word for it. Escape closes the palette, whatever was typed.
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("statistics");
    says(browser, ".palette-entry[aria-selected=true]", "Analytics");
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    // Periods, settings by title or name, the kinds of keys, and what to do with tags.
    for (typed, found) in [
        ("last month", "Analytics, last month"),
        ("expires", "Links: expired"),
        ("rate", "fleet.join_rate"),
        ("keep_exp", "links.keep_expired"),
        ("read only key", "Create key"),
        ("rename tag", "Rename or merge tags"),
    ] {
        browser.chord(CONTROL, "k");
        shows(browser, "dialog.palette");
        browser.press(typed);
        says(browser, ".palette-list", found);
        browser.press(ESCAPE);
        lacks(browser, "dialog");
    }
    // A URL, which becomes the destination of a new link.
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("https://example.org/pasted");
    says(browser, ".palette-entry[aria-selected=true]", "Shorten this URL");
    browser.press(ENTER);
    wait_until("the destination", || {
        browser.value("document.querySelector('dialog input[name=longUrl]')?.value") == "https://example.org/pasted"
    });
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    assert_eq!(node.status()["links"], 0);
    console.close();
}
