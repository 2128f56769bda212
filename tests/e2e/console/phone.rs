//! The console on a phone: nothing scrolls sideways, rows are cards, fingers hit their targets, and the navigation says
//! which page is shown.

use serde_json::json;

use crate::support::browser::{ENTER, ESCAPE, PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, enter_key, press, says, shows};
use crate::support::node::wait_until;
use crate::support::visits::{FIREFOX, follow, logging};

/// Script: opens everything that is folded.
const UNFOLD: &str = "(() => {
    document.querySelectorAll('main details').forEach((one) => { one.open = true; });
    document.querySelectorAll('main .fold[aria-expanded=false], main .more-on-phone').forEach((one) => one.click());
})()";

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

/// Script: names in the bar that are cut, cards that scroll within the page, examples that a button covers or that are
/// cut, and names of settings that break in a sentence.
const MISFITS: &str = "[
    ...[...document.querySelectorAll('#tabs span')].filter((one) => one.scrollWidth > one.clientWidth),
    ...[...document.querySelectorAll('main .region:not(.plot-table *):has(> .as-cards)')].filter((one) => getComputedStyle(one).overflowY !== 'visible'),
    ...[...document.querySelectorAll('.snippet:has(.copy)')].filter((one) =>
        one.querySelector('pre').getBoundingClientRect().right > one.querySelector('.copy').getBoundingClientRect().left + 1),
    ...[...document.querySelectorAll('.snippet pre')].filter((one) => one.scrollWidth > one.clientWidth),
    ...[...document.querySelectorAll('main a[href*=\"settings?filter\"] > code')].filter((one) => one.textContent.length <= 28 && one.getClientRects().length > 1),
].map((one) => one.outerHTML.slice(0, 200))";

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
        for step in ["null", UNFOLD] {
            browser.value(step);
            browser.fits();
            browser.scrolls_nowhere_sideways();
            browser.fits_fingers();
            assert_eq!(browser.value(MISFITS), json!([]), "on {page}");
            browser.is_accessible();
        }
    }
    console.close();
}

/// Script: the entries of the bar that are marked.
const MARKED: &str =
    "[...document.querySelectorAll('#tabs :is(a, button)')].filter((one) => getComputedStyle(one).boxShadow !== 'none')
    .map((one) => one.getAttribute('href') ?? one.dataset.action)";

/// Script: true if the open navigation begins below the notice of the header.
const STARTS_BELOW_HEADER: &str = "document.querySelector('.top').getBoundingClientRect().bottom <= document.querySelector('.side').getBoundingClientRect().top";

#[test]
fn bar_opens_all_pages_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    console.shows_page(PHONE, "links", ("#tabs [aria-current]", "Links"));
    let more = "document.querySelector('[data-action=more]')";
    browser.value(&format!("{more}.focus()"));
    browser.press(ENTER);
    assert_eq!(browser.value(&format!("{more}.getAttribute('aria-expanded')")), "true");
    wait_until("the focus", || browser.value("document.activeElement.closest('#nav') !== null") == true);
    browser.fits_fingers();
    browser.is_accessible();
    assert_eq!(browser.value(MARKED), json!(["more"]));
    assert_eq!(browser.value(STARTS_BELOW_HEADER), json!(true));
    browser.press(ESCAPE);
    wait_until("the focus", || browser.value("document.activeElement.dataset.action") == "more");
    assert_eq!(browser.value(MARKED), json!(["/admin/links"]));
    // A click beside the open navigation closes it.
    browser.press(ENTER);
    browser.value("document.querySelector('main h1').click()");
    assert_eq!(browser.value(&format!("{more}.getAttribute('aria-expanded')")), "false");
    browser.press(ENTER);
    browser.click("#nav a[href='/admin/fleet']");
    wait_until("the fleet", || browser.url() == at(node, "fleet"));
    shows(browser, "#tabs [data-current]");
    // The button keeps its name, and says which page is shown.
    assert_eq!(browser.text("#tabs [data-current]"), "More");
    assert_eq!(browser.attribute("#tabs [data-current]", "aria-label"), "More pages, Fleet is shown");
    assert_eq!(browser.value(MARKED), json!(["more"]));
    assert_eq!(browser.value("document.querySelector('.side').checkVisibility()"), json!(false));
    console.close();
}

/// Script: how labels are aligned with their values, which are as high as a finger needs where they are links.
const ALIGNMENT: &str = "getComputedStyle(document.querySelector('.facts > div:has(a)')).alignItems";

/// Script: by how many pixels the middle of a tag is above or below that of its label.
const PILL_OFFSET: &str = "(() => {
    const pill = document.querySelector('.facts a.badge > bdi');
    const middle = (one) => { const { top, bottom } = one.getBoundingClientRect(); return (top + bottom) / 2; };
    return Math.abs(middle(pill) - middle(pill.closest('div').querySelector('dt')));
})()";

