//! Redirect rules in the console: the editor by mouse and by keyboard, every type of condition, errors beside their
//! fields, undo, and the try-out.

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::browser::{Browser, ENTER, PHONE, TAB};
use crate::support::console::{OpenConsole, TARGET, at, press, says, shows};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, wait_until};

const ANDROID: &str = "User-Agent: Mozilla/5.0 (Linux; Android 13) AppleWebKit/537.36\r\n";

fn rules_path(code: &str) -> String {
    format!("{SHORT_URLS}/{code}/redirect-rules")
}

/// The rules of a link, as the API has them.
fn rules(wire: &mut Wire, code: &str) -> Vec<Value> {
    wire.get(&rules_path(code)).json()["redirectRules"].as_array().expect("a list of rules").clone()
}

fn set(node: &Node, code: &str, rules: &Value) {
    let body = json!({ "redirectRules": rules }).to_string();
    assert_eq!(node.wire().ask("POST", &rules_path(code), JSON, body.as_bytes()).status, 200);
}

/// Opens the page of a link and its editor of rules.
fn open_editor(browser: &Browser, node: &Node, code: &str) {
    browser.go(&at(node, &format!("links/{code}")));
    press(browser, "main", "edit-rules");
    wait_until("the first field", || browser.value("document.activeElement.name") == "type");
}

/// Puts a value into the first field with that name.
fn put(browser: &Browser, name: &str, value: &str) {
    let script = format!(
        "(() => {{ const one = document.querySelector('dialog [name={name}]'); one.value = {}; return one.value; }})()",
        json!(value)
    );
    assert_ne!(browser.value(&script), json!(""), "{name} takes {value}");
}

const FOCUS: &str = "document.activeElement.dataset.action ?? document.activeElement.name";

#[test]
fn rules_are_made_and_moved_by_keyboard() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("ruled", TARGET);
    open_editor(browser, node, "ruled");
    // Letters choose in a list: Language. Then its field, the button for another condition, and the destination.
    browser.press("L");
    browser.press(TAB);
    browser.press("fr");
    browser.press(TAB);
    assert_eq!(browser.value(FOCUS), "add-condition");
    browser.press(TAB);
    browser.press("https://fr.example/");
    browser.press(TAB);
    assert_eq!(browser.value(FOCUS), "add-rule");
    browser.press(ENTER);
    assert_eq!(browser.value(FOCUS), "type");
    browser.press(TAB);
    browser.press("A");
    browser.press(TAB);
    browser.press(TAB);
    browser.press("https://app.example/");
    // The second rule goes up. Its button is off at the top, so the other one has the focus then.
    browser.value("document.querySelectorAll('dialog [data-action=move-up]')[1].focus()");
    browser.press(ENTER);
    assert_eq!(browser.value(FOCUS), "move-down");
    says(browser, "dialog [role=status]", "Rule 2 is now rule 1.");
    press(browser, "dialog", "submit");
    says(browser, "#rules", "Device is Android");
    says(browser, ".history", "None → Device is Android: https://app.example/");
    let set = rules(&mut wire, "ruled");
    let urls: Vec<&Value> = set.iter().map(|rule| &rule["longUrl"]).collect();
    assert_eq!(urls, ["https://app.example/", "https://fr.example/"]);
    assert_eq!(set[1]["conditions"], json!([{"type": "language", "matchKey": null, "matchValue": "fr"}]));
    assert_eq!(wire.ask("GET", "/ruled", ANDROID, b"").location(), "https://app.example/");
    // What was there before is back after an undo.
    press(browser, ".toast", "undo");
    says(browser, "#rules", "All visitors go to the destination.");
    assert_eq!(rules(&mut wire, "ruled"), Vec::<Value>::new());
    console.close();
}

/// Each type of condition with a value for its fields: `matchKey`, then `matchValue`.
const CONDITIONS: [(&str, Option<&str>, Option<&str>); 12] = [
    ("device", None, Some("chromeos")),
    ("browser", None, Some("android_browser")),
    ("language", None, Some("pt-BR")),
    ("query-param", Some("ref"), Some("a b&c")),
    ("any-value-query-param", Some("ref"), None),
    ("valueless-query-param", Some("ref"), None),
    ("ip-address", None, Some("10.0.*.*")),
    ("geolocation-country-code", None, Some("DE")),
    ("geolocation-city-name", None, Some("São Paulo")),
    ("before-date", None, Some("2099-01-02T03:04")),
    ("after-date", None, Some("2026-01-02T03:04")),
    ("weight", None, Some("30")),
];

