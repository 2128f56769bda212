//! The list of links in the console: what it counts, and which expiries and visits it shows.

use serde_json::json;

use crate::support::browser::{ESCAPE, PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, lacks, press, says, shows};
use crate::support::http::SHORT_URLS;
use crate::support::node::wait_until;

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

/// Script: what the dates of a row say of its expiry, for each slug in the order of the rows.
const EXPIRIES: &str = "[...document.querySelectorAll('tbody tr')].map((row) => {
    const [slug, expiry] = [row.querySelector('.short-url bdi'), row.querySelector('.expires')];
    return [slug.innerText, expiry?.innerText.split(' ')[0] ?? null];
})";

/// A date that every link gets by default would say nothing in a list.
#[test]
fn default_expiries_are_left_out() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for (slug, until) in [("far", json!("2099-01-02T00:00:00Z")), ("usual", json!(null))] {
        let fields = json!({"longUrl": TARGET, "customSlug": slug, "validUntil": until});
        assert_eq!(node.wire().create(&fields).status, 200);
    }
    let usual = node.wire().get(&format!("{SHORT_URLS}/usual")).json();
    assert!(usual["meta"]["validUntil"].is_string(), "{usual}");
    browser.go(&at(node, "links?sort=shortCode-ASC"));
    says(browser, "tbody", "usual");
    assert_eq!(browser.value(EXPIRIES), json!([["far", "Expires"], ["usual", null]]));
    console.close();
}

/// Returns a script for the height of the sparkline in the row of a link, as a share of its picture.
fn height_of_line(slug: &str) -> String {
    format!(
        "(() => {{
            const svg = document.querySelector('tbody tr:has(a[href$={slug}]) .trend svg');
            return svg ? svg.querySelector('.line').getBBox().height / svg.viewBox.baseVal.height : null;
        }})()"
    )
}

/// On one scale for all rows, the lines of most links were flat.
#[test]
fn sparklines_have_scales_of_their_own() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    for (slug, visits) in [("busy", 40), ("quiet", 10), ("single", 1), ("unvisited", 0)] {
        wire.shorten_as(slug, TARGET);
        (0..visits).for_each(|_| assert_eq!(wire.get(&format!("/{slug}")).status, 302));
        wait_until("all visits", || {
            node.wire().get(&format!("{SHORT_URLS}/{slug}")).json()["visitsSummary"]["total"] == json!(visits)
        });
    }
    let height = |slug: &str| browser.value(&height_of_line(slug)).as_f64();
    wait_until("the visits of each day", || {
        browser.go(&at(node, "links"));
        wait_until("sparklines", || browser.value("document.querySelectorAll('tbody .trend svg').length") == 4);
        ["busy", "quiet", "single"].iter().all(|slug| height(slug) > Some(0.0))
    });
    for slug in ["busy", "quiet"] {
        let height = height(slug).unwrap();
        assert!(height > 0.7, "{slug}: {height}");
    }
    // A single visit is more than a line, but no peak.
    let single = height("single").unwrap();
    assert!((0.1..0.5).contains(&single), "{single}");
    let grey = "[...document.querySelectorAll('tbody tr:has(.trend.none)')].map((row) => row.querySelector('.short-url a').textContent)";
    assert_eq!(browser.value(grey), json!(["unvisited"]));
    console.close();
}

/// Script: the words of the column "State", and how many of them can be seen.
const STATES: &str = "(() => {
    const badges = [...document.querySelectorAll('tbody .cell-state .badge')];
    return [badges.map((one) => one.textContent), badges.filter((one) => one.checkVisibility() && one.offsetWidth > 1).length];
})()";

/// A green word in each row once hid the few links that do not redirect.
#[test]
fn lists_show_states_that_differ() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("first", TARGET);
    browser.go(&at(node, "links"));
    says(browser, "tbody", "first");
    // The whole column gives its room to the destination.
    assert_eq!(browser.value("document.querySelector('thead .col-state').checkVisibility()"), json!(false));
    let fields = json!({"longUrl": TARGET, "customSlug": "later", "validSince": "2099-01-02T00:00:00Z", "validUntil": "2099-02-02T00:00:00Z"});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.go(&at(node, "links?sort=shortCode-ASC"));
    says(browser, "tbody", "later");
    assert_eq!(browser.value(STATES), json!([["Active", "Scheduled"], 1]));
    browser.is_accessible();
    console.close();
}

