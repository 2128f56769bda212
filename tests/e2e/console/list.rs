//! The list of links in the console: what it counts, and which expiries and visits it shows.

use crate::support::console::{OpenConsole, TARGET, at, press, says, shows};

/// The question, the message and the list agree on what a delete does, and for how long it can be undone.
#[test]
fn deletes_say_how_long_they_can_be_undone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for code in ["first", "second", "third"] {
        node.wire().shorten_as(code, TARGET);
    }
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "3 links");
    browser.value("document.querySelector('thead input').click()");
    press(browser, "main", "delete");
    says(browser, "dialog h2", "Delete 3 links");
    says(browser, "dialog", "You can undo this for 20 seconds.");
    press(browser, "dialog", "confirm");
    shows(browser, ".toast [data-action=undo-delete]");
    let seconds = "Number(/\\d+/.exec(document.querySelector('.toast [data-action=undo-delete]').textContent)[0])";
    let left = browser.value(seconds);
    assert!(left.as_u64().is_some_and(|seconds| seconds <= 20), "{left}");
    // What no longer redirects is no longer counted.
    says(browser, ".list-status", "0 links, 3 being deleted");
    press(browser, ".toast", "undo-delete");
    says(browser, ".list-status", "3 links");
    console.close();
}
