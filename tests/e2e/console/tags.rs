//! Tags in the console: their list, renames, merges and deletes, and the tags of chosen links.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::api_client::ApiClient;
use crate::support::browser::{BACKSPACE, Browser, ENTER, PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, enter_key, lacks, open_node, press, says, shows};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::sessions::{more_keys, with_key};

fn create(node: &Node, slug: &str, tags: &[&str]) {
    let fields = json!({"longUrl": TARGET, "customSlug": slug, "tags": tags});
    assert_eq!(node.wire().create(&fields).status, 200);
}

/// Starts a node with three links and three tags.
fn node_with_tags(dir: &Path) -> Node {
    let node = open_node(dir);
    create(&node, "one", &["sale", "print"]);
    create(&node, "two", &["sale"]);
    create(&node, "three", &["mail"]);
    node
}

fn tags_of(node: &Node, slug: &str) -> Value {
    node.wire().get(&format!("/rest/v3/short-urls/{slug}")).json()["tags"].clone()
}

/// Clicks an action of a tag, once its row is there. Most of them are in the menu of the row.
fn act(browser: &Browser, tag: &str, action: &str) {
    let script = format!(
        "(() => {{
            const row = [...document.querySelectorAll('.tag-table tbody tr')].find((one) => one.cells[0].innerText.trim() === {});
            const find = () => row?.querySelector('[data-action={action}]');
            if (!find()) row?.querySelector('[data-action=tag-menu]').click();
            find()?.click();
            return Boolean(row);
        }})()",
        json!(tag)
    );
    wait_until(tag, || browser.value(&script) == true);
}

/// Types the new name of a tag into the open dialog, and sends it.
fn enter_name(browser: &Browser, name: &str) {
    wait_until("a field", || browser.value("document.activeElement.name") == "newName");
    browser.value("document.activeElement.select()");
    browser.press(name);
    browser.press(ENTER);
}

#[test]
fn tags_are_filtered_sorted_and_opened() {
    let console = OpenConsole::with(node_with_tags);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    browser.click("#nav a[href='/admin/tags']");
    says(browser, ".list-status", "3 tags");
    let names = || {
        browser
            .value("[...document.querySelectorAll('.tag-table [data-action=tag-links]')].map((one) => one.innerText)")
    };
    // Nobody has chosen an order.
    assert_eq!(browser.value("document.querySelector('[data-action=sort]').value"), json!("visits-DESC"));
    says(browser, ".tag-table", "sale");
    assert_eq!(browser.value("document.querySelectorAll('.tag-table .share > i').length"), json!(3));
    browser.choose("[data-action=sort]", "tag-ASC");
    wait_until("the first by name", || names() == json!(["mail", "print", "sale"]));
    says(browser, "main .card h2", "Tags by name");
    // A row has one button, and its menu all actions.
    assert_eq!(browser.value("document.querySelectorAll('.tag-table tbody button').length"), json!(3));
    browser.fits_everywhere(|_| browser.scrolls_nowhere_sideways());
    browser.choose("[data-action=sort]", "shortUrlsCount-DESC");
    wait_until("the most used first", || names()[0] == "sale");
    browser.fill(".filter", "ai");
    wait_until("one tag", || names() == json!(["mail"]));
    assert!(browser.url().contains("q=ai"), "{}", browser.url());
    assert!(browser.url().contains("sort=shortUrlsCount-DESC"), "{}", browser.url());
    browser.fill(".filter", "xyz");
    says(browser, "main", "No tags match");
    press(browser, "main", "clear-filter");
    says(browser, ".list-status", "3 tags");
    act(browser, "sale", "tag-links");
    says(browser, ".list-status", "2 links");
    assert!(browser.url().ends_with("links?tags=sale"), "{}", browser.url());
    browser.go(&at(node, "tags"));
    act(browser, "mail", "tag-analytics");
    says(browser, ".chips", "Tag: mail");
    console.close();
}