#[test]
fn labels_stand_on_the_line_of_their_values() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "customSlug": "tagged", "tags": ["sale"]});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.resize(PHONE);
    browser.go(&at(node, "links/tagged"));
    says(browser, ".facts", "sale");
    assert_eq!(browser.value(ALIGNMENT), json!("baseline"));
    let offset = browser.value(PILL_OFFSET);
    assert!(offset.as_f64().is_some_and(|pixels| pixels <= 4.0), "{offset}");
    console.close();
}

/// Script: the height of a row of top links, in pixels.
const TOP_ROW_HEIGHT: &str = "document.querySelector('.week .share-link').closest('tr').getBoundingClientRect().height";

#[test]
fn top_links_are_low_rows_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("low", TARGET);
    console.shows_page(PHONE, "", (".week", "New links"));
    browser.value(UNFOLD);
    let height = browser.value(TOP_ROW_HEIGHT);
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 60.0), "{height}");
    browser.fits_fingers();
    console.close();
}

/// Script: the number of rows of the top tags.
const TAG_ROWS: &str = "document.querySelectorAll('#card-links [data-action=filter-by]').length";

#[test]
fn top_lists_begin_with_five_rows_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "tags": ["a", "b", "c", "d", "e", "f", "g"]});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.resize(PHONE);
    browser.go(&at(node, "usage"));
    shows(browser, "main [data-action=all-tags]");
    browser.value(UNFOLD);
    assert_eq!(browser.value(TAG_ROWS), json!(5));
    press(browser, "main", "all-tags");
    assert_eq!(browser.value(TAG_ROWS), json!(7));
    console.close();
}

/// Script: the height of the highest row of the list of links, in pixels.
const ROW_HEIGHT: &str =
    "Math.max(...[...document.querySelectorAll('tbody tr')].map((row) => row.getBoundingClientRect().height))";

/// The smallest phone that the console is drawn for.
const NARROW_PHONE: (u32, u32) = (320, 640);

/// Script: in how many rows of the list the slug, or its button, reaches into the state or the dates.
const COLLISIONS: &str = "[...document.querySelectorAll('tbody tr')].filter((row) => {
    const boxes = (part) => [...row.querySelectorAll(part)].filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect());
    const end = Math.max(...boxes('.short-url > *').map(({ right }) => right));
    return boxes('.cell-state, .dates').some(({ left }) => left < end);
}).length";

/// Script: what a row says of its link below the slug, in the words of its title and of the text that the style adds.
const TITLE_AND_DESTINATION: &str = "(() => {
    const title = document.querySelector('tbody .title');
    return [title.innerText, getComputedStyle(title, '::after').content, document.querySelector('tbody .target').checkVisibility()];
})()";

#[test]
fn rows_of_links_are_low_and_open_their_link() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": "https://example.org/a", "customSlug": "titled", "title": "Spring sale", "tags": ["sale", "2026"],
        "validUntil": "2099-01-02T00:00:00Z"});
    assert_eq!(node.wire().create(&fields).status, 200);
    console.shows_page(PHONE, "links", ("tbody .title", "Spring sale"));
    says(browser, "tbody .dates", "Expires");
    let height = browser.value(ROW_HEIGHT);
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 96.0), "{height}");
    assert_eq!(browser.value(TITLE_AND_DESTINATION), json!(["Spring sale", "\"example.org/a\"", false]));
    browser.fits();
    browser.fits_fingers();
    browser.resize(NARROW_PHONE);
    browser.fits();
    assert_eq!(browser.value(COLLISIONS), json!(0));
    browser.resize(PHONE);
    // The bar at the bottom may cover the row.
    browser.value("document.querySelector('tbody .title').scrollIntoView({ block: 'center' })");
    browser.click("tbody .title");
    wait_until("the page of the link", || browser.url() == at(node, "links/titled"));
    // A link without a title leads to its destination.
    node.wire().shorten_as("plain", TARGET);
    browser.go(&at(node, "links"));
    says(browser, "tbody .target", "example.org/a/long/way");
    let height = browser.value(ROW_HEIGHT);
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 96.0), "{height}");
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

/// Script: the title of each folded card with its summary, and whether its content is hidden.
const FOLDED: &str = "[...document.querySelectorAll('main .folds[data-folded]')].map((card) => [
    card.querySelector('h2').innerText, card.querySelector('.fold-summary').innerText, !card.lastElementChild.checkVisibility()])";

