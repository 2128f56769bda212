//! Appearance of the console: tiles, underlines, plots, codes, margins, date filters, and what pages of settings show.

use serde_json::json;

use crate::support::api_client::JSON;
use crate::support::browser::{Browser, PHONE, SCREEN};
use crate::support::console::{IS_IN_ITS_COLOUR, OpenConsole, TARGET, at, enter_key, press, says, shows, visited_node};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Setup, wait_until};

/// Script: true if the number of each tile stands where that of the first tile in its row stands.
const NUMBERS_ARE_ON_ONE_LINE: &str = "(() => {
    const tiles = [...document.querySelectorAll('.tile')];
    const place = (tile) => Math.round(tile.querySelector('dd > :first-child').getBoundingClientRect().top);
    return tiles.length > 1 && tiles.every((tile) => place(tile) === place(tiles.find((one) => one.offsetTop === tile.offsetTop)));
})()";

/// Script: the first tile has a label of two lines, the second one a hint of two lines.
const WITH_LONG_WORDS: &str = "(() => {
    const long = 'so many words that they take two lines, at least on a phone';
    document.querySelector('.tile dt').textContent = long;
    const hint = Object.assign(document.createElement('small'), { textContent: `${long}, and on a screen` });
    document.querySelectorAll('.tile dd')[1].append(hint);
})()";

#[test]
fn tile_numbers_stay_on_one_line() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, ".tile");
    browser.value(WITH_LONG_WORDS);
    for size in [SCREEN, PHONE] {
        browser.resize(size);
        assert_eq!(browser.value(NUMBERS_ARE_ON_ONE_LINE), json!(true), "{size:?}");
    }
    // A slab with lines of one pixel, not cards on a grey ground.
    let tile = "(() => { const { borderTopWidth, borderRadius } = getComputedStyle(document.querySelector('.tile')); return [borderTopWidth, borderRadius]; })()";
    assert_eq!(browser.value(tile), json!(["0px", "0px"]));
    console.close();
}

#[test]
fn codes_are_legible() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("Il0O", TARGET);
    browser.go(&at(node, "domains"));
    shows(browser, "main a > code");
    assert_eq!(
        browser.value("getComputedStyle(document.querySelector('main a:has(> code)')).textDecorationLine"),
        "none"
    );
    browser.go(&at(node, "links"));
    shows(browser, ".short-url bdi");
    // In a monospaced font a narrow letter is as wide as a broad one.
    let widths = "['l', 'W'].map((letter) => { const code = document.querySelector('.short-url bdi'); const one = document.createElement('span'); one.textContent = letter; code.append(one); return one.getBoundingClientRect().width; })";
    let widths = browser.value(widths);
    assert!(widths[0].as_f64() > Some(1.0), "{widths}");
    assert!(widths[0] == widths[1], "{widths}");
    console.close();
}

/// Each redraw once widened the axis of a bar chart by half a bar.
#[test]
fn theme_change_keeps_the_chart_axis() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.prefer("light");
    browser.go(&at(node, "usage"));
    wait_until("a plot", || browser.value(IS_IN_ITS_COLOUR) == true);
    let drawn = || browser.value("document.querySelector('.plot-picture canvas').toDataURL()");
    let before = drawn();
    browser.prefer("dark");
    wait_until("a dark plot", || drawn() != before);
    browser.prefer("light");
    wait_until("the same plot", || drawn() == before);
    console.close();
}

#[test]
fn resize_keeps_the_current_page_in_sight() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "settings"));
    says(browser, "main", "data_dir");
    assert_eq!(browser.value("getComputedStyle(document.documentElement).scrollbarGutter"), "stable");
    // The page that is shown stays in sight when the navigation becomes a bar.
    browser.resize(PHONE);
    says(browser, "#tabs [data-current]", "More");
    browser.go(&at(node, "links"));
    says(browser, "#tabs [aria-current]", "Links");
    console.close();
}

#[test]
fn sign_in_form_has_margins_on_a_phone() {
    let console = OpenConsole::with(|dir| Setup::new(dir).env("CAROM_ADMIN_REQUIRE_KEY", "true").start());
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "sign-in"));
    let margins = browser.value("(() => { const { left, right } = document.querySelector('main').getBoundingClientRect(); return [left, innerWidth - right]; })()");
    assert!(margins[0].as_f64() >= Some(16.0), "{margins}");
    assert!(margins[1].as_f64() >= Some(16.0), "{margins}");
    console.close();
}

