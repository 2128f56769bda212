//! Links in the console: edits, deletes and restores of one and of many, the list, and the keyboard focus.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::browser::{Browser, ENTER, SCREEN};
use crate::support::console::{
    OpenConsole, TARGET, at, enter_key, lacks, open_node, press, press_in_menu, says, shows, sign_in_elsewhere,
};
use crate::support::http::{SHORT_URLS, Wire, request_at};
use crate::support::node::{Setup, wait_until};

#[test]
fn links_are_archived_deleted_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let node = open_node(dir.path());
    node.wire().shorten_as("first", TARGET);
    node.wire().shorten_as("second", TARGET);
    let status = |code: &str| node.wire().get(&format!("/{code}")).status;
    let browser = Browser::open();
    browser.go(&at(&node, "links/first"));
    press_in_menu(&browser, "archive");
    wait_until("an archived link", || status("first") == 410);
    press(&browser, ".toast", "undo");
    wait_until("a link that is back", || status("first") == 302);
    shows(&browser, ".link-head [data-state=active]");
    // A delete leads nowhere at once, and can be taken back.
    press_in_menu(&browser, "delete");
    wait_until("a deleted link", || status("first") == 410);
    press(&browser, ".toast", "undo-delete");
    wait_until("a link that is back", || status("first") == 302);
    assert_eq!(node.wire().get(&format!("{SHORT_URLS}/first")).json()["deletesAt"], json!(null));
    // Many at once. The node finishes what the closed page began, but for what somebody restores in another browser.
    node.wire().shorten_as("third", TARGET);
    // A busy machine takes seconds to start it.
    let other = Browser::open();
    other.go(&at(&node, "links/third"));
    browser.go(&at(&node, "links"));
    says(&browser, "tbody", "third");
    browser.value("document.querySelector('thead input').click()");
    press(&browser, "main", "delete");
    press(&browser, "dialog", "confirm");
    let waits = |code: &str| node.wire().get(&format!("{SHORT_URLS}/{code}")).json()["deletesAt"].is_string();
    wait_until("three links that wait", || ["first", "second", "third"].iter().all(|code| waits(code)));
    // A busy machine may take longer than 20 seconds for the pages of the other browser.
    let delete_in = |code: &str, seconds: u32| {
        let path = format!("{SHORT_URLS}/{code}?after={seconds}");
        assert_eq!(node.wire().ask("DELETE", &path, "", b"").status, 200);
    };
    delete_in("second", 600);
    delete_in("third", 600);
    browser.close();
    other.go(&at(&node, "links/third"));
    shows(&other, ".link-head [data-state=deleting]");
    press(&other, "main", "restore");
    wait_until("a link that is back", || status("third") == 302);
    delete_in("second", 25);
    let deleted = Instant::now();
    other.go(&at(&node, "links"));
    shows(&other, "tbody [data-state=deleting]");
    wait_until("links that are gone", || status("first") == 404 && status("second") == 404);
    // Twice the time for which they wait.
    assert!(deleted.elapsed() < Duration::from_secs(50), "{:?}", deleted.elapsed());
    // The list notices by itself.
    lacks(&other, "tbody [data-state=deleting]");
    assert!(other.text("tbody").contains("third"));
    assert_eq!(status("third"), 302);
    assert!(!waits("third"));
    other.close();
    node.terminate();
}