#[test]
fn cards_of_a_link_are_folded_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("folded", TARGET);
    browser.resize(PHONE);
    browser.go(&at(node, "links/folded"));
    shows(browser, "#rules .fold");
    let folded = browser.value(FOLDED);
    assert_eq!(folded[0], json!(["Redirect rules", "None", true]), "{folded}");
    assert_eq!(folded[1][0], "History", "{folded}");
    assert_eq!(browser.attribute("#rules .fold", "aria-expanded"), "false");
    press(browser, "#rules", "fold");
    says(browser, "#rules", "Add redirect rule");
    assert_eq!(browser.attribute("#rules .fold", "aria-expanded"), "true");
    // Facts that are as in any new link follow on request.
    let cached = "[...document.querySelectorAll('.facts dt')].find((one) => one.textContent === 'Browser cache').checkVisibility()";
    assert_eq!(browser.value(cached), json!(false));
    press(browser, "main", "all-details");
    assert_eq!(browser.value(cached), json!(true));
    // A screen has room for all of it.
    browser.resize(SCREEN);
    assert_eq!(browser.value("document.querySelector('#rules .fold').checkVisibility()"), json!(false));
    says(browser, ".history", "Created");
    console.close();
}

/// Script: which of the actions of a link can be seen beside its title.
const ACTIONS: &str = "[...document.querySelectorAll('.page-actions button')].filter((one) => one.checkVisibility()).map((one) => one.dataset.action)";

/// Script: what the page of a link offers beside its short URL.
const USES: &str = "[...document.querySelectorAll('.link-uses .button')].map((one) => one.innerText)";

#[test]
fn further_actions_of_a_link_are_in_a_menu() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("menu", TARGET);
    for size in [SCREEN, PHONE] {
        browser.resize(size);
        browser.go(&at(node, "links/menu"));
        shows(browser, "[data-action=link-menu]");
        assert_eq!(browser.value(ACTIONS), json!(["edit", "link-menu"]), "{size:?}");
        assert_eq!(browser.value(USES), json!(["Copy", "QR code", "Visit"]), "{size:?}");
        press(browser, "main", "link-menu");
        shows(browser, ".menu [data-action=archive]");
        // What cannot be undone comes last.
        assert_eq!(browser.value("document.querySelector('.menu').lastElementChild.dataset.action"), "delete");
        browser.is_accessible();
    }
    browser.fits_fingers();
    press(browser, ".menu", "archive");
    shows(browser, ".link-head [data-state=archived]");
    // A link that does not redirect offers what makes it redirect again.
    assert_eq!(browser.value(ACTIONS), json!(["restore", "edit", "link-menu"]));
    browser.fits();
    console.close();
}

/// Script: the actions of the open menu.
const MENU: &str = "[...document.querySelectorAll('.menu [role=menuitem]')].map((one) => one.dataset.action)";

#[test]
fn actions_of_pages_are_in_a_menu_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("first", TARGET);
    console.shows_page(PHONE, "links", ("tbody", "first"));
    assert_eq!(browser.value(ACTIONS), json!(["new-link", "page-menu"]));
    press(browser, "main", "page-menu");
    assert_eq!(browser.value(MENU), json!(["select", "export-csv", "export-ndjson", "import"]));
    browser.fits_fingers();
    browser.is_accessible();
    press(browser, ".menu", "import");
    wait_until("the imports", || browser.url() == at(node, "import"));
    browser.go(&at(node, "usage"));
    shows(browser, ".tiles, .usage-none");
    assert_eq!(browser.value(ACTIONS), json!(["page-menu"]));
    press(browser, "main", "page-menu");
    assert_eq!(browser.value(MENU), json!(["refresh", "export-csv"]));
    press(browser, ".menu", "refresh");
    shows(browser, "main :is(.tiles, .usage-none)");
    console.close();
}

/// Script: the height of the highest row of the list of visits, in pixels, and the number of visible rows.
const VISITS: &str = "(() => {
    const rows = [...document.querySelectorAll('.visits tbody tr')].filter((one) => one.checkVisibility());
    return [Math.max(...rows.map((one) => one.getBoundingClientRect().height)), rows.length];
})()";

#[test]
fn visits_are_rows_of_two_lines_on_a_phone() {
    let console = OpenConsole::with(|dir| logging(dir).start());
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("seen", TARGET);
    (0..5).for_each(|_| follow(&mut wire, "/seen", &format!("{FIREFOX}Referer: https://news.example/a\r\n")));
    wait_until("five visits", || {
        wire.get("/rest/v3/visits/non-orphan").json()["visits"]["pagination"]["totalItems"] == json!(5)
    });
    browser.resize(PHONE);
    for page in ["links/seen", "usage"] {
        browser.go(&at(node, page));
        says(browser, ".visits", "news.example");
        let visits = browser.value(VISITS);
        assert!(visits[0].as_f64().is_some_and(|pixels| pixels <= 68.0), "{visits} on {page}");
        assert_eq!(visits[1], json!(3), "{page}");
        press(browser, ".visits", "more-visits");
        assert_eq!(browser.value(VISITS)[1], json!(5), "{page}");
        browser.fits_fingers();
    }
    console.close();
}