#[test]
fn tags_are_renamed_merged_and_deleted() {
    let console = OpenConsole::with(node_with_tags);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "tags"));
    act(browser, "sale", "rename-tag");
    says(browser, "dialog h2", "Rename tag “sale”");
    says(browser, "dialog [data-action=submit]", "Rename tag");
    browser.is_accessible();
    enter_name(browser, "Summer Sale");
    wait_until("a renamed tag", || tags_of(node, "two") == json!(["summer-sale"]));
    press(browser, ".toast", "undo");
    wait_until("the tags as they were", || {
        tags_of(node, "one") == json!(["print", "sale"]) && tags_of(node, "two") == json!(["sale"])
    });
    // The name of another tag merges both, once that is confirmed.
    act(browser, "sale", "rename-tag");
    enter_name(browser, "print");
    says(browser, "dialog h2", "Merge tag “sale” into “print”");
    says(browser, "dialog [data-action=confirm]", "Merge tags");
    says(browser, "dialog", "1 link already has the tag print");
    says(browser, "dialog", "on 2 links");
    browser.is_accessible();
    press(browser, "dialog", "cancel");
    lacks(browser, "dialog");
    assert_eq!(tags_of(node, "two"), json!(["sale"]));
    act(browser, "sale", "rename-tag");
    enter_name(browser, "print");
    press(browser, "dialog", "confirm");
    wait_until("merged tags", || tags_of(node, "one") == json!(["print"]) && tags_of(node, "two") == json!(["print"]));
    says(browser, ".list-status", "2 tags");
    act(browser, "print", "delete-tag");
    says(browser, "dialog h2", "Delete tag “print”");
    says(browser, "dialog", "2 links lose the tag print");
    press(browser, "dialog", "confirm");
    wait_until("links without the tag", || tags_of(node, "one") == json!([]) && tags_of(node, "two") == json!([]));
    says(browser, ".list-status", "1 tag");
    // With the last tag, the page says what tags are for.
    act(browser, "mail", "delete-tag");
    press(browser, "dialog", "confirm");
    says(browser, "main", "No tags yet");
    browser.is_accessible();
    console.close();
}

/// Renames and deletes change the links of all apps, so a key of one app is not offered them.
#[test]
fn tags_of_an_app_have_no_actions() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, _) = with_key(&setup);
    let roles = ["write-own", "read-all", "write-all"];
    let keys = more_keys(&setup, &node, roles.map(|role| (role, role)));
    let mut caller = ApiClient::new(&node, &keys[0]);
    wait_until("the key", || caller.is_known(&node));
    let fields = json!({"longUrl": TARGET, "customSlug": "own", "tags": ["sale"]});
    assert_eq!(caller.create(&fields).status, 200);
    for (role, key) in roles.iter().zip(&keys) {
        let browser = Browser::open();
        browser.go(&at(&node, "tags"));
        enter_key(&browser, key);
        says(&browser, ".tag-table", "sale");
        press(&browser, "main", "tag-menu");
        shows(&browser, ".menu [data-action=tag-analytics]");
        let actions = "document.querySelectorAll('[data-action=rename-tag], [data-action=delete-tag]').length";
        assert_eq!(browser.value(actions), json!(if *role == "write-all" { 2 } else { 0 }), "{role}");
        browser.close();
    }
    node.terminate();
}

/// Script: the chips of the field for tags, and what is typed after them.
const CHIPS: &str = "[[...document.querySelectorAll('dialog .tag-chip')].map((one) => one.textContent), document.querySelector('dialog input[name=tags]').value]";

/// Script: pastes a text into the field for tags.
const PASTE: &str = "(() => {
    const input = document.querySelector('dialog input[name=tags]');
    input.value = 'mail, web';
    input.dispatchEvent(new InputEvent('input', { inputType: 'insertFromPaste' }));
})()";

/// Tags were once a text with commas.
#[test]
fn typed_tags_become_chips() {
    let console = OpenConsole::with(node_with_tags);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links/one"));
    says(browser, "main", "print");
    press(browser, "main", "edit");
    shows(browser, "dialog .tag-chip");
    assert_eq!(browser.value(CHIPS), json!([["print", "sale"], ""]));
    browser.click("dialog input[name=tags]");
    browser.press("summer,au");
    assert_eq!(browser.value(CHIPS), json!([["print", "sale", "summer"], "au"]));
    browser.press("tumn");
    browser.press(ENTER);
    assert_eq!(browser.value(CHIPS), json!([["print", "sale", "summer", "autumn"], ""]));
    browser.press(BACKSPACE);
    browser.press("\"a,b");
    assert_eq!(browser.value(CHIPS), json!([["print", "sale", "summer"], "\"a,b"]));
    browser.press("\",");
    browser.value(PASTE);
    assert_eq!(browser.value(CHIPS), json!([["print", "sale", "summer", "a,b", "mail", "web"], ""]));
    press(browser, "dialog", "remove-tag");
    assert_eq!(browser.value(CHIPS)[0][0], "sale");
    for size in [PHONE, SCREEN] {
        browser.resize(size);
        browser.fits();
        browser.is_accessible();
    }
    // What is still typed counts as well.
    browser.click("dialog input[name=tags]");
    browser.press("last");
    press(browser, "dialog", "submit");
    wait_until("the tags", || tags_of(node, "one") == json!(["a,b", "last", "mail", "sale", "summer", "web"]));
    console.close();
}