/// The offer to undo a delete counts down, also under a pointer, and ends with the link.
#[test]
fn undo_of_a_delete_counts_down() {
    let console = OpenConsole::open().expecting(&["status of 404"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("gone", TARGET);
    browser.go(&at(node, "links/gone"));
    press_in_menu(browser, "delete");
    says(browser, ".toast", "“gone” deleted. It no longer redirects.");
    browser.value("document.querySelector('.toast').dispatchEvent(new Event('pointerenter'))");
    let seconds = "Number(/\\d+/.exec(document.querySelector('.toast [data-action=undo-delete]').textContent)[0])";
    wait_until("fewer seconds", || browser.value(&format!("{seconds} < 18")) == true);
    says(browser, ".toast", "“gone” deleted for good.");
    lacks(browser, ".toast [data-action=undo-delete]");
    wait_until("a link that is gone", || node.wire().get("/gone").status == 404);
    console.close();
}

/// An undo says that it was done, and a link that is restored by its own button is no longer announced as deleted.
#[test]
fn restored_links_are_confirmed() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("kept", TARGET);
    browser.go(&at(node, "links/kept"));
    press_in_menu(browser, "delete");
    press(browser, ".toast", "undo-delete");
    says(browser, "#toasts", "“kept” restored.");
    shows(browser, ".link-head [data-state=active]");
    press_in_menu(browser, "delete");
    shows(browser, ".toast [data-action=undo-delete]");
    press(browser, "main", "restore");
    shows(browser, ".link-head [data-state=active]");
    lacks(browser, ".toast [data-action=undo-delete]");
    press(browser, ".toast", "undo");
    says(browser, "#toasts", "Changes to “kept” were undone.");
    wait_until("an archived link", || node.wire().get("/kept").status == 410);
    console.close();
}

/// A pending delete leaves a link alone that another client has restored or created again meanwhile.
#[test]
fn restored_or_recreated_links_stay() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    for code in ["back", "anew", "gone"] {
        wire.shorten_as(code, TARGET);
    }
    let set = |wire: &mut Wire, code: &str, archived: bool| {
        let body = json!({ "archived": archived }).to_string();
        assert_eq!(wire.ask("PATCH", &format!("{SHORT_URLS}/{code}"), JSON, body.as_bytes()).status, 200);
    };
    let created = |wire: &mut Wire| wire.get(&format!("{SHORT_URLS}/anew")).json()["dateCreated"].clone();
    browser.go(&at(node, "links"));
    says(browser, "tbody", "gone");
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "delete");
    press(browser, "dialog", "confirm");
    wait_until("what waits", || {
        ["back", "anew", "gone"]
            .iter()
            .all(|code| node.wire().get(&format!("{SHORT_URLS}/{code}")).json()["deletesAt"].is_string())
    });
    set(&mut wire, "back", false);
    let before = created(&mut wire);
    wait_until("a link of another second", || {
        assert_eq!(wire.delete("anew").status, 204);
        wire.shorten_as("anew", TARGET);
        created(&mut wire) != before
    });
    set(&mut wire, "anew", true);
    wait_until("a link that is gone", || wire.get("/gone").status == 404);
    let statuses = ["back", "anew", "gone"].map(|code| wire.get(&format!("/{code}")).status);
    assert_eq!(statuses, [302, 410, 404]);
    console.close();
}

/// Another page of the same browser may sign in anew: the session of this one is that of both then.
#[test]
fn sign_in_on_another_tab_continues_here() {
    let (console, key) = OpenConsole::with_key();
    let console = console.expecting(&["status of 403"]);
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    browser.go(&at(node, "links"));
    enter_key(browser, &key);
    press(browser, "main", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    // One field is enough; some of the others unfold.
    browser.value("document.querySelectorAll('dialog details').forEach((group) => { group.open = true; })");
    browser.fill("dialog input[name=title]", "Tags, \"quoted\"");
    sign_in_elsewhere(browser, &key);
    press(browser, "dialog", "submit");
    says(browser, "tbody", "quoted");
    console.close();
}

/// An import reads every text that an export writes.
#[test]
fn separators_in_text_survive_csv() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    let script = r#"import(new URL('csv.js', document.querySelector('script[type=module]').src)).then(async (csv) => {
        const rows = await import(new URL('import-rows.js', document.querySelector('script[type=module]').src));
        const texts = ["'=x", "''-y", "=1+1", 'a "b", c', "plain", "'tis"];
        const tags = ["a,b", "c|d", '"e"', "f"];
        const lines = texts.map((title) => csv.csvLine(["https://example.org/", title, csv.joinCell(tags)])).join("");
        const read = rows.readFile("a.csv", `sep=,
${csv.csvLine(["longUrl", "title", "tags"])}${lines}https://example.org/,short,,,
`);
        const [short, ...all] = read.rows.toReversed();
        const empty = (() => { try { rows.readFile("a.csv", '""'); return "nothing"; } catch (error) { return error.problem; } })();
        return { titles: all.reverse().map((one) => one.fields.title).join("/") === texts.join("/"), tags: all.every((one) => one.fields.tags.join("/") === tags.join("/")),
            line: all[0].line, short: short.fields.title, empty };
    })"#;
    let expected = json!({"titles": true, "tags": true, "line": 3, "short": "short", "empty": "empty"});
    assert_eq!(browser.value(script), expected);
    console.close();
}

