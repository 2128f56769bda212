//! Destination rules in the console: a draft of them as rows and as text, by mouse and by keyboard, errors beside their
//! fields, the check of a URL against the draft, saves with their undo, conflicts of two admins, and the way of sources
//! into the settings file.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::browser::{Browser, ENTER, PHONE};
use crate::support::console::{OpenConsole, at, lacks, press, says, shows};
use crate::support::destination_rules::{rules, save_block, shortens};
use crate::support::node::{Node, Setup, wait_until};

const ALLOW: &str = ".cards > .card:first-child";
const BLOCK: &str = ".cards > .card:last-child";
const SUMMARY: &str = ".toolbar [role=status]";

/// Script: the key of the control that has the focus, or else its name.
const FOCUS: &str = "document.activeElement.dataset.key ?? document.activeElement.name";

/// A node whose settings file blocks two hosts.
fn blocking_node(dir: &Path) -> Node {
    let file = dir.join("rules.toml");
    std::fs::write(&file, "# Known phishing\n[block]\nhosts = ['evil.example', '*.phishing.example']\n").unwrap();
    Setup::new(&dir.join("data")).env("CAROM_CONFIG", file.to_str().unwrap()).start()
}

/// Opens the page.
fn open(OpenConsole { browser, node, .. }: &OpenConsole) {
    browser.go(&at(node, "lists"));
    shows(browser, ALLOW);
}

/// Opens the page of a node that blocks two hosts. Expects complaints of the browser with one of these texts in them.
fn open_blocking(complaints: &[&str]) -> OpenConsole {
    let console = OpenConsole::with(blocking_node).expecting(complaints);
    open(&console);
    console
}

/// Adds a host to a list of the draft. `coverage` is "both", "host" or "subdomains".
fn add(browser: &Browser, list: &str, host: &str, coverage: &str) {
    press(browser, list, "add-host");
    says(browser, "dialog [data-action=submit]", "Add host");
    browser.fill("dialog [name=host]", host);
    browser.click(&format!("dialog [value={coverage}]"));
    press(browser, "dialog", "submit");
}

/// Saves the draft.
fn save(browser: &Browser) {
    press(browser, "#draft", "save");
    says(browser, ".toast", "Saved. The rules are in effect.");
}

/// Puts a text into the field of the rules as text, as if it were typed.
fn write(browser: &Browser, text: &str) {
    let put = "area.value = text; area.dispatchEvent(new Event('input', { bubbles: true })); return area.value;";
    let script = format!("((area, text) => {{ {put} }})(document.querySelector('[name=toml]'), {})", json!(text));
    assert_eq!(browser.value(&script), text);
}

/// The text of the rules, in the field that shows it.
fn written(browser: &Browser) -> String {
    browser.value("document.querySelector('[name=toml]').value").as_str().expect("a text").to_owned()
}

#[test]
fn a_draft_is_made_of_rows_and_changes_nothing() {
    let console = open_blocking(&[]);
    let OpenConsole { node, browser, .. } = &console;
    let before = rules(node);
    says(browser, SUMMARY, "These rules are in effect.");
    says(browser, ".toolbar .segments", "Lists");
    says(browser, BLOCK, "Only evil.example, not its subdomains");
    says(browser, BLOCK, "All subdomains of phishing.example, but not phishing.example itself");
    says(browser, ALLOW, "Every host is allowed");
    lacks(browser, "#draft:not([hidden])");
    // Of a URL, its host counts.
    add(browser, ALLOW, "https://Shop.example/sale", "both");
    says(browser, ALLOW, "*.shop.example");
    press(browser, BLOCK, "remove-host");
    says(browser, BLOCK, "Removed");
    says(browser, SUMMARY, "Draft with 3 changes, not in effect yet.");
    browser.fill("[name=longUrl]", "https://other.example/");
    says(browser, ".verdict", "Refused");
    says(browser, ".verdict", "not on the allow list");
    says(browser, "#draft", "Allow list: + *.shop.example");
    says(browser, "#draft", "Block list: − evil.example");
    assert_eq!(rules(node), before);
    node.wire().shorten("https://other.example/");
    // The page continues the draft when it is opened again, and an undo restores it.
    browser.click("#nav a[href='/admin/fleet']");
    says(browser, "main", "Single node");
    browser.click("#nav a[href='/admin/lists']");
    says(browser, SUMMARY, "Draft with 3 changes");
    press(browser, "#draft", "discard");
    says(browser, SUMMARY, "These rules are in effect.");
    press(browser, ".toast", "undo");
    says(browser, SUMMARY, "Draft with 3 changes");
    console.close();
}

