//! The expiry of links in the console: of a new link, of an existing one, and of many.

use serde_json::json;

use crate::support::browser::{Browser, PHONE};
use crate::support::console::{OpenConsole, TARGET, at, press, says, shows};
use crate::support::http::SHORT_URLS;
use crate::support::node::wait_until;

/// The field that says when the link of a form expires.
const EXPIRES: &str = "dialog select[name=expires]";

/// Enters text into a field, as a person does who leaves it.
fn enter(browser: &Browser, name: &str, text: &str) {
    let events = "for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, { bubbles: true }));";
    let enter = format!("field.value = '{text}'; {events}");
    browser.value(&format!("((field) => {{ {enter} }})(document.querySelector('dialog input[name={name}]'))"));
}

/// Enters the day and the time of day of an expiry.
fn enter_expiry(browser: &Browser, day: &str, time: &str) {
    enter(browser, "validUntil", day);
    enter(browser, "validUntilTime", time);
}

/// Script: the hint below the choice of an expiry.
const HINT: &str = "document.querySelector('dialog .field:has(> [name=expires]) small').textContent";

/// New links and existing ones expire by default, never, or on a date that must be there.
#[test]
fn links_expire_never_or_on_a_date() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let until = || node.wire().get(&format!("{SHORT_URLS}/lasting")).json()["meta"]["validUntil"].clone();
    browser.go(&at(node, "links"));
    press(browser, "main", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.fill("dialog input[name=customSlug]", "lasting");
    browser.choose(EXPIRES, "never");
    press(browser, "dialog", "submit");
    says(browser, "dialog .created-times", "Never expires.");
    assert_eq!(until(), json!(null));
    browser.go(&at(node, "links/lasting"));
    // The expiry that the link had for a moment is no change that somebody made.
    says(browser, ".history", "by anonymous");
    assert_eq!(browser.value("document.querySelectorAll('.history > li').length"), json!(1));
    press(browser, "main", "edit");
    shows(browser, "dialog select[name=expires]");
    browser.choose(EXPIRES, "date");
    press(browser, "dialog", "submit");
    shows(browser, "dialog input[name=validUntil][aria-invalid]");
    browser.is_accessible();
    enter_expiry(browser, "2099-01-02", "03:04");
    press(browser, "dialog", "submit");
    wait_until("an expiry", || until().is_string());
    says(browser, "main", "2099");
    press(browser, "main", "edit");
    shows(browser, "dialog select[name=expires]");
    browser.choose(EXPIRES, "never");
    press(browser, "dialog", "submit");
    wait_until("no expiry", || until().is_null());
    says(browser, ".history", "→ Never");
    console.close();
}

/// The expiry of many links is set at once, and put back to what each of them had.
#[test]
fn chosen_links_get_one_expiry() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let until = |code: &str| node.wire().get(&format!("{SHORT_URLS}/{code}")).json()["meta"]["validUntil"].clone();
    let fields = json!({"longUrl": TARGET, "customSlug": "dated", "validUntil": "2098-01-02T00:00:00Z"});
    assert_eq!(node.wire().create(&fields).status, 200);
    node.wire().shorten_as("usual", TARGET);
    let before = [until("dated"), until("usual")];
    browser.live_in("UTC");
    browser.go(&at(node, "links"));
    says(browser, "tbody", "dated");
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "set-expiry");
    // A date must be there, and none is taken away by a key alone.
    press(browser, "dialog", "submit");
    shows(browser, "dialog input[name=validUntil][aria-invalid]");
    browser.is_accessible();
    enter_expiry(browser, "2099-03-04", "05:06");
    press(browser, "dialog", "submit");
    says(browser, ".toast", "2 links set to expire");
    wait_until("one expiry", || {
        [until("dated"), until("usual")].iter().all(|at| at.to_string().contains("2099-03-04T05:06"))
    });
    says(browser, "tbody", "2099");
    press(browser, ".toast", "undo");
    wait_until("the old expiries", || [until("dated"), until("usual")] == before);
    press(browser, "main", "set-expiry");
    browser.choose(EXPIRES, "never");
    press(browser, "dialog", "submit");
    wait_until("no expiry", || until("dated").is_null() && until("usual").is_null());
    browser.resize(PHONE);
    browser.fits();
    browser.fits_fingers();
    console.close();
}