#[test]
fn imports_know_each_exported_column() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    let script = "import(new URL('links-export.js', document.querySelector('script[type=module]').src)).then(async ({ COLUMNS }) => {
        const { readFile } = await import(new URL('import-rows.js', document.querySelector('script[type=module]').src));
        const names = [...COLUMNS, 'unknown'];
        const { columns } = readFile('links.csv', `${names.join(',')}\n${names.map(() => 'https://example.org/').join(',')}\n`);
        return columns.filter(({ field }) => field === undefined).map(({ title }) => title);
    })";
    assert_eq!(browser.value(script), json!(["unknown"]));
    console.close();
}

/// A code in two domains is two links, each with its own visits.
#[test]
fn link_of_another_domain_has_a_page() {
    let console = OpenConsole::with(|dir| {
        Setup::new(dir).env("CAROM_BASE_URL", "http://carom.test").env("CAROM_DOMAINS_SERVE", "http://go.test").start()
    });
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("same", TARGET);
    let there = json!({"longUrl": "https://example.org/there", "customSlug": "same", "domain": "go.test", "tags": ["a,b", "c"]});
    assert_eq!(wire.create(&there).status, 200);
    wire.send(&request_at("go.test", "GET", "/same", "Referer: https://news.example/\r\n", b""));
    assert_eq!(wire.reply().status, 302);
    wait_until("the visit", || {
        browser.go(&at(node, "links/same?domain=go.test"));
        says(browser, "main", "https://example.org/there");
        browser.text("main").contains("news.example")
    });
    assert_eq!(browser.value("document.querySelector('.no-visits')"), json!(null), "{}", browser.text("main"));
    // A tag with a comma is one tag.
    browser.value("[...document.querySelectorAll('a.badge')].find((tag) => tag.textContent === 'a,b').click()");
    // The list has room for the path of a destination, because it leaves out the scheme.
    says(browser, "tbody", "example.org/there");
    let target = "(({ innerText, title, href }) => [innerText, title, href])(document.querySelector('tbody .target'))";
    let urls = ["example.org/there", "https://example.org/there", "https://example.org/there"];
    assert_eq!(browser.value(target), json!(urls));
    wait_until("one link", || browser.value("document.querySelectorAll('tbody tr').length") == json!(1));
    browser.value("document.querySelector('tbody .short-url a').click()");
    press(browser, "main", "edit");
    let chips = "[...document.querySelectorAll('dialog .tag-chip')].map((one) => one.textContent)";
    assert_eq!(browser.value(chips), json!(["a,b", "c"]));
    // Going back is for the dialog, and asks where something was typed.
    browser.fill("dialog input[name=title]", "Typed");
    let title = "document.querySelector('dialog input[name=title]')?.value ?? null";
    let address = browser.url();
    browser.value("history.back()");
    says(browser, "dialog:last-of-type [data-action=confirm]", "Discard changes");
    says(browser, "dialog:last-of-type [data-action=cancel]", "Keep editing");
    press(browser, "dialog:last-of-type", "cancel");
    assert_eq!(browser.value(title), json!("Typed"));
    assert_eq!(browser.url(), address);
    browser.value("history.back()");
    press(browser, "dialog", "confirm");
    lacks(browser, "dialog");
    assert_eq!(browser.url(), address);
    console.close();
}