#[test]
fn every_condition_has_its_fields() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("ruled", TARGET);
    browser.live_in("Etc/UTC");
    for (kind, key, value) in CONDITIONS {
        open_editor(browser, node, "ruled");
        browser.choose("dialog select[name=type]", kind);
        put(browser, "longUrl", "https://other.example/");
        for (name, text) in [("matchKey", key), ("matchValue", value)] {
            let fields = browser.value(&format!("document.querySelectorAll('dialog [name={name}]').length"));
            assert_eq!(fields, json!(u8::from(text.is_some())), "{kind} has {name}");
            if let Some(text) = text {
                put(browser, name, text);
            }
        }
        browser.is_accessible();
        press(browser, "dialog", "submit");
        let is_saved = |rules: &[Value]| rules.len() == 1 && rules[0]["conditions"][0]["type"] == kind;
        wait_until(kind, || is_saved(&rules(&mut node.wire(), "ruled")));
        let condition = rules(&mut wire, "ruled")[0]["conditions"][0].clone();
        let expected =
            value.map(|value| if kind.ends_with("-date") { format!("{value}:00.000Z") } else { value.to_owned() });
        assert_eq!(condition, json!({"type": kind, "matchKey": key, "matchValue": expected}));
        shows(browser, "#rules .rules");
    }
    // An instant that nobody touches keeps its seconds.
    let precise = json!({"type": "before-date", "matchKey": null, "matchValue": "2099-01-02T03:04:05+02:00"});
    set(node, "ruled", &json!([{"longUrl": "https://a.example/", "conditions": [precise]}]));
    open_editor(browser, node, "ruled");
    put(browser, "longUrl", "https://b.example/");
    press(browser, "dialog", "submit");
    wait_until("the other destination", || rules(&mut node.wire(), "ruled")[0]["longUrl"] == "https://b.example/");
    assert_eq!(rules(&mut wire, "ruled")[0]["conditions"][0], precise);
    console.close();
}

#[test]
fn errors_stand_beside_the_fields_of_a_rule() {
    let console = OpenConsole::open().expecting(&["status of 400"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("ruled", TARGET);
    let rule = |url: &str, value: &str| json!({"longUrl": url, "conditions": [{"type": "language", "matchKey": null, "matchValue": value}]});
    set(node, "ruled", &json!([rule("https://fr.example/", "fr"), rule("https://de.example/", "de")]));
    open_editor(browser, node, "ruled");
    browser.value("(() => { const [, language] = document.querySelectorAll('dialog [name=matchValue]'); language.value = 'not a language'; document.querySelector('dialog [name=longUrl]').value = 'nothing'; })()");
    press(browser, "dialog", "submit");
    wait_until("two errors", || {
        browser.value("document.querySelectorAll('dialog .error:not([hidden])').length") == json!(2)
    });
    let marked = "[...document.querySelectorAll('dialog [aria-invalid]')].map((one) => one.name + ' of ' + one.closest('.rule-form').querySelector('h3').textContent)";
    assert_eq!(browser.value(marked), json!(["longUrl of Rule 1", "matchValue of Rule 2"]));
    assert_eq!(browser.value(FOCUS), "longUrl");
    browser.fits_everywhere(|size| {
        browser.scrolls_nowhere_sideways();
        if size == PHONE {
            browser.fits_fingers();
        }
    });
    // Without the rule that is wrong, the other error goes as well. What was typed is asked about when it is left.
    press(browser, "dialog", "remove-rule");
    assert_eq!(browser.value(FOCUS), "remove-rule");
    press(browser, "dialog", "close");
    shows(browser, "dialog:last-of-type [data-action=confirm]");
    press(browser, "dialog:last-of-type", "cancel");
    put(browser, "matchValue", "de");
    press(browser, "dialog", "submit");
    wait_until("one rule", || rules(&mut node.wire(), "ruled").len() == 1);
    assert_eq!(rules(&mut node.wire(), "ruled")[0]["longUrl"], "https://de.example/");
    console.close();
}

/// Script: how many right edges the fields of all rules have, and the words on the buttons that remove one.
const EDGES: &str = "(() => {
    const all = (selector) => [...document.querySelectorAll(`dialog .rule-form ${selector}`)].filter((one) => one.checkVisibility());
    const rows = [...all('.condition'), ...all('[name=longUrl]')].map((row) => (row.matches('input') ? [row] : [...row.querySelectorAll('input, select')]));
    const edges = new Set(rows.map((row) => Math.round(Math.max(...row.map((one) => one.getBoundingClientRect().right)))));
    return [edges.size, [...new Set(all('.remove').map((one) => one.textContent))]];
})()";

/// Script: the room between the destination of a rule and the edge of the rule, in pixels.
const ROOM: &str = "(() => {
    const rule = document.querySelector('dialog .rule-form > div').getBoundingClientRect();
    return rule.right - document.querySelector('dialog .rule-form [name=longUrl]').getBoundingClientRect().right;
})()";