/// A column for the state of one link once cut the destinations of all links while it was being deleted.
#[test]
fn links_being_deleted_take_no_column() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for slug in ["first", "second"] {
        node.wire().shorten_as(slug, TARGET);
    }
    browser.resize(SCREEN);
    browser.go(&at(node, "links"));
    says(browser, "tbody", "second");
    let size = "(({ offsetWidth, offsetHeight }) => [offsetWidth, offsetHeight])(document.querySelector('tbody .cell-target'))";
    let before = browser.value(size);
    browser.click("[data-action=menu][data-code=second]");
    press(browser, ".menu", "delete");
    shows(browser, "tbody .cell-short [data-state=deleting]");
    assert_eq!(browser.value(size), before);
    assert_eq!(browser.value("document.querySelectorAll('tbody [data-state=deleting]').length"), json!(1));
    browser.is_accessible();
    // An edit, a tag or another delete would be lost with the link.
    browser.click("[data-action=menu][data-code=second]");
    let items = "[...document.querySelectorAll('.menu [role=menuitem]')].map((one) => one.dataset.action)";
    wait_until("its menu", || browser.value(items) == json!(["details", "restore"]));
    browser.press(ESCAPE);
    lacks(browser, ".menu");
    browser.resize(PHONE);
    browser.fits();
    console.close();
}

/// Script: by how many pixels each button that copies is from the end of its slug.
const COPY_GAPS: &str = "[...document.querySelectorAll('tbody .short-url')].map((one) => {
    const [slug, copy] = [one.querySelector('bdi'), one.querySelector('[data-action=copy] .glyph')].map((part) => part.getBoundingClientRect());
    return Math.round(copy.left - slug.right);
})";

#[test]
fn copy_buttons_stand_by_their_slugs() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for slug in ["a", "eleven-long", "a-slug-of-thirty-two-characters-"] {
        node.wire().shorten_as(slug, TARGET);
    }
    browser.resize(SCREEN);
    browser.go(&at(node, "links"));
    says(browser, "tbody", "eleven-long");
    // The shortest slug takes the room of a target all the same.
    for (size, most) in [(SCREEN, 26.0), (PHONE, 20.0)] {
        browser.resize(size);
        let gaps = browser.value(COPY_GAPS);
        assert!(gaps.as_array().unwrap().iter().all(|gap| gap.as_f64() <= Some(most)), "{size:?}: {gaps}");
    }
    console.close();
}

#[test]
fn filters_are_cleared_once_one_is_set() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("first", TARGET);
    console.shows_page(PHONE, "links", ("tbody", "first"));
    let offered = "document.querySelector('.links-bar [data-action=clear]').checkVisibility()";
    assert_eq!(browser.value(offered), json!(false));
    browser.go(&at(node, "links?state=archived"));
    says(browser, "tbody", "No links match");
    assert_eq!(browser.value(offered), json!(true));
    browser.fits();
    browser.fits_fingers();
    press(browser, ".links-bar", "clear");
    says(browser, "tbody", "first");
    assert_eq!(browser.value(offered), json!(false));
    assert_eq!(browser.url(), at(node, "links"));
    assert_eq!(browser.value("document.activeElement.dataset.action"), json!("filters"));
    console.close();
}

/// Script: how many lines of the slug of a row are cut, and whether its state takes room beside it.
const SLUG_IS_CUT: &str = "(() => {
    const slug = document.querySelector('tbody .short-url bdi');
    return [slug.scrollHeight > slug.clientHeight + 1, document.querySelector('tbody .cell-state').offsetWidth > 1];
})()";

#[test]
fn long_slugs_are_whole_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("a-slug-of-thirty-two-characters-", TARGET);
    console.shows_page(PHONE, "links", ("tbody .short-url", "thirty-two"));
    assert_eq!(browser.value(SLUG_IS_CUT), json!([false, false]));
    browser.fits();
    browser.fits_fingers();
    console.close();
}

/// Script: whether the pager can be seen, and whether its buttons can.
const PAGER: &str = "[document.querySelector('.pager'), document.querySelector('.pager [data-action=next]')].map((one) => one.checkVisibility())";

/// A list on one page once ended with two buttons that were off.
#[test]
fn pagers_are_for_lists_of_several_pages() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for number in (0..51).rev() {
        node.wire().shorten_as(&format!("item-{number:02}"), TARGET);
    }
    for (query, shown) in [("", [true, true]), ("?size=100", [true, false]), ("?q=item-01", [false, false])] {
        browser.go(&at(node, &format!("links{query}")));
        says(browser, "tbody", "item-01");
        wait_until("the pager of this list", || browser.value(PAGER) == json!(shown));
    }
    console.close();
}