/// A destination needs no scheme, and what is wrong with it is a sentence until the next letter.
#[test]
fn destinations_without_a_scheme_get_one() {
    let console = OpenConsole::open().expecting(&["status of 400"]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    press(browser, "main", "new-link");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error:not([hidden])", "Enter a destination.");
    browser.fill("dialog input[name=longUrl]", "nothing");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error", "Enter a complete URL that begins with https:// or http://.");
    browser.fill("dialog input[name=longUrl]", ".example:8080/page");
    lacks(browser, "dialog .error:not([hidden])");
    // A new link has no changes: it is the link that is discarded.
    press(browser, "dialog", "close");
    says(browser, "dialog:last-of-type", "This link has not been created.");
    says(browser, "dialog:last-of-type [data-action=confirm]", "Discard link");
    press(browser, "dialog:last-of-type", "cancel");
    press(browser, "dialog", "submit");
    says(browser, "dialog .created + p", "https://nothing.example:8080/page");
    console.close();
}

/// The action of the control that has the focus, and the code of its link.
const FOCUS: &str =
    "[document.activeElement.dataset.action, document.activeElement.dataset.code].filter(Boolean).join(' ')";

/// Keyboard users continue where they were.
#[test]
fn focus_stays_after_an_action() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for code in ["first", "second", "third"] {
        node.wire().shorten_as(code, TARGET);
    }
    browser.go(&at(node, "links/first"));
    shows(browser, ".destination");
    // The menu of the page, also once a button stands before it; where a button is gone, the next one.
    press_in_menu(browser, "archive");
    shows(browser, ".link-head [data-state=archived]");
    assert_eq!(browser.value(FOCUS), "link-menu");
    browser.value("document.querySelector('.page-actions [data-action=restore]').focus()");
    browser.press(ENTER);
    shows(browser, ".link-head [data-state=active]");
    assert_eq!(browser.value(FOCUS), "edit");
    press_in_menu(browser, "delete");
    shows(browser, ".link-head [data-state=deleting]");
    assert_eq!(browser.value(FOCUS), "link-menu");
    // In the list, the row of the link, or the one that takes its place.
    browser.go(&at(node, "links"));
    says(browser, "tbody", "third");
    shows(browser, "tbody [data-state=deleting]");
    let menu = "document.querySelector('[data-action=menu][data-code=second]')";
    browser.value(&format!("{menu}.focus()"));
    browser.press(ENTER);
    wait_until("a menu", || browser.value("document.querySelector('.menu:popover-open') !== null") == true);
    assert_eq!(browser.value(&format!("{menu}.getAttribute('aria-expanded')")), "true");
    // A menu is closed by what it was opened with.
    browser.click("[data-action=menu][data-code=second]");
    lacks(browser, ".menu");
    assert_eq!(browser.value(&format!("{menu}.getAttribute('aria-expanded')")), "false");
    browser.click("[data-action=menu][data-code=second]");
    wait_until("a menu", || browser.value("document.querySelector('.menu:popover-open') !== null") == true);
    press(browser, ".menu", "archive");
    wait_until("an archived link", || node.wire().get("/second").status == 410);
    wait_until("its menu", || browser.value(FOCUS) == "menu second");
    console.close();
}

/// The page of a deleted link says so, and its history shows what it was, without striking that out.
#[test]
fn page_of_a_deleted_link_says_so() {
    let console = OpenConsole::open().expecting(&["status of 404"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("gone", TARGET);
    assert_eq!(node.wire().delete("gone").status, 204);
    browser.go(&at(node, "links/gone"));
    says(browser, ".state", "“gone” was deleted");
    says(browser, ".history", TARGET);
    assert_eq!(browser.value("document.querySelector('.history del')"), json!(null));
    browser.is_accessible();
    // Until the delete, the link is archived; that is a step of the delete.
    node.wire().shorten_as("later", TARGET);
    assert_eq!(node.wire().ask("DELETE", &format!("{SHORT_URLS}/later?after=1"), "", b"").status, 200);
    wait_until("a deleted link", || node.wire().get("/later").status == 404);
    browser.go(&at(node, "links/later"));
    says(browser, ".history", TARGET);
    assert_eq!(browser.value("document.querySelectorAll('.history > li').length"), json!(1));
    console.close();
}

/// A link that was deleted by mistake is created again with what its history knows.
#[test]
fn deleted_links_are_created_again() {
    let console = OpenConsole::open().expecting(&["status of 404"]);
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "back", "title": "Again", "tags": ["sale"], "maxVisits": 9, "redirectStatus": 307});
    assert_eq!(node.wire().create(&fields).status, 200);
    let forever = json!({ "validUntil": null }).to_string();
    assert_eq!(node.wire().ask("PATCH", &format!("{SHORT_URLS}/back"), JSON, forever.as_bytes()).status, 200);
    assert_eq!(node.wire().delete("back").status, 204);
    browser.go(&at(node, "links/back"));
    press(browser, ".state", "create-again");
    shows(browser, "dialog input[name=customSlug]");
    browser.is_accessible();
    press(browser, "dialog", "submit");
    says(browser, "dialog .created-times", "Never expires.");
    press(browser, "dialog", "done");
    says(browser, "main h1", "Again");
    let link = node.wire().get(&format!("{SHORT_URLS}/back")).json();
    assert_eq!(json!([link["longUrl"], link["tags"], link["redirectStatus"]]), json!([TARGET, ["sale"], 307]));
    assert_eq!(json!([link["meta"]["maxVisits"], link["meta"]["validUntil"]]), json!([9, null]));
    console.close();
}