/// The days of a filter are those of the table: the viewer's. One of these zones always has another day than UTC.
#[test]
fn date_filters_use_the_viewers_days() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("today", TARGET);
    for zone in ["Pacific/Kiritimati", "Pacific/Pago_Pago"] {
        browser.live_in(zone);
        browser.go(&at(node, "links"));
        says(browser, "tbody", "today");
        let day = browser.value("new Date().toLocaleDateString('sv')");
        let day = day.as_str().unwrap();
        browser.go(&at(node, &format!("links?from={day}&to={day}")));
        says(browser, "tbody", "today");
    }
    console.close();
}

#[test]
fn past_expiries_are_named_as_such() {
    let console = OpenConsole::with(|dir| Setup::new(dir).env("CAROM_LINKS_KEEP_EXPIRED", "forever").start());
    let OpenConsole { node, browser, .. } = &console;
    for (slug, until) in [("past", "2020-01-02T00:00:00Z"), ("future", "2099-01-02T00:00:00Z")] {
        let fields = json!({"longUrl": TARGET, "customSlug": slug, "validUntil": until});
        assert_eq!(node.wire().create(&fields).status, 200);
    }
    browser.go(&at(node, "links"));
    says(browser, "tbody", "future");
    let said = "['past', 'future'].map((slug) => document.querySelector(`tbody tr:has(a[href$=${slug}]) .expires`).innerText.split(' ')[0])";
    assert_eq!(browser.value(said), json!(["Expired", "Expires"]));
    console.close();
}

/// Script: by how many pixels the end of a dialog is below that of its buttons.
const BELOW_THE_BUTTONS: &str = "(() => {
    const [body, foot] = ['body', 'foot'].map((part) => document.querySelector(`dialog .dialog-${part}`).getBoundingClientRect());
    return Math.abs(Math.round(body.bottom - foot.bottom));
})()";

/// The form once showed in a strip below its buttons.
#[test]
fn buttons_end_a_long_dialog() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for size in [SCREEN, PHONE] {
        browser.resize(size);
        browser.go(&at(node, "links"));
        press(browser, "main", "new-link");
        shows(browser, "dialog details");
        browser.value("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })");
        assert_eq!(browser.value(BELOW_THE_BUTTONS), json!(0), "{size:?}");
        browser.value("document.querySelector('dialog .dialog-body').scrollTop = 9999");
        assert_eq!(browser.value(BELOW_THE_BUTTONS), json!(0), "{size:?}, at the end");
    }
    console.close();
}

/// Script: the contrast of the edges of a field and of a button with the page around them.
const EDGES: &str = "(() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = document.body.appendChild(document.createElement('i'));
    page.style.color = 'var(--paper)';
    const ground = light(getComputedStyle(page).color);
    page.remove();
    return ['input[type=search]', '[data-action=filters]'].map((part) => {
        const edge = light(getComputedStyle(document.querySelector(`.links-bar ${part}`)).borderTopColor);
        return (Math.max(edge, ground) + 0.05) / (Math.min(edge, ground) + 0.05);
    });
})()";

/// The words of a button say where it is; an empty field has only its edge (WCAG 1.4.11).
#[test]
fn edges_of_fields_have_contrast() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    shows(browser, ".links-bar [data-action=filters]");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let edges = browser.value(EDGES);
        let [field, button] = [0, 1].map(|at| edges[at].as_f64().unwrap());
        assert!(field >= 3.0, "{scheme}: {edges}");
        assert!(button < field, "{scheme}: {edges}");
    }
    console.close();
}

/// Script: gives the service two domains.
const TWO_DOMAINS: &str = "(() => {
    const real = window.fetch;
    window.fetch = (path, ...rest) => (String(path).includes('/rest/v3/domains')
        ? Promise.resolve(Response.json({ domains: { data: [{ domain: 'go.example', isDefault: true }, { domain: 'links.campaigns.example', isDefault: false }] } }))
        : real(path, ...rest));
})()";