#[test]
fn tags_filter_has_chips() {
    let console = OpenConsole::with(node_with_tags);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "3 links");
    press(browser, ".links-bar", "filters");
    browser.click(".filters input[name=tags]");
    let labels = "[...document.querySelectorAll('.filters label')].filter((one) => one.checkVisibility()).map((one) => one.textContent)";
    let asks_how = || browser.value(labels).as_array().unwrap().contains(&json!("Tags match"));
    browser.press("sale,");
    says(browser, ".list-status", "2 links");
    assert!(!asks_how());
    browser.press("mail");
    browser.press(ENTER);
    says(browser, ".list-status", "3 links");
    assert!(asks_how());
    browser.press(BACKSPACE);
    says(browser, ".list-status", "2 links");
    assert!(!asks_how());
    assert!(browser.url().ends_with("links?tags=sale"), "{}", browser.url());
    press(browser, ".chips", "without-tags");
    says(browser, ".list-status", "3 links");
    lacks(browser, ".filters .tag-chip");
    browser.is_accessible();
    browser.resize(PHONE);
    let rows = "new Set([...document.querySelectorAll('.filters input[type=date]')].map((one) => one.getBoundingClientRect().top)).size";
    assert_eq!(browser.value(rows), json!(1));
    browser.fits();
    console.close();
}

#[test]
fn tags_of_chosen_links_are_removed() {
    let console = OpenConsole::with(node_with_tags);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "3 links");
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "remove-tags");
    says(browser, "dialog", "sale (2 links)");
    browser.is_accessible();
    browser.value("document.querySelector('dialog input[value=sale]').click()");
    press(browser, "dialog", "submit");
    wait_until("links without the tag", || {
        tags_of(node, "one") == json!(["print"]) && tags_of(node, "two") == json!([])
    });
    assert_eq!(tags_of(node, "three"), json!(["mail"]));
    press(browser, ".toast", "undo");
    wait_until("links with the tag", || {
        tags_of(node, "one") == json!(["print", "sale"]) && tags_of(node, "two") == json!(["sale"])
    });
    browser.resize(PHONE);
    browser.fits();
    browser.fits_fingers();
    shows(browser, "main [data-action=remove-tags]");
    console.close();
}

/// Script: from now on, the node refuses requests for tags as `window.refusal` says, if that is set; with a `part`, only
/// those with this part in their address. It keeps the bodies
/// of renames in `window.renames`, and says that the first one has to be repeated.
const WITH_REFUSALS: &str = "(() => {
    const real = window.fetch;
    const problem = (value) => Promise.resolve(Response.json(value, { status: value.status }));
    window.renames = [];
    window.fetch = (path, options) => {
        if (window.refusal && String(path).startsWith('/rest/v3/tags/stats') && path.includes(window.refusal.part ?? '')) return problem(window.refusal);
        if (options?.method !== 'PUT') return real(path, options);
        window.renames.push(JSON.parse(options.body));
        return window.renames.length > 1 ? Promise.resolve(new Response(null, { status: 204 }))
            : problem({ status: 503, title: 'Temporarily unavailable', detail: '3 links have changed, others have not: the time limit of one request has passed.' });
    };
})()";

#[test]
fn tags_say_why_they_are_missing() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    create(node, "one", &["sale"]);
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "1 link");
    browser.value(WITH_REFUSALS);
    browser.value(
        "window.refusal = { status: 503, title: 'Temporarily unavailable', detail: 'The tags are being counted.' }",
    );
    browser.click("#nav a[href='/admin/tags']");
    says(browser, "main [role=alert]", "The tags are being counted.");
    browser.is_accessible();
    browser.value("window.refusal = null");
    press(browser, "main", "retry");
    says(browser, ".tag-table", "sale");
    // Too many links to sort: the page offers what works.
    browser.value("window.refusal = { status: 400, title: 'Invalid data', detail: 'orderBy cannot sort', invalidElements: ['orderBy'] }");
    browser.choose("[data-action=sort]", "visits-DESC");
    says(browser, "main", "Too many links to sort by visits");
    browser.is_accessible();
    browser.value("window.refusal = null");
    press(browser, "main", "sort-by-name");
    says(browser, ".tag-table", "sale");
    // Without a chosen order, it does so by itself.
    browser.value(
        "window.refusal = { part: 'orderBy=visits', status: 400, title: 'Invalid data', invalidElements: ['orderBy'] }",
    );
    browser.click("#nav a[href='/admin/links']");
    says(browser, ".list-status", "1 link");
    browser.click("#nav a[href='/admin/tags']");
    says(browser, "main .card h2", "Tags by name");
    says(browser, ".tag-table", "sale");
    browser.value("window.refusal = null");
    // A rename that the node ends early continues by itself, as a merge with what has changed.
    act(browser, "sale", "rename-tag");
    enter_name(browser, "spring");
    says(browser, "#toasts", "sale is now spring.");
    let sent = browser.value("window.renames.map((one) => [one.oldName, one.newName, one.merge])");
    assert_eq!(sent, json!([["sale", "spring", false], ["sale", "spring", true]]));
    console.close();
}