/// A column for a button was empty, as the only condition of a rule cannot be removed.
#[test]
fn single_conditions_leave_no_room_for_a_button() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("ruled", TARGET);
    let condition = json!({"type": "device", "matchKey": null, "matchValue": "android"});
    set(node, "ruled", &json!([{"longUrl": "https://a.example/", "conditions": [condition]}]));
    open_editor(browser, node, "ruled");
    let room = browser.value(ROOM);
    assert!(room.as_f64().is_some_and(|pixels| pixels <= 24.0), "{room}");
    assert_eq!(browser.value(EDGES), json!([1, ["Remove rule"]]));
    console.close();
}

/// A field was as wide as its rule, or less where a cross beside it removed a condition.
#[test]
fn fields_of_rules_end_on_one_line() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("ruled", TARGET);
    let condition = |kind: &str, value: &str| json!({"type": kind, "matchKey": null, "matchValue": value});
    let [android, french, half] =
        [condition("device", "android"), condition("language", "fr"), condition("weight", "50")];
    let rules = json!([{"longUrl": "https://a.example/", "conditions": [android]}, {"longUrl": "https://b.example/", "conditions": [french, half]}]);
    set(node, "ruled", &rules);
    open_editor(browser, node, "ruled");
    assert_eq!(browser.value(EDGES), json!([1, ["Remove rule", "Remove"]]));
    browser.resize(PHONE);
    assert_eq!(browser.value(EDGES), json!([1, ["Remove rule", "Remove"]]));
    browser.fits_fingers();
    console.close();
}

#[test]
fn visitor_is_tried() {
    let console = OpenConsole::open().expecting(&["status of 400"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("ruled", TARGET);
    let condition = |kind: &str, value: &str| json!({"type": kind, "matchKey": null, "matchValue": value});
    set(
        node,
        "ruled",
        &json!([
            {"longUrl": "https://app.example/", "conditions": [condition("device", "android"), condition("geolocation-country-code", "DE")]},
            {"longUrl": "https://fr.example/", "conditions": [condition("language", "fr")]},
        ]),
    );
    browser.go(&at(node, "links/ruled"));
    press(browser, "main", "open-try");
    press(browser, ".try-form", "try");
    says(browser, ".try-result", TARGET);
    let pick = |name: &str, value: &str| {
        browser.value(&format!("document.querySelector('.try-form [name={name}]').value = {}", json!(value)))
    };
    pick("acceptLanguage", "fr-CA,en;q=0.5");
    press(browser, ".try-form", "try");
    says(browser, ".try-result", "https://fr.example/");
    says(browser, ".try-result", "Rule 2 matches.");
    pick("userAgent", "android");
    pick("country", "DE");
    press(browser, ".try-form", "try");
    says(browser, ".try-result", "https://app.example/");
    assert_eq!(browser.value("document.querySelectorAll('.try-result .match').length"), json!(2));
    browser.fits_everywhere(|_| {});
    pick("ipAddress", "300.1.1.1");
    press(browser, ".try-form", "try");
    shows(browser, ".try-form [name=ipAddress][aria-invalid]");
    assert_eq!(browser.value("document.querySelector('.try-result').textContent"), "", "the last result is gone");
    assert_eq!(
        node.wire().get(&format!("{SHORT_URLS}/ruled")).json()["visitsSummary"]["total"],
        0,
        "a try is no visit"
    );
    console.close();
}

#[test]
fn drafts_are_tried_before_they_are_saved() {
    let console = OpenConsole::open().expecting(&["status of 400"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("ruled", TARGET);
    open_editor(browser, node, "ruled");
    // A destination without a scheme gets one.
    put(browser, "longUrl", "app.example/");
    press(browser, "dialog", "open-try");
    press(browser, "dialog", "try");
    says(browser, "dialog .try-result", TARGET);
    // A device is named with its system, as in the conditions.
    let device = "(() => { const one = document.querySelector('dialog .try-form [name=userAgent]'); one.value = 'ios'; return one.selectedOptions[0].textContent; })()";
    assert_eq!(browser.value(device), "iPhone (iOS)");
    press(browser, "dialog", "try");
    says(browser, "dialog .try-result", "https://app.example/");
    says(browser, "dialog .try-result", "Rule 1 matches.");
    browser.fits_everywhere(|_| {});
    assert_eq!(rules(&mut node.wire(), "ruled"), Vec::<Value>::new(), "nothing is saved");
    put(browser, "longUrl", "nothing");
    press(browser, "dialog", "try");
    shows(browser, "dialog .rule-form [name=longUrl][aria-invalid]");
    assert_eq!(browser.value("document.querySelector('dialog .try-result').textContent"), "");
    console.close();
}