/// Script: the domains of the form, whether the chosen one is cut, the width of the slug, and whether both are in one line.
const SHORT_URL: &str = "(() => {
    const [domain, slug] = ['domain', 'customSlug'].map((name) => document.querySelector(`dialog [name=${name}]`));
    return [[...domain.options].map((one) => one.text), domain.scrollWidth > domain.clientWidth, slug.offsetWidth, domain.offsetTop === slug.offsetTop];
})()";

/// The domain once stood twice, and the slug had 96 pixels.
#[test]
fn slug_follows_its_whole_domain() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for (size, is_one_line) in [(SCREEN, true), (PHONE, false)] {
        browser.resize(size);
        browser.go(&at(node, "links"));
        shows(browser, ".list-status");
        browser.value(TWO_DOMAINS);
        press(browser, "main", "new-link");
        shows(browser, "dialog [name=domain]");
        let said = browser.value(SHORT_URL);
        assert_eq!(said[0], json!(["go.example", "links.campaigns.example"]));
        assert_eq!((&said[1], &said[3]), (&json!(false), &json!(is_one_line)), "{size:?}: {said}");
        assert!(said[2].as_f64() >= Some(200.0), "{size:?}: {said}");
        browser.is_accessible();
    }
    browser.fits_fingers();
    console.close();
}

/// Script: the different heights of the fields and buttons of a form.
const HEIGHTS: &str = "[...new Set([...document.querySelectorAll('dialog :is(select, .tag-box, .dialog-foot > .button, .field > input:not([type=checkbox]))')]
    .filter((one) => one.checkVisibility()).map((one) => Math.round(one.getBoundingClientRect().height)))]";

/// Browsers draw lists and dates in heights of their own.
#[test]
fn controls_of_a_form_have_one_height() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for (size, height) in [(SCREEN, 32), (PHONE, 44)] {
        browser.resize(size);
        browser.go(&at(node, "links"));
        press(browser, "main", "new-link");
        shows(browser, "dialog details");
        browser.value("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })");
        assert_eq!(browser.value(HEIGHTS), json!([height]), "{size:?}");
    }
    console.close();
}

/// Script: by how many pixels an example is wider than its box.
const EXAMPLE_IS_CUT_BY: &str = "(() => { const { scrollWidth, clientWidth } = document.querySelector('.snippet pre'); return scrollWidth - clientWidth; })()";

#[test]
fn short_page_fits_its_window() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "domains"));
    enter_key(browser, &key);
    shows(browser, ".snippet pre");
    assert_eq!(browser.value("document.documentElement.scrollHeight - innerHeight"), json!(0));
    assert_eq!(browser.value(EXAMPLE_IS_CUT_BY), json!(0));
    console.close();
}

/// Script: the titles of the columns of the first table.
const COLUMNS: &str = "[...document.querySelectorAll('main table th')].map((head) => head.textContent)";

#[test]
fn domains_show_redirects_if_one_is_set() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let setup = |at: usize| Setup::new(dirs[at].path()).env("CAROM_BASE_URL", "https://s.test");
    let start = |at: usize, served: &str| setup(at).env("CAROM_DOMAINS_SERVE", served).start();
    let nodes = [start(0, "https://go.test"), start(1, "https://go.test home=https://www.example/")];
    let plain = ["Domain", "Short URL prefix", "Links", "New in 30 days"];
    let all = [&plain[..], &["Home page", "Unknown links", "Expired links"]].concat();
    let browser = Browser::open();
    browser.go(&at(&nodes[0], "domains"));
    says(&browser, "main", "the built-in pages");
    assert_eq!(browser.value(COLUMNS), json!(plain));
    browser.go(&at(&nodes[1], "domains"));
    says(&browser, "main table", "https://www.example/");
    says(&browser, "main table", "Built-in page");
    assert_eq!(browser.value(COLUMNS), json!(all));
    browser.close();
    nodes.into_iter().for_each(|node| {
        node.terminate();
    });
}

/// Script: gives no answer to requests for numbers of links, and keeps the paths of all requests.
const WITHOUT_COUNTS: &str = "(() => {
    const real = window.fetch;
    window.asked = [];
    window.fetch = (path, ...rest) => {
        window.asked.push(String(path));
        return String(path).includes('/admin/api/usage') ? new Promise(() => {}) : real(path, ...rest);
    };
})()";