#[test]
fn page_says_why_a_link_does_not_redirect() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let create = |slug: &str, name: &str, value: Value| {
        let mut fields = json!({"longUrl": TARGET, "customSlug": slug});
        fields[name] = value;
        assert_eq!(node.wire().create(&fields).status, 200);
    };
    create("active", "title", json!("T"));
    create("limited", "maxVisits", json!(1));
    create("later", "validSince", json!("2099-01-02T00:00:00Z"));
    node.wire().shorten_as("archived", TARGET);
    let archived = node.wire().ask("PATCH", &format!("{SHORT_URLS}/archived"), JSON, br#"{"archived": true}"#);
    assert_eq!(archived.status, 200);
    assert_eq!(node.wire().get("/limited").status, 302);
    wait_until("a link without visits left", || node.wire().get("/limited").status == 410);
    for (slug, said) in [
        ("limited", "reached its limit of 1 visit, so visitors get 410"),
        ("later", "Until then, visitors get 404."),
        ("archived", "is archived, so visitors get 410"),
    ] {
        browser.go(&at(node, &format!("links/{slug}")));
        says(browser, "[data-obstacle]", said);
        browser.is_accessible();
    }
    press(browser, "main", "restore");
    shows(browser, ".link-head [data-state=active]");
    lacks(browser, "[data-obstacle]");
    console.close();
}

#[test]
fn menu_of_a_row_has_its_uses() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.allow_clipboard();
    node.wire().shorten_as("used", TARGET);
    browser.go(&at(node, "links"));
    let open_menu = || {
        browser.click("[data-action=menu][data-code=used]");
        shows(browser, ".menu:popover-open");
    };
    open_menu();
    let names = "[...document.querySelectorAll('.menu button')].slice(0, 4).map((one) => one.textContent)";
    assert_eq!(browser.value(names), json!(["Details", "Visit", "QR code", "Copy short URL"]));
    browser.click(".menu [data-action=copy-url]");
    says(browser, "#toasts", "Copied.");
    open_menu();
    press(browser, ".menu", "qr");
    shows(browser, "dialog .qr img");
    press(browser, "dialog", "close");
    lacks(browser, "dialog");
    open_menu();
    press(browser, ".menu", "details");
    shows(browser, ".link-head [data-action=open]");
    says(browser, ".link-head [data-action=open]", "Visit");
    console.close();
}