#[test]
fn saved_rules_apply_at_once_and_can_be_undone() {
    let console = open_blocking(&[]);
    let OpenConsole { node, browser, .. } = &console;
    lacks(browser, "[data-action=use-settings]:not([hidden])");
    add(browser, BLOCK, "bad.example", "host");
    press(browser, BLOCK, "remove-host");
    says(browser, SUMMARY, "Draft with 2 changes");
    save(browser);
    says(browser, SUMMARY, "These rules are in effect. Saved ");
    lacks(browser, "#draft:not([hidden])");
    assert_eq!([shortens(node, "bad.example"), shortens(node, "evil.example")], [400, 200]);
    browser.is_accessible();
    press(browser, ".toast", "undo");
    says(browser, ".toast", "The earlier rules are in effect again.");
    // The draft is back as well, and can be saved again.
    says(browser, SUMMARY, "Draft with 2 changes");
    assert_eq!([shortens(node, "bad.example"), shortens(node, "evil.example")], [200, 400]);
    press(browser, "#draft", "save");
    says(browser, SUMMARY, "Saved ");
    assert_eq!(shortens(node, "bad.example"), 400);
    press(browser, ".toolbar", "use-settings");
    says(browser, ".toast:last-child", "The hosts of the settings apply again.");
    says(browser, BLOCK, "evil.example");
    assert_eq!([shortens(node, "bad.example"), shortens(node, "evil.example")], [200, 400]);
    assert_eq!(rules(node)["saved"], Value::Null);
    console.close();
}

#[test]
fn a_conflict_keeps_the_changes_of_both_admins() {
    let console = open_blocking(&["status of 409"]);
    let OpenConsole { node, browser, .. } = &console;
    add(browser, BLOCK, "mine.example", "host");
    says(browser, SUMMARY, "Draft with 1 change,");
    save_block(node, &["theirs.example"]);
    press(browser, "#draft", "save");
    says(browser, "#draft [role=alert]", "saved other rules");
    says(browser, "#draft [role=alert]", "Block list: + theirs.example");
    says(browser, "#draft [role=alert]", "Block list: − evil.example");
    // The draft has its own change alone, on top of theirs.
    says(browser, SUMMARY, "Draft with 1 change,");
    assert_eq!(rules(node)["block"]["hosts"], json!(["theirs.example"]));
    browser.fits_everywhere(|_| {});
    press(browser, "#draft", "save");
    says(browser, SUMMARY, "Saved ");
    assert_eq!(rules(node)["block"]["hosts"], json!(["theirs.example", "mine.example"]));
    console.close();
}

#[test]
fn saves_of_others_appear_on_an_open_page() {
    let console = open_blocking(&[]);
    let OpenConsole { node, browser, .. } = &console;
    says(browser, BLOCK, "evil.example");
    save_block(node, &["theirs.example"]);
    says(browser, BLOCK, "theirs.example");
    says(browser, SUMMARY, "These rules are in effect. Saved ");
    console.close();
}

#[test]
fn undo_of_a_save_keeps_later_changes() {
    let console = open_blocking(&[]);
    let OpenConsole { node, browser, .. } = &console;
    add(browser, BLOCK, "bad.example", "host");
    save(browser);
    add(browser, BLOCK, "later.example", "host");
    says(browser, SUMMARY, "Draft with 1 change,");
    press(browser, ".toast", "undo");
    says(browser, SUMMARY, "Draft with 2 changes");
    says(browser, BLOCK, "later.example");
    assert_eq!(rules(node)["block"]["hosts"], json!(["evil.example", "*.phishing.example"]));
    console.close();
}

#[test]
fn undo_replaces_no_save_of_another_admin() {
    let console = open_blocking(&["status of 409"]);
    let OpenConsole { node, browser, .. } = &console;
    add(browser, BLOCK, "bad.example", "host");
    save(browser);
    add(browser, BLOCK, "later.example", "host");
    says(browser, SUMMARY, "Draft with 1 change,");
    save_block(node, &["theirs.example"]);
    // The page has read the other rules by the time of the undo.
    browser.click("#nav a[href='/admin/fleet']");
    says(browser, "main", "Single node");
    browser.click("#nav a[href='/admin/lists']");
    says(browser, BLOCK, "theirs.example");
    press(browser, ".toast", "undo");
    says(browser, ".toast", "The earlier rules were not restored. Someone has changed the rules in the meantime.");
    says(browser, SUMMARY, "Draft with 1 change,");
    assert_eq!(rules(node)["block"]["hosts"], json!(["theirs.example"]));
    console.close();
}