#[test]
fn domains_do_not_wait_for_their_counts() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "fleet"));
    says(browser, "main", "Single node");
    browser.value(WITHOUT_COUNTS);
    browser.click("#nav a[href='/admin/domains']");
    says(browser, "main", "Add a domain");
    shows(browser, "main [aria-busy=true] table");
    // A single domain needs no setting.
    assert_eq!(browser.value("window.asked.filter((path) => path.includes('settings')).length"), json!(0));
    browser.is_accessible();
    browser.go(&at(node, "domains"));
    says(browser, "main td:nth-child(3)", "0");
    console.close();
}

#[test]
fn settings_are_read_without_their_quotes() {
    let console = OpenConsole::with(|dir| {
        Setup::new(dir)
            .env("CAROM_BASE_URL", "https://s.test")
            .env("CAROM_DOMAINS_SERVE", "https://go.test")
            .env("CAROM_DOMAINS_UNKNOWN_HOST", "misdirected")
            .env("CAROM_BLOCK_HOSTS", "*.phishing.example,evil.example")
            .start()
    });
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "domains"));
    says(browser, ".domain-rules", "Visitors get an explanation and status 421");
    browser.go(&at(node, "lists"));
    let blocked = ".cards > .card:last-child";
    says(browser, &format!("{blocked} .host-rows"), "*.phishing.example");
    says(browser, &format!("{blocked} .host-rows"), "evil.example");
    says(browser, ".cards > .card .card-head", "Not in use");
    says(browser, &format!("{blocked} .card-head"), "In use");
    // A list without a source offers to set one.
    says(browser, &format!("{blocked} .host-source"), "None");
    says(browser, &format!("{blocked} [data-action=edit-source]"), "Add source");
    browser.go(&at(node, "settings?filter=block.hosts"));
    says(browser, "tbody td:nth-child(2)", "*.phishing.example, evil.example");
    // The source has a column of its own.
    says(browser, "tbody td.source", "Environment");
    says(browser, "tbody td.source code", "CAROM_BLOCK_HOSTS");
    console.close();
}

/// Script: the names of settings that take more than one line.
const BROKEN_NAMES: &str =
    "document.fonts.ready.then(() => [...document.querySelectorAll('.settings td:first-child code')]
    .filter((name) => new Set([...name.getClientRects()].map((part) => Math.round(part.top))).size > 1)
    .map((name) => name.textContent))";

#[test]
fn names_of_settings_take_one_line() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    browser.go(&at(node, "settings"));
    shows(browser, "#settings-links");
    press(browser, "main", "unfold");
    says(browser, "main", "limits.connections_per_address");
    assert_eq!(browser.value(BROKEN_NAMES), json!([]));
    console.close();
}

/// Script: the first name of a setting that is shown, the texts in marks, and whether the certificates can be seen.
const FOUND_SETTINGS: &str = "[
    document.querySelector('.settings td:first-child code').textContent,
    [...new Set([...document.querySelectorAll('.settings mark')].map((one) => one.textContent.toLowerCase()))],
    document.querySelector('#certificates')?.checkVisibility(),
]";

/// A setting of an earlier section once stood above those whose name was searched for.
#[test]
fn settings_are_found_by_their_names_first() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "settings?filter=connections"));
    shows(browser, "#certificates");
    let found = browser.value(FOUND_SETTINGS);
    assert!(found[0].as_str().is_some_and(|name| name.contains("connections")), "{found}");
    assert_eq!(found[1], json!(["connections"]));
    assert_eq!(found[2], false);
    says(browser, "#settings-limits", "100,000");
    browser.go(&at(node, "settings"));
    shows(browser, "#certificates");
    wait_until("the certificates", || {
        browser.value("document.querySelector('#certificates').checkVisibility()") == true
    });
    console.close();
}

#[test]
fn filters_are_cleared_by_a_button() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(PHONE);
    browser.go(&at(node, "settings?filter=nothing-of-this-name"));
    enter_key(browser, &key);
    says(browser, "main", "No settings match");
    browser.fits();
    browser.fits_fingers();
    browser.is_accessible();
    press(browser, ".state", "clear-filter");
    shows(browser, "#settings-links");
    assert_eq!(browser.url(), at(node, "settings"));
    browser.go(&at(node, "apps?filter=nothing-of-this-name"));
    says(browser, "main", "No apps match");
    press(browser, ".toolbar", "clear-filter");
    says(browser, ".keys", "ops");
    // The field that was emptied has the focus, and its button is gone.
    assert_eq!(browser.value("document.activeElement.matches('.filter')"), json!(true));
    assert_eq!(browser.value("document.querySelector('.toolbar [data-action=clear-filter]').hidden"), json!(true));
    console.close();
}

