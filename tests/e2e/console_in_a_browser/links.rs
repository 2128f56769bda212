//! Links at the console: one and many, changed, deleted and brought back; the list, and what the focus does.

use serde_json::json;

use super::{TARGET, at, open_node, press, says};
use crate::apps::{self, JSON};
use crate::browser::{Browser, ENTER, SCREEN};
use crate::http::{SHORT_URLS, Wire, request_at};
use crate::node::{Setup, wait_until};

#[test]
fn links_are_archived_deleted_and_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    node.wire().shorten_as("first", TARGET);
    node.wire().shorten_as("second", TARGET);
    let status = |code: &str| node.wire().get(&format!("/{code}")).status;
    let browser = Browser::open();
    browser.resize(SCREEN);
    browser.go(&at(&node, "links/first"));
    press(&browser, "button", "Archive");
    wait_until("an archived link", || status("first") == 410);
    press(&browser, ".toast button", "Undo");
    wait_until("a link that is back", || status("first") == 302);
    says(&browser, ".link-head", "Active");
    // A delete leads nowhere at once, and can be taken back.
    press(&browser, "button", "Delete");
    wait_until("a deleted link", || status("first") == 410);
    wait_until("an offer", || {
        browser.value("[...document.querySelectorAll('.toast button')].some((b) => b.textContent.startsWith('Undo'))")
            == true
    });
    browser
        .value("[...document.querySelectorAll('.toast button')].find((b) => b.textContent.startsWith('Undo')).click()");
    wait_until("a link that is back", || status("first") == 302);
    // Many at once; and what was deleted before the page was closed is finished by the next one.
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "second");
    browser.value("document.querySelector('thead input').click()");
    press(&browser, "button", "Delete");
    press(&browser, "dialog button", "Delete");
    wait_until("two links less", || status("first") == 410 && status("second") == 410);
    wait_until("what waits", || {
        browser.value("JSON.parse(localStorage.getItem('carom.console.deletes') ?? '[]').length") == json!(2)
    });
    browser.value("localStorage.setItem('carom.console.deletes', JSON.stringify(JSON.parse(localStorage.getItem('carom.console.deletes')).map((one) => ({ ...one, at: 1 }))))");
    browser.go(&at(&node, "links"));
    wait_until("links that are gone", || status("first") == 404 && status("second") == 404);
    browser.close();
    node.terminate();
}

/// What waits to be deleted may be somebody else's when its time comes.
#[test]
fn what_others_have_brought_back_or_made_anew_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    let mut wire = node.wire();
    for code in ["back", "anew", "gone"] {
        wire.shorten_as(code, TARGET);
    }
    let set = |wire: &mut Wire, code: &str, archived: bool| {
        let body = json!({ "archived": archived }).to_string();
        assert_eq!(wire.ask("PATCH", &format!("{SHORT_URLS}/{code}"), JSON, body.as_bytes()).status, 200);
    };
    let created = |wire: &mut Wire| wire.get(&format!("{SHORT_URLS}/anew")).json()["dateCreated"].clone();
    let browser = Browser::open();
    browser.resize(SCREEN);
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "gone");
    browser.value("document.querySelector('thead input').click()");
    press(&browser, "button", "Delete");
    press(&browser, "dialog button", "Delete");
    let waiting = "JSON.parse(localStorage.getItem('carom.console.deletes') ?? '[]').length";
    wait_until("what waits", || {
        ["back", "anew", "gone"].iter().all(|code| node.wire().get(&format!("/{code}")).status == 410)
            && browser.value(waiting) == json!(3)
    });
    set(&mut wire, "back", false);
    let before = created(&mut wire);
    wait_until("a link of another second", || {
        assert_eq!(wire.delete("anew").status, 204);
        wire.shorten_as("anew", TARGET);
        created(&mut wire) != before
    });
    set(&mut wire, "anew", true);
    browser.value("localStorage.setItem('carom.console.deletes', JSON.stringify(JSON.parse(localStorage.getItem('carom.console.deletes')).map((one) => ({ ...one, at: 1 }))))");
    browser.go(&at(&node, "links"));
    wait_until("nothing that waits", || browser.value(waiting) == json!(0));
    let statuses = ["back", "anew", "gone"].map(|code| wire.get(&format!("/{code}")).status);
    assert_eq!(statuses, [302, 410, 404]);
    assert!(browser.text("#toasts").contains("back was not deleted"), "{}", browser.text("#toasts"));
    browser.close();
    node.terminate();
}