#[test]
fn a_save_of_rules_in_effect_is_no_conflict() {
    let console = open_blocking(&["status of 409"]);
    let OpenConsole { node, browser, .. } = &console;
    press(browser, BLOCK, "remove-host");
    says(browser, SUMMARY, "Draft with 1 change,");
    press(browser, BLOCK, "remove-host");
    says(browser, SUMMARY, "Draft with 2 changes");
    add(browser, BLOCK, "mine.example", "host");
    says(browser, SUMMARY, "Draft with 3 changes");
    // As if the answer to an earlier save was lost.
    save_block(node, &["mine.example"]);
    press(browser, "#draft", "save");
    says(browser, ".toast", "Your rules are in effect already.");
    says(browser, SUMMARY, "These rules are in effect. Saved ");
    lacks(browser, "#draft:not([hidden])");
    console.close();
}

#[test]
fn drafts_fit_a_phone_and_every_scheme() {
    let console = open_blocking(&[]);
    let OpenConsole { browser, .. } = &console;
    add(browser, ALLOW, "a-very-long-name-of-a-department.shop-with-a-long-name.example", "both");
    says(browser, ALLOW, "*.a-very-long");
    press(browser, BLOCK, "remove-host");
    says(browser, BLOCK, "Removed");
    let fits = || {
        browser.fits_everywhere(|size| {
            browser.scrolls_nowhere_sideways();
            if size == PHONE {
                browser.fits_fingers();
            }
        });
    };
    fits();
    press(browser, ALLOW, "edit-host");
    shows(browser, "dialog [name=host]");
    fits();
    press(browser, "dialog", "close");
    lacks(browser, "dialog");
    browser.click("[data-view=text]");
    shows(browser, "[name=toml]");
    fits();
    console.close();
}

#[test]
fn rows_are_changed_by_keyboard() {
    let console = open_blocking(&[]);
    let OpenConsole { browser, .. } = &console;
    browser.value(&format!("document.querySelector('{BLOCK} [data-action=remove-host]').focus()"));
    browser.press(ENTER);
    shows(browser, &format!("{BLOCK} [data-action=restore-host]"));
    // The button that takes the change back has the focus.
    assert_eq!(browser.value(FOCUS), "toggle evil.example");
    browser.press(ENTER);
    lacks(browser, &format!("{BLOCK} [data-action=restore-host]"));
    assert_eq!(browser.value(FOCUS), "toggle evil.example");
    says(browser, SUMMARY, "These rules are in effect.");
    browser.value(&format!("document.querySelector('{BLOCK} [data-action=add-host]').focus()"));
    browser.press(ENTER);
    wait_until("the field", || browser.value(FOCUS) == "host");
    browser.press("10.0.0.1");
    browser.press(ENTER);
    // An address has no subdomains.
    says(browser, BLOCK, "Only this address");
    wait_until("the new row", || browser.value(FOCUS) == "edit 10.0.0.1");
    says(browser, SUMMARY, "Draft with 1 change,");
    // What was added goes without a trace, and the focus stays in the card.
    browser.value(&format!("document.querySelector('{BLOCK} [data-key=\"toggle 10.0.0.1\"]').focus()"));
    browser.press(ENTER);
    lacks(browser, &format!("{BLOCK} [data-key=\"toggle 10.0.0.1\"]"));
    assert_eq!(browser.value(FOCUS), "add");
    console.close();
}