#[test]
fn sections_of_settings_are_chosen() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "settings"));
    shows(browser, "#settings-links");
    // Sections begin folded, and name the settings that were changed.
    says(browser, "#settings-general summary", "Changed: ");
    says(browser, "#settings-links summary", "Links");
    says(browser, "#settings-links summary", "Default expiry, slugs, redirects");
    let open = || browser.value("['general', 'links'].map((name) => document.getElementById(`settings-${name}`).open)");
    assert_eq!(open(), json!([false, false]));
    let choose = "((choice) => { choice.value = 'settings-links'; choice.dispatchEvent(new Event('change')); })";
    browser.value(&format!("{choose}(document.querySelector('[data-action=section]'))"));
    // Below the bar that sticks to the top of the window.
    wait_until("the section", || {
        let top = browser.value("document.getElementById('settings-links').getBoundingClientRect().top");
        (40.0..120.0).contains(&top.as_f64().unwrap())
    });
    assert_eq!(open(), json!([false, true]));
    // An open section names its table of the file instead.
    says(browser, "#settings-links summary code", "links");
    assert_eq!(browser.value("document.querySelector('#settings-links .contents').checkVisibility()"), false);
    browser.value("document.querySelector('[data-action=unfold]').click()");
    assert_eq!(browser.value("document.querySelectorAll('.settings:not([open])').length"), json!(0));
    // A single section needs no choice.
    browser.go(&at(node, "settings?filter=block.hosts"));
    says(browser, "tbody", "block.hosts");
    assert_eq!(browser.value("document.querySelector('[data-action=section]')"), json!(null));
    console.close();
}

/// Script: by how many pixels the last card of one column of a link's page ends below that of the other.
const COLUMN_ENDS: &str = "(() => {
    const ends = [...document.querySelectorAll('.link-page > .stack')].map((one) => [...one.querySelectorAll('.card')].at(-1)?.getBoundingClientRect().bottom);
    return Math.round(Math.abs(ends[0] - ends[1]));
})()";

/// The shorter column once left a hole beside the other one.
#[test]
fn columns_of_a_link_end_together() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("plain", TARGET);
    browser.resize(SCREEN);
    browser.go(&at(node, "links/plain"));
    shows(browser, ".link-page #rules");
    wait_until("one end", || browser.value(COLUMN_ENDS) == json!(0));
    // Without rules, their card once took the height of a chart.
    let height = browser.value("document.querySelector('#rules').offsetHeight");
    assert!(height.as_f64().is_some_and(|pixels| pixels <= 120.0), "{height}");
    // What is as in any link is folded.
    let facts = || {
        browser.value("[...document.querySelectorAll('.link-page .facts dt')].filter((one) => one.checkVisibility()).map((one) => one.innerText)")
    };
    assert_eq!(facts(), json!(["Visits, all time", "Tags", "Created", "Expires", "Domain", "Redirect type"]));
    press(browser, ".link-page", "all-details");
    assert_eq!(facts().as_array().map(Vec::len), Some(11));
    wait_until("one end", || browser.value(COLUMN_ENDS) == json!(0));
    // Rules have the width of the page.
    let conditions = json!([{"type": "device", "matchKey": null, "matchValue": "android"}]);
    let rules = json!({"redirectRules": [{"longUrl": TARGET, "conditions": conditions}]}).to_string();
    let path = format!("{SHORT_URLS}/plain/redirect-rules");
    assert_eq!(node.wire().ask("POST", &path, JSON, rules.as_bytes()).status, 200);
    browser.go(&at(node, "links/plain"));
    shows(browser, ".link-page + #rules");
    wait_until("one end", || browser.value(COLUMN_ENDS) == json!(0));
    console.close();
}

#[test]
fn missing_links_are_named_by_their_slug() {
    let console = OpenConsole::open().expecting(&["status of 404"]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links/none"));
    says(browser, "main .state", "No link has the slug “none”.");
    browser.is_accessible();
    console.close();
}