/// Another page of the same browser may sign in anew: the session of this one is that of both then.
#[test]
fn who_signs_in_on_another_page_goes_on_here() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let key = apps::key(&setup, "ops", "admin");
    let node = setup.start();
    let mut browser = Browser::open();
    browser.expect("status of 403");
    browser.resize(SCREEN);
    browser.go(&at(&node, "links"));
    browser.fill("#key", &key);
    browser.press(ENTER);
    press(&browser, "button", "New link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.fill("dialog input[name=title]", "Tags, \"quoted\"");
    // As a form of another page would: it ends the session of this one.
    let sign_in = format!(
        "fetch('/admin/sign-in', {{method: 'POST', body: new URLSearchParams({{key: {}, next: '/admin/'}}), redirect: 'manual'}}).then((answer) => answer.type)",
        json!(key)
    );
    assert_eq!(browser.value(&sign_in), json!("opaqueredirect"));
    press(&browser, "dialog button", "Create");
    says(&browser, "tbody", "quoted");
    browser.close();
    node.terminate();
}

/// What an export tells, an import takes.
#[test]
fn texts_that_separate_others_survive_csv() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    let browser = Browser::open();
    browser.go(&at(&node, ""));
    says(&browser, "h1", "Now");
    let script = r#"import('/admin/assets/csv.js').then(async (csv) => {
        const rows = await import('/admin/assets/import-rows.js');
        const texts = ["'=x", "''-y", "=1+1", 'a "b", c', "plain", "'tis"];
        const tags = ["a,b", "c|d", '"e"', "f"];
        const lines = texts.map((title) => csv.csvLine(["https://example.org/", title, csv.joinCell(tags)])).join("");
        const read = rows.readFile("a.csv", `sep=,
${csv.csvLine(["longUrl", "title", "tags"])}${lines}https://example.org/,short,,,
`);
        const [short, ...all] = read.rows.toReversed();
        const empty = (() => { try { rows.readFile("a.csv", '""'); return "nothing"; } catch (error) { return error.message; } })();
        return { titles: all.reverse().map((one) => one.fields.title).join("/") === texts.join("/"), tags: all.every((one) => one.fields.tags.join("/") === tags.join("/")),
            line: all[0].line, short: short.fields.title, empty };
    })"#;
    let expected = json!({"titles": true, "tags": true, "line": 3, "short": "short", "empty": "It is empty."});
    assert_eq!(browser.value(script), expected);
    browser.close();
    node.terminate();
}