/// Script: how far below the header the first row of the list begins, in pixels.
const FIRST_ROW: &str = "document.querySelector('tbody tr').getBoundingClientRect().top - document.querySelector('main').getBoundingClientRect().top";

/// Script: how many boxes that select links can be seen.
const BOXES: &str =
    "[...document.querySelectorAll('.links input[type=checkbox]')].filter((one) => one.checkVisibility()).length";

/// Script: true if the slug and the title of a row begin at the same place.
const SHARES_EDGE: &str = "new Set(['.short-url a', '.title'].map((part) =>
    Math.round(document.querySelector(`tbody ${part}`).getBoundingClientRect().left))).size === 1";

/// With the header, which is 48 pixels high on a screen and 53 on a phone, the first row begins where the first quarter of a
/// screen ends, and before the first third of a phone does: there, the search has a line of its own.
#[test]
fn first_link_is_near_the_top() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "first", "title": "Spring sale"});
    assert_eq!(node.wire().create(&fields).status, 200);
    console.shows_page(SCREEN, "links", ("tbody", "first"));
    let top = browser.value(FIRST_ROW);
    assert!(top.as_f64().is_some_and(|pixels| pixels <= 177.0), "{top}");
    browser.resize(PHONE);
    let top = browser.value(FIRST_ROW);
    assert!(top.as_f64().is_some_and(|pixels| pixels <= 204.0), "{top}");
    assert_eq!(browser.value(BOXES), json!(0));
    assert_eq!(browser.value(SHARES_EDGE), json!(true));
    console.close();
}

/// The actions for selected links once pushed the list down, under the finger that was to select the next one.
#[test]
fn selecting_keeps_rows_in_place_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("first", TARGET);
    console.shows_page(PHONE, "links", ("tbody", "first"));
    says(browser, ".list-status", "1 link");
    let usual = browser.value(FIRST_ROW);
    press(browser, "main", "page-menu");
    press(browser, ".menu", "select");
    says(browser, ".list-line", "Select links to change");
    // One for the link, and one for all.
    assert_eq!(browser.value(BOXES), json!(2));
    browser.is_accessible();
    let before = browser.value(FIRST_ROW);
    browser.value("document.querySelector('tbody input').click()");
    shows(browser, "[data-selected='1']");
    assert_eq!(browser.value(FIRST_ROW), before);
    browser.fits();
    browser.fits_fingers();
    press(browser, "main", "clear-selection");
    says(browser, ".list-status", "1 link");
    assert_eq!(browser.value(BOXES), json!(0));
    assert_eq!(browser.value(FIRST_ROW), usual);
    console.close();
}

/// Script: waits until the list of links is asked for twice more.
const ASKED_TWICE: &str = "new Promise((done) => {
    const before = window.asked;
    const timer = setInterval(() => window.asked > before + 1 && (clearInterval(timer), done()), 20);
})";

/// Script: answers each list of links with a refusal as long as `window.sorting` holds one, and counts them.
const WITH_SORTING: &str = "(() => {
    const real = window.fetch;
    window.fetch = (path, options) => window.sorting && String(path).startsWith('/rest/v3/short-urls?')
        ? (window.asked = (window.asked ?? 0) + 1, Promise.resolve(Response.json(window.sorting, { status: 503 })))
        : real(path, options);
})()";

/// A list that the node sorts in the background appears without a click.
#[test]
fn sorted_list_appears_by_itself() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("first", TARGET);
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "1 link");
    browser.value(WITH_SORTING);
    browser.value(
        "window.sorting = { status: 503, title: 'Temporarily unavailable', detail: '', sortedPercent: 41, retryAfter: 1 }",
    );
    browser.click("th.col-visits button");
    says(browser, "main", "Sorting a long list: 41% done");
    browser.is_accessible();
    browser.value("document.querySelector('[data-action=newest-first]').focus()");
    browser.value("window.sorting.sortedPercent = 87");
    says(browser, "main", "Sorting a long list: 87% done");
    assert_eq!(browser.value("document.activeElement.dataset.action"), "newest-first", "the button keeps the focus");
    // A busy node may not say how far it is. The console asks on.
    browser.value("window.sorting = { status: 503, title: 'Temporarily unavailable', detail: '', retryAfter: 1 }");
    browser.value(ASKED_TWICE);
    browser.value("window.sorting = { ...window.sorting, sortedPercent: 92 }");
    says(browser, "main", "Sorting a long list: 92% done");
    browser.value("window.sorting = null");
    says(browser, ".list-status", "1 link");
    says(browser, "tbody", "first");
    console.close();
}