/// The address, the fields and the rows say the same, whatever was typed, left, or gone back to.
#[test]
fn list_follows_its_address() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for number in 0..60 {
        node.wire().shorten_as(&format!("item-{number:02}"), &format!("{TARGET}&n={number}"));
    }
    browser.go(&at(node, "links?state=gone&from=yesterday&tagsMode=none"));
    says(browser, "tbody", "item-59");
    let search = "document.querySelector('input[type=search]')";
    browser.value(&format!("{search}.focus()"));
    browser.press("item-1");
    wait_until("ten links", || browser.value("document.querySelectorAll('tbody tr').length") == json!(10));
    // What was typed just before something else is chosen goes along: at once, since the search starts by itself soon.
    let typed_and_chosen = "(() => {
        const [search, state] = ['input[type=search]', '.filters select'].map((one) => document.querySelector(one));
        search.value += '7';
        search.dispatchEvent(new Event('input', { bubbles: true }));
        state.value = 'active';
        state.dispatchEvent(new Event('change', { bubbles: true }));
    })()";
    browser.value(typed_and_chosen);
    wait_until("one link", || browser.value("document.querySelectorAll('tbody tr').length") == json!(1));
    assert!(browser.url().contains("q=item-17"), "{}", browser.url());
    assert!(browser.url().contains("state=active"), "{}", browser.url());
    browser.value("history.back()");
    wait_until("what was typed before", || browser.value(&format!("{search}.value")) == "item-1");
    wait_until("ten links", || browser.value("document.querySelectorAll('tbody tr').length") == json!(10));
    // What is still being typed when the page is left writes into no other address.
    browser.press("4");
    browser.value("document.querySelector('#nav a[href=\"/admin/usage\"]').click()");
    shows(browser, ".period");
    browser.value("new Promise((done) => setTimeout(done, 400))");
    assert!(browser.url().ends_with("/admin/usage"), "{}", browser.url());
    browser.value("history.back()");
    says(browser, "tbody", "item-1");
    // Dates the wrong way round are told, and turned.
    browser.go(&at(node, "links?from=2099-01-01&to=2020-01-01"));
    press(browser, "main", "swap-dates");
    says(browser, "tbody", "item-59");
    // One dialog, however often it is asked for, and a selection that a cancelled question leaves alone.
    browser.go(&at(node, "links"));
    says(browser, "tbody", "item-59");
    browser.value("document.activeElement.blur()");
    browser.press("ccc");
    wait_until("a dialog", || browser.value("document.querySelectorAll('dialog[open]').length") == json!(1));
    press(browser, "dialog", "cancel");
    wait_until("no dialog", || browser.value("document.querySelectorAll('dialog').length") == json!(0));
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "delete");
    press(browser, "dialog", "cancel");
    shows(browser, "[data-selected='50']");
    press(browser, "main", "clear-selection");
    // The next page begins at its top.
    browser.value("scrollTo(0, document.body.scrollHeight)");
    press(browser, "main", "next");
    says(browser, "tbody", "item-09");
    shows(browser, ".pager[data-page='2']");
    let top = browser.value("document.querySelector('tbody tr').getBoundingClientRect().top").as_f64().unwrap();
    assert!((0.0..600.0).contains(&top), "the first row is at {top}");
    console.close();
}

/// An undo keeps the tags that another client has set since the links were listed.
#[test]
fn concurrent_tags_are_kept() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for code in ["first", "second"] {
        node.wire().shorten_as(code, TARGET);
    }
    browser.go(&at(node, "links"));
    says(browser, "tbody", "second");
    let tags = |code: &str| node.wire().get(&format!("/rest/v3/short-urls/{code}")).json()["tags"].clone();
    let patched = node.wire().ask(
        "PATCH",
        "/rest/v3/short-urls/first",
        "Content-Type: application/json\r\n",
        br#"{"tags":["theirs"]}"#,
    );
    assert_eq!(patched.json()["tags"], json!(["theirs"]));
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "add-tags");
    browser.press("theirs, ours");
    press(browser, "dialog", "submit");
    wait_until("tags", || tags("first") == json!(["ours", "theirs"]) && tags("second") == json!(["ours", "theirs"]));
    press(browser, ".toast", "undo");
    wait_until("tags that are gone", || tags("first") == json!(["theirs"]) && tags("second") == json!([]));
    console.close();
}

#[test]
fn lists_load_few_files_and_sparklines_at_once() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    for number in 0..20 {
        wire.shorten_as(&format!("link-{number}"), TARGET);
        assert_eq!(wire.get(&format!("/link-{number}")).status, 302);
    }
    wait_until("a visit of each link", || {
        let list = wire.get(&format!("{SHORT_URLS}?itemsPerPage=50")).json();
        let links = list["shortUrls"]["data"].as_array().unwrap().clone();
        links.len() == 20 && links.iter().all(|link| link["visitsSummary"]["total"] == json!(1))
    });
    browser.go(&at(node, "links"));
    wait_until("all sparklines", || browser.value("document.querySelectorAll('tbody .trend svg').length") == 20);
    let asked = browser.value("performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)");
    let paths: Vec<&str> = asked.as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    let sparklines = paths.iter().filter(|path| path.ends_with("/visits/per-day")).count();
    // A list that is drawn again meanwhile asks once more.
    assert!((1..=2).contains(&sparklines), "{paths:?}");
    assert!(!paths.iter().any(|path| path.ends_with("/visits")), "{paths:?}");
    let mut scripts = paths.iter().filter(|path| path.ends_with(".js"));
    assert!(scripts.all(|path| path.ends_with(".bundle.js") || path.ends_with("/uplot.js")), "{paths:?}");
    console.close();
}