/// The same code at two domains is two links, each with its own visits.
#[test]
fn a_link_of_another_domain_has_a_page_with_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path())
        .env("CAROM_BASE_URL", "http://carom.test")
        .env("CAROM_DOMAINS_SERVE", "http://go.test")
        .start();
    let mut wire = node.wire();
    wire.shorten_as("same", TARGET);
    let there = json!({"longUrl": "https://example.org/there", "customSlug": "same", "domain": "go.test", "tags": ["a,b", "c"]});
    assert_eq!(wire.create(&there).status, 200);
    wire.send(&request_at("go.test", "GET", "/same", "Referer: https://news.example/\r\n", b""));
    assert_eq!(wire.reply().status, 302);
    let browser = Browser::open();
    browser.resize(SCREEN);
    wait_until("the visit", || {
        browser.go(&at(&node, "links/same?domain=go.test"));
        says(&browser, "main", "https://example.org/there");
        browser.text("main").contains("news.example")
    });
    assert!(!browser.text("main").contains("cannot be told"), "{}", browser.text("main"));
    // A tag with a comma is one tag.
    browser.value("[...document.querySelectorAll('a.badge')].find((tag) => tag.textContent === 'a,b').click()");
    says(&browser, "tbody", "https://example.org/there");
    wait_until("one link", || browser.value("document.querySelectorAll('tbody tr').length") == json!(1));
    browser.value("document.querySelector('tbody .short-url a').click()");
    press(&browser, "button", "Edit");
    assert_eq!(browser.value("document.querySelector('dialog input[name=tags]').value"), json!("\"a,b\", c"));
    // Going back is for the dialog, and asks where something was typed.
    browser.fill("dialog input[name=title]", "Typed");
    let title = "document.querySelector('dialog input[name=title]')?.value ?? null";
    let address = browser.url();
    browser.value("history.back()");
    says(&browser, "dialog:last-of-type", "Throw away what you have written?");
    press(&browser, "dialog:last-of-type button", "Cancel");
    assert_eq!((browser.value(title), browser.url()), (json!("Typed"), address.clone()));
    browser.value("history.back()");
    press(&browser, "dialog button", "Throw away");
    wait_until("no dialog", || browser.value("document.querySelector('dialog') === null") == true);
    assert_eq!(browser.url(), address);
    browser.close();
    node.terminate();
}

/// Where the focus is: the text of the control, or what it is called.
const FOCUS: &str = "document.activeElement === document.body ? 'nowhere' : (document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim())";

/// Whoever works by keyboard goes on from where they were.
#[test]
fn the_focus_stays_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    for code in ["first", "second", "third"] {
        node.wire().shorten_as(code, TARGET);
    }
    let browser = Browser::open();
    browser.go(&at(&node, "links/first"));
    says(&browser, "main", "leads to");
    // A button that was used is there again, under another name.
    browser.value(
        "[...document.querySelectorAll('.page-actions button')].find((b) => b.textContent === 'Archive').focus()",
    );
    browser.press(ENTER);
    says(&browser, ".link-head", "Archived");
    assert_eq!(browser.value(FOCUS), "Bring back");
    browser.press(ENTER);
    says(&browser, ".link-head", "Active");
    browser.value(
        "[...document.querySelectorAll('.page-actions button')].find((b) => b.textContent === 'Delete').focus()",
    );
    browser.press(ENTER);
    says(&browser, ".link-head", "Being deleted");
    assert_eq!(browser.value(FOCUS), "Delete");
    // In the list, the row of the link, or the one that takes its place.
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "third");
    says(&browser, "tbody", "Being deleted");
    let menu = "document.querySelector('button[aria-label=\"Actions for second\"]')";
    browser.value(&format!("{menu}.focus()"));
    browser.press(ENTER);
    wait_until("a menu", || browser.value("document.querySelector('.menu:popover-open') !== null") == true);
    assert_eq!(browser.value(&format!("{menu}.getAttribute('aria-expanded')")), "true");
    // A menu is closed by what it was opened with.
    browser.click("button[aria-label=\"Actions for second\"]");
    wait_until("no menu", || browser.value("document.querySelector('.menu') === null") == true);
    assert_eq!(browser.value(&format!("{menu}.getAttribute('aria-expanded')")), "false");
    browser.click("button[aria-label=\"Actions for second\"]");
    wait_until("a menu", || browser.value("document.querySelector('.menu:popover-open') !== null") == true);
    press(&browser, ".menu button", "Archive");
    wait_until("an archived link", || node.wire().get("/second").status == 410);
    wait_until("its menu", || browser.value(FOCUS) == "Actions for second");
    browser.close();
    node.terminate();
}