/// Script: the numbers in the row of a tag, each with its noun, which the style adds.
const TAG_ROW: &str = "[...document.querySelectorAll('.tag-table tbody .num')].map((cell) => `${cell.innerText.trim()} ${cell.dataset.label}`)";

#[test]
fn tags_are_rows_of_two_lines_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let fields = json!({"longUrl": TARGET, "tags": ["sale"]});
    assert_eq!(node.wire().create(&fields).status, 200);
    browser.resize(PHONE);
    browser.go(&at(node, "tags"));
    says(browser, "tbody", "sale");
    assert_eq!(browser.value(TAG_ROW), json!(["1 link", "0 visits", "0 by bots"]));
    let height = browser.value("document.querySelector('.tag-table tbody tr').getBoundingClientRect().height");
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 68.0), "{height}");
    // The whole row leads to the links of the tag.
    let hit = "(() => { const { left, bottom } = document.querySelector('.tag-table tbody tr').getBoundingClientRect(); return document.elementFromPoint(left + 150, bottom - 12).closest('a')?.dataset.action; })()";
    assert_eq!(browser.value(hit), "tag-links");
    console.close();
}

#[test]
fn links_are_sorted_by_one_control_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("a-first", TARGET);
    node.wire().shorten_as("b-second", TARGET);
    browser.resize(PHONE);
    browser.go(&at(node, "links"));
    says(browser, "tbody", "b-second");
    assert_eq!(browser.value("document.querySelector('.order').innerText.startsWith('Sort:')"), json!(true));
    // The heads of columns are those of a screen.
    assert_eq!(
        browser.value("[...document.querySelectorAll('thead .sort')].some((one) => one.checkVisibility())"),
        json!(false)
    );
    browser.choose(".order select", "shortCode-ASC");
    says(browser, "tbody tr", "a-first");
    assert!(browser.url().ends_with("links?sort=shortCode-ASC"), "{}", browser.url());
    // The search has the whole line.
    let width = browser.value("document.querySelector('.search-line input').getBoundingClientRect().width");
    assert!(width.as_f64().is_some_and(|pixels| pixels >= 350.0), "{width}");
    console.close();
}

#[test]
fn sections_of_settings_are_folded_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "settings"));
    says(browser, "#settings-general summary", "Changed: ");
    assert_eq!(browser.value("document.querySelectorAll('.settings[open]').length"), json!(0));
    let height = browser.value("document.documentElement.scrollHeight");
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 3_500.0), "{height}");
    // An address names a section, or what is searched for.
    browser.go("about:blank");
    browser.go(&at(node, "settings#settings-links"));
    shows(browser, "#settings-links[open]");
    browser.go(&at(node, "settings?filter=block.hosts"));
    shows(browser, "#settings-block[open]");
    console.close();
}

/// Script: the height of the first row of the first table, in pixels.
const FIRST_ROW_HEIGHT: &str = "document.querySelector('main .rows tbody tr').getBoundingClientRect().height";

#[test]
fn keys_and_domains_are_low_rows_on_a_phone() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "apps"));
    enter_key(browser, &key);
    // A name or an ID with a line of facts, beside the button of a menu.
    for (page, most) in [("apps", 72.0), ("domains", 100.0)] {
        browser.go(&at(node, page));
        shows(browser, "main .rows tbody tr");
        let height = browser.value(FIRST_ROW_HEIGHT);
        assert!(height.as_f64().is_some_and(|pixels| pixels <= most), "{height} on {page}");
        browser.fits_fingers();
    }
    // What is usual is not said, and the role once.
    browser.go(&at(node, "apps"));
    says(browser, ".keys tbody tr", "Admin");
    let said = browser.value("document.querySelector('.keys tbody tr').innerText");
    assert!(
        ["All", "Default", "Never", "Valid", "admin"].iter().all(|word| !said.as_str().unwrap().contains(word)),
        "{said}"
    );
    press(browser, ".keys", "key-menu");
    press(browser, ".menu", "rotate");
    says(browser, "dialog", "Rotate key");
    console.close();
}

#[test]
fn charts_of_the_overview_are_folded_on_a_phone() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten(TARGET);
    browser.resize(PHONE);
    browser.go(&at(node, ""));
    shows(browser, ".server-details");
    browser.value("document.querySelector('.server-details > summary').click()");
    says(browser, "main", "Server-side latency");
    wait_until("a folded chart", || browser.value(FOLDED).to_string().contains("Server-side latency"));
    let height = browser.value("document.documentElement.scrollHeight");
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 3_000.0), "{height}");
    console.close();
}