/// The API takes an expiry that is past, but removes a link that expired days ago at once: a person has mistyped the date.
#[test]
fn expiry_in_the_past_is_refused() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    press(browser, "main", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.choose(EXPIRES, "date");
    enter_expiry(browser, "2020-11-04", "09:30");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error:not([hidden])", "Choose a time in the future.");
    assert_eq!(node.status()["links"], 0);
    enter_expiry(browser, "2099-11-04", "09:30");
    press(browser, "dialog", "submit");
    says(browser, "dialog .created-times", "2099");
    console.close();
}

/// A date alone is enough: it means the end of the day. The form says the whole of it, in one format.
#[test]
fn expiry_is_some_days_or_the_end_of_one() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let until = |code: &str| node.wire().get(&format!("{SHORT_URLS}/{code}")).json()["meta"]["validUntil"].clone();
    browser.live_in("UTC");
    browser.go(&at(node, "links"));
    press(browser, "main", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.fill("dialog input[name=customSlug]", "dated");
    browser.choose(EXPIRES, "date");
    assert_eq!(browser.value(HINT), json!("Time zone: UTC."));
    enter_expiry(browser, "2099-11-04", "24:00");
    says(browser, "dialog .error:not([hidden])", "Enter a time as 23:59.");
    enter_expiry(browser, "2099-11-04", "930");
    assert_eq!(browser.value(HINT), json!("Expires Wed 4 Nov 2099, 09:30 UTC."));
    enter_expiry(browser, "2099-11-04", "23:59");
    browser.is_accessible();
    press(browser, "dialog", "submit");
    says(browser, "dialog .created-times", "2099");
    assert_eq!(until("dated"), json!("2099-11-04T23:59:00+00:00"));
    press(browser, "dialog", "another");
    shows(browser, EXPIRES);
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.fill("dialog input[name=customSlug]", "week");
    browser.choose(EXPIRES, "7");
    let hint = browser.value(HINT);
    press(browser, "dialog", "submit");
    shows(browser, "dialog .created");
    let days = format!("Math.round((Date.parse({}) - Date.now()) / 86400000)", until("week"));
    assert_eq!(browser.value(&days), json!(7), "{hint}");
    console.close();
}

/// Script: which groups of a form are open.
const OPEN_GROUPS: &str = "[...document.querySelectorAll('dialog details')].map((one) => one.open)";

/// A day alone means its beginning, and a link that is to live for some days lives for them from then on.
#[test]
fn starts_are_days_or_times() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("later", TARGET);
    browser.live_in("UTC");
    browser.go(&at(node, "links/later"));
    press(browser, "main", "edit");
    shows(browser, EXPIRES);
    // As for a new link, the expiry is in no group, and groups in which nothing was set are folded.
    assert_eq!(browser.value(OPEN_GROUPS), json!([false, false]));
    assert_eq!(browser.value("document.querySelector('dialog details [name=expires]')"), json!(null));
    browser.choose(EXPIRES, "7");
    enter(browser, "validSince", "2099-11-04");
    assert_eq!(browser.value(HINT), json!("Expires Wed 11 Nov 2099, 00:00 UTC."));
    enter(browser, "validSinceTime", "noon");
    press(browser, "dialog", "submit");
    says(browser, "dialog .error:not([hidden])", "Enter a time as 23:59.");
    enter(browser, "validSinceTime", "12");
    press(browser, "dialog", "submit");
    says(browser, ".toast", "saved");
    let meta = node.wire().get(&format!("{SHORT_URLS}/later")).json()["meta"].clone();
    assert_eq!(meta["validSince"], "2099-11-04T12:00:00+00:00");
    assert_eq!(meta["validUntil"], "2099-11-11T12:00:00+00:00");
    press(browser, "main", "edit");
    shows(browser, EXPIRES);
    assert_eq!(browser.value(OPEN_GROUPS), json!([true, false]));
    console.close();
}