/// The address, the fields and the rows say the same, whatever was typed, left, or gone back to.
#[test]
fn the_list_shows_what_its_address_says() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    for number in 0..60 {
        node.wire().shorten_as(&format!("item-{number:02}"), &format!("{TARGET}&n={number}"));
    }
    let browser = Browser::open();
    browser.go(&at(&node, "links?state=gone&from=yesterday&tagsMode=none"));
    says(&browser, "tbody", "item-59");
    let search = "document.querySelector('input[type=search]')";
    browser.value(&format!("{search}.focus()"));
    browser.press("item-1");
    wait_until("ten links", || browser.value("document.querySelectorAll('tbody tr').length") == json!(10));
    // What was typed just before something else is chosen goes along.
    browser.press("7");
    browser.value("(() => { const one = document.querySelector('.filters select'); one.value = 'active'; one.dispatchEvent(new Event('change')); })()");
    wait_until("one link", || browser.value("document.querySelectorAll('tbody tr').length") == json!(1));
    assert!(browser.url().contains("q=item-17") && browser.url().contains("state=active"), "{}", browser.url());
    browser.value("history.back()");
    wait_until("what was typed before", || browser.value(&format!("{search}.value")) == "item-1");
    wait_until("ten links", || browser.value("document.querySelectorAll('tbody tr').length") == json!(10));
    // What is still being typed when the page is left writes into no other address.
    browser.press("4");
    browser.value("document.querySelector('#nav a[href=\"/admin/usage\"]').click()");
    says(&browser, "h1", "Usage");
    browser.value("new Promise((done) => setTimeout(done, 400))");
    assert!(browser.url().ends_with("/admin/usage"), "{}", browser.url());
    browser.value("history.back()");
    says(&browser, "tbody", "item-1");
    // Dates the wrong way round are told, and turned.
    browser.go(&at(&node, "links?from=2099-01-01&to=2020-01-01"));
    press(&browser, "button", "Swap them");
    says(&browser, "tbody", "item-59");
    // One dialog, however often it is asked for, and a selection that a cancelled question leaves alone.
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "item-59");
    browser.value("document.activeElement.blur()");
    browser.press("ccc");
    wait_until("a dialog", || browser.value("document.querySelectorAll('dialog[open]').length") == json!(1));
    press(&browser, "dialog button", "Cancel");
    wait_until("no dialog", || browser.value("document.querySelectorAll('dialog').length") == json!(0));
    browser.value("document.querySelector('thead input').click()");
    press(&browser, "button", "Delete");
    press(&browser, "dialog button", "Cancel");
    says(&browser, ".list-line", "50 selected");
    press(&browser, "button", "Clear selection");
    // The next page begins at its top.
    browser.value("scrollTo(0, document.body.scrollHeight)");
    press(&browser, "button", "Next");
    says(&browser, "tbody", "item-09");
    says(&browser, ".pager", "Page 2");
    let top = browser.value("document.querySelector('tbody tr').getBoundingClientRect().top").as_f64().unwrap();
    assert!((0.0..600.0).contains(&top), "the first row is at {top}");
    browser.close();
    node.terminate();
}

/// What somebody else did to links since they were listed is not undone by an undo.
#[test]
fn tags_of_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    for code in ["first", "second"] {
        node.wire().shorten_as(code, TARGET);
    }
    let browser = Browser::open();
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "second");
    let tags = |code: &str| node.wire().get(&format!("/rest/v3/short-urls/{code}")).json()["tags"].clone();
    let patched = node.wire().ask(
        "PATCH",
        "/rest/v3/short-urls/first",
        "Content-Type: application/json\r\n",
        br#"{"tags":["theirs"]}"#,
    );
    assert_eq!(patched.json()["tags"], json!(["theirs"]));
    browser.value("document.querySelector('thead input').click()");
    press(&browser, "button", "Add tags");
    browser.press("theirs, ours");
    press(&browser, "dialog button", "Add");
    wait_until("tags", || tags("first") == json!(["ours", "theirs"]) && tags("second") == json!(["ours", "theirs"]));
    press(&browser, ".toast button", "Undo");
    wait_until("tags that are gone", || tags("first") == json!(["theirs"]) && tags("second") == json!([]));
    browser.close();
    node.terminate();
}