#[test]
fn errors_of_a_host_stand_at_its_field() {
    let console = open_blocking(&["status of 400"]);
    let OpenConsole { browser, .. } = &console;
    add(browser, BLOCK, "two words", "both");
    shows(browser, "dialog [name=host][aria-invalid]");
    says(browser, "dialog .error:not([hidden])", "not a valid host");
    browser.is_accessible();
    browser.value("document.querySelector('dialog [name=host]').value = ''");
    browser.fill("dialog [name=host]", "Evil.example");
    browser.click("dialog [value=host]");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error:not([hidden])", "already on the list");
    // With its subdomains, only these are added.
    browser.click("dialog [value=both]");
    press(browser, "dialog", "submit");
    says(browser, BLOCK, "*.evil.example");
    says(browser, SUMMARY, "Draft with 1 change,");
    lacks(browser, "dialog");
    press(browser, BLOCK, "edit-source");
    browser.fill("dialog [name='block.source']", "redis");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error:not([hidden])", "the setting redis is not set");
    console.close();
}

#[test]
fn rows_and_text_are_one_draft() {
    let console = open_blocking(&["status of 400"]);
    let OpenConsole { browser, .. } = &console;
    browser.click("[data-view=text]");
    shows(browser, "[name=toml]");
    assert_eq!(written(browser), "[block]\nhosts = [\n  \"evil.example\",\n  \"*.phishing.example\",\n]\n");
    let commented = "[block]\n# Reported by the bank\nhosts = ['evil.example', 'new.example']\n";
    write(browser, commented);
    says(browser, SUMMARY, "Draft with 2 changes");
    browser.click("[data-view=list]");
    says(browser, BLOCK, "Only new.example");
    browser.click("[data-view=text]");
    assert_eq!(written(browser), commented, "the comment stays");
    // A text with mistakes stays where it is, with their lines.
    let wrong = "[block]\nhosts = [\n  'a b',\n]\n[log]\nlevel = 'warn'\n";
    write(browser, wrong);
    browser.click("[data-view=list]");
    says(browser, ".rules-text .error", "Line 3: block.hosts");
    says(browser, ".rules-text .error", "Line 6: log.level");
    wait_until("the text", || browser.value(FOCUS) == "toml");
    assert_eq!(written(browser), wrong);
    says(browser, SUMMARY, "can’t be read yet");
    browser.fits_everywhere(|_| {});
    write(browser, commented);
    says(browser, SUMMARY, "Draft with 2 changes");
    browser.click("[data-view=list]");
    // A change of a row writes the text again, which can be undone.
    press(browser, BLOCK, "remove-host");
    says(browser, ".toast", "Its comments are gone.");
    says(browser, SUMMARY, "Draft with 3 changes");
    press(browser, ".toast", "undo");
    says(browser, SUMMARY, "Draft with 2 changes");
    browser.click("[data-view=text]");
    assert_eq!(written(browser), commented);
    console.close();
}

#[test]
fn sources_stay_or_are_unknown_in_a_draft() {
    let console = OpenConsole::with(|dir| {
        let list = dir.join("blocked.json");
        std::fs::write(&list, r#"{"1": "read.example"}"#).unwrap();
        let setup = Setup::new(&dir.join("data")).env("CAROM_BLOCK_HOSTS", "evil.example");
        setup.env("CAROM_BLOCK_SOURCE", list.to_str().unwrap()).start()
    });
    let OpenConsole { node, browser, .. } = &console;
    open(&console);
    let before = rules(node);
    says(browser, &format!("{BLOCK} .host-source"), "1 host, last read");
    press(browser, BLOCK, "remove-host");
    says(browser, SUMMARY, "Draft with 1 change,");
    browser.fill("[name=longUrl]", "https://read.example/");
    says(browser, ".verdict", "Refused");
    press(browser, BLOCK, "edit-source");
    browser.value("document.querySelector('dialog input').value = ''");
    browser.fill("dialog [name='block.source']", "/etc/other.json");
    press(browser, "dialog", "submit");
    says(browser, ".verdict", "Depends on the new source");
    // A source stays in the settings, where the environment wins over the file.
    says(browser, "#draft .notice", "CAROM_BLOCK_SOURCE overrides the file.");
    says(browser, "#draft", "CAROM_BLOCK_SOURCE=/etc/other.json");
    says(browser, "#draft", "source = \"/etc/other.json\"");
    browser.is_accessible();
    // The hosts are saved without the source.
    press(browser, "#draft", "save");
    says(browser, ".toast", "Saved.");
    says(browser, SUMMARY, "Draft with 1 change,");
    lacks(browser, "#draft [data-action=save]:not([hidden] *)");
    assert_eq!(rules(node)["block"]["hosts"], json!([]));
    assert_eq!(rules(node)["block"]["source"], before["block"]["source"]);
    console.close();
}
