//! Pages of the console: the overview, saved filters and columns of the list, and what each role is offered.

use serde_json::json;

use crate::support::api_client::JSON;
use crate::support::browser::{Browser, ENTER, ESCAPE, PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, enter_key, lacks, press, says, shows, sign_in_elsewhere};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Setup, wait_until};
use crate::support::sessions::{SignedIn, more_keys, with_key};

#[test]
fn overview_says_that_all_is_well() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let code = node.wire().shorten(TARGET);
    browser.go(&at(node, ""));
    shows(browser, ".well[data-kind=good]");
    // The visits of the week and the newest links stand above the server, which has all numbers of this second.
    says(browser, ".week", &code);
    says(browser, ".server h2", "Server");
    let is_above = "document.querySelector('.week').getBoundingClientRect().bottom < document.querySelector('.server').getBoundingClientRect().top";
    assert_eq!(browser.value(is_above), json!(true));
    assert_eq!(browser.value("document.querySelectorAll('.tiles, .traffic, .latency').length"), json!(3));
    assert_eq!(
        browser.value("document.querySelectorAll(':not(.server *):is(.tiles, .traffic, .latency)').length"),
        json!(0)
    );
    // Charts are for those who run the node: they are folded as long as nothing happens, and then as they were left.
    lacks(browser, ".server-details[open]");
    browser.click(".server-details > summary");
    browser.go(&at(node, ""));
    shows(browser, ".server-details[open]");
    says(browser, ".traffic", "No requests in the last two minutes");
    // Visits of a day come from the node, the others from the stream.
    node.wire().ask("GET", &format!("/{code}"), "User-Agent: Mozilla/5.0 Firefox/132.0\r\n", b"");
    for span in ["day", "hour", "minutes"] {
        browser.click(&format!(".traffic [data-span={span}]"));
        shows(browser, ".traffic .plot-picture canvas");
        shows(browser, &format!(".traffic [data-span={span}][aria-pressed=true]"));
        browser.is_accessible();
    }
    // One core is the node itself, and counters that are zero take one line.
    let hidden = "[...document.querySelectorAll('main .card h2')].find((one) => one.textContent === 'Cores').closest('.card').hidden";
    assert_eq!(browser.value(hidden), json!(node.status()["cores"].as_array().unwrap().len() == 1));
    says(browser, ".zeros:not([hidden])", "No problems since start.");
    console.close();
}

/// Open, they once took half of the page.
#[test]
fn traffic_leaves_server_details_folded() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let code = node.wire().shorten(TARGET);
    node.wire().ask("GET", &format!("/{code}"), "User-Agent: Mozilla/5.0 Firefox/132.0\r\n", b"");
    let heard = || node.status()["pulse"]["redirects"].to_string().contains('1');
    wait_until("a redirect of the last two minutes", heard);
    for size in [SCREEN, PHONE] {
        browser.resize(size);
        browser.go(&at(node, ""));
        shows(browser, ".server-details:not([open])");
    }
    console.close();
}

#[test]
fn overview_creates_links_and_lists_them() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    says(browser, ".now-head", "Ready");
    // Without links, the list offers to create the first one.
    press(browser, ".week", "first-link");
    shows(browser, "dialog input[name=longUrl]");
    browser.press(ESCAPE);
    lacks(browser, "dialog");
    press(browser, ".page-head", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    browser.fill("dialog input[name=customSlug]", "fresh");
    press(browser, "dialog", "submit");
    shows(browser, "dialog .created");
    browser.press(ESCAPE);
    says(browser, ".week", "fresh");
    console.close();
}

/// Script: this week had 20 visits, the one before 10 up to the same hour, and today `window.today`.
const WITH_WEEKS: &str = "(() => {
    const [real, hour] = [window.fetch, 3600000];
    window.fetch = async (path, ...rest) => {
        const answer = await real(path, ...rest);
        if (!String(path).includes('/admin/api/usage')) return answer;
        const usage = await answer.json();
        const isBefore = new URL(path, location).searchParams.get('startDate') < new Date(Date.now() - 8 * 24 * hour).toISOString();
        const date = new Date(Math.floor(Date.now() / hour) * hour - (isBefore ? 9 : 2) * 24 * hour).toISOString();
        const row = { date, total: isBefore ? 10 : 20, bots: 0 };
        const today = { date: new Date().toISOString().slice(0, 10), total: isBefore ? 0 : window.today, bots: 0 };
        usage.visits = { ...usage.visits, summary: { total: row.total, nonBots: row.total, bots: 0 }, perDay: [{ ...row, date: date.slice(0, 10) }, today], perHour: [row] };
        return Response.json(usage);
    };
})()";

#[test]
fn overview_names_what_a_week_is_compared_with() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "fleet"));
    says(browser, "main", "Single node");
    browser.value(WITH_WEEKS);
    browser.value("window.today = 0");
    browser.click("#nav a[href='/admin/']");
    says(browser, ".hero", "20 visits");
    // The number stands beside its chart, which is the largest of the page.
    let heights = "[...document.querySelectorAll('.plot-picture')].map((one) => one.offsetHeight)";
    wait_until("all charts", || browser.value(heights).as_array().is_some_and(|all| all.len() > 3));
    assert_eq!(
        browser.value(&format!("Math.max(...{heights})")),
        browser.value("document.querySelector('.hero .plot-picture').offsetHeight")
    );
    says(browser, ".week", "+100%");
    says(browser, ".week", "vs. previous 7 days, same hour");
    says(browser, ".hero .plot-legend", "Previous period 10");
    // The legend names the pale bar of today once there is one, and repeats no number of the page.
    let legend = "document.querySelector('.hero .plot-legend').innerText";
    let visit_with = |today: u32| {
        browser.value(&format!("window.today = {today}"));
        browser.click("#nav a[href='/admin/fleet']");
        says(browser, "main", "Single node");
        browser.click("#nav a[href='/admin/']");
        says(browser, ".hero .facts", "People");
    };
    for (today, is_named) in [(0, false), (5, true)] {
        visit_with(today);
        says(browser, ".hero .facts", &format!("Today so far (UTC)\n{today}"));
        let said = browser.value(legend);
        let said = said.as_str().unwrap();
        assert_eq!((said.contains("Today so far"), said.contains("Total")), (is_named, false), "{said}");
    }
    // If all visits are of today, their number stands there once.
    visit_with(20);
    assert!(!browser.text(".hero .facts").contains("Today"));
    browser.is_accessible();
    console.close();
}

/// Script: whether the chart of a week compares today with the same hours of a day that had one visit in each.
const ENDS_AT_THE_HOUR: &str =
    "import(new URL('changes.js', document.querySelector('script[type=module]').src)).then(({ countsBefore }) => {
    const [hour, day] = [3600000, 86400000];
    const today = Math.floor(Date.now() / day) * day;
    const steps = Array.from({ length: 7 }, (_, at) => today - (6 - at) * day);
    const perHour = Array.from({ length: 7 * 24 }, (_, at) => ({ date: new Date(steps[0] - 7 * day + at * hour).toISOString(), total: 1 }));
    const [from, to] = [steps[0], today].map((at) => new Date(at).toISOString().slice(0, 10));
    const over = Math.floor((Date.now() - today) / hour);
    const counts = countsBefore(steps.map(() => 24), { perHour }, steps, { name: '7d', from, to, days: 7 });
    return counts.slice(0, 6).every((count) => count === 24) && counts[6] === (over > 0 ? over : null);
})";

#[test]
fn chart_of_a_week_ends_at_the_same_hour() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    assert_eq!(browser.value(ENDS_AT_THE_HOUR), json!(true));
    console.close();
}

/// Script: how far visits are compared in 7, 27 and 30 days that end today, and whether both periods, with one visit in
/// each hour, have the same number up to there.
const COMPARED: &str =
    "import(new URL('changes.js', document.querySelector('script[type=module]').src)).then(({ visitsOfBoth }) => {
    const [hour, day] = [3600000, 86400000];
    const today = Math.floor(Date.now() / day) * day;
    const over = Math.floor((Date.now() - today) / hour);
    const counts = (first, days, hoursOfLast) => ({
        summary: { total: (days - 1) * 24 + hoursOfLast, bots: 0 },
        perDay: Array.from({ length: days }, (_, at) => ({ date: new Date(first + at * day).toISOString().slice(0, 10), total: at === days - 1 ? hoursOfLast : 24, bots: 0 })),
        perHour: Array.from({ length: hoursOfLast }, (_, at) => ({ date: new Date(first + (days - 1) * day + at * hour).toISOString(), total: 1, bots: 0 })),
    });
    return [[7, 7], [27, 27], [30, 35]].map(([days, back]) => {
        const first = today - (days - 1) * day;
        const [from, to] = [first, today].map((at) => new Date(at).toISOString().slice(0, 10));
        const [now, before, extent] = visitsOfBoth(counts(first, days, over), counts(first - back * day, days, 24), { name: 'own', from, to, days });
        return [extent, now === before && now === (days - 1) * 24 + (extent === 'hour' ? over : 0)];
    });
})";

/// Ten hours of today were once compared with a whole day.
#[test]
fn running_days_are_compared_like_for_like() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    assert_eq!(browser.value(COMPARED), json!([["hour", true], ["hour", true], ["days", true]]));
    console.close();
}

#[test]
fn filters_and_columns_are_kept() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    for (code, tag) in [("one", "sale"), ("two", "news")] {
        let fields = json!({"longUrl": TARGET, "customSlug": code, "tags": [tag]});
        assert_eq!(node.wire().create(&fields).status, 200);
    }
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "2 links");
    lacks(browser, ".links-bar [data-action=saved]:not([hidden])");
    browser.go(&at(node, "links?tags=sale"));
    says(browser, ".list-status", "1 link");
    press(browser, ".links-bar", "saved");
    press(browser, ".menu", "save-filter");
    wait_until("a field for the name", || browser.value("document.activeElement.name") == "name");
    browser.press("Sales");
    browser.press(ENTER);
    lacks(browser, "dialog");
    press(browser, ".links-bar", "columns");
    // No link has an app, and all are active: these columns stay hidden, and cannot be chosen.
    let empty = "[...document.querySelectorAll('.menu .tick:has(small)')].map((one) => one.innerText.replace(/\\s+/g, ' ').trim())";
    assert_eq!(browser.value(empty), json!(["App No data", "State No data"]));
    let chosen = "document.querySelectorAll('.menu .tick:has(small) input:is(:enabled, :checked)').length";
    assert_eq!(browser.value(chosen), json!(0));
    browser.click(".menu [data-column=tags]");
    browser.is_accessible();
    browser.press(ESCAPE);
    lacks(browser, ".menu");
    // After a reload, both are there.
    browser.go(&at(node, "links"));
    says(browser, ".list-status", "2 links");
    assert_eq!(browser.value("document.querySelector('.links .cell-tags').offsetParent === null"), true);
    shows(browser, ".links .trend svg");
    press(browser, ".links-bar", "saved");
    press(browser, ".menu", "apply-saved");
    says(browser, ".list-status", "1 link");
    assert!(browser.url().ends_with("links?tags=sale"), "{}", browser.url());
    press(browser, ".links-bar", "saved");
    press(browser, ".menu", "remove-saved");
    says(browser, "#toasts", "Sales removed");
    browser.resize(PHONE);
    browser.fits();
    browser.fits_fingers();
    console.close();
}

#[test]
fn each_role_sees_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, _) = with_key(&setup);
    let [shop, audit] = more_keys(&setup, &node, [("shop", "write-own"), ("audit", "read-all")]);
    for (key, pages, may_write) in [
        (&shop, json!(["Links", "Tags", "Analytics", "Imports"]), true),
        (&audit, json!(["Links", "Tags", "Analytics"]), false),
    ] {
        let browser = Browser::open();
        // The first page is one that the key may open.
        browser.go(&at(&node, ""));
        enter_key(&browser, key);
        wait_until("the list", || browser.url() == at(&node, "links"));
        says(&browser, ".list-status", "0 links");
        let shown = "[...document.querySelectorAll('#nav a')].map((one) => one.textContent)";
        assert_eq!(browser.value(shown), pages);
        let new_link = "document.querySelector('main [data-action=new-link]') !== null";
        assert_eq!(browser.value(new_link), json!(may_write));
        browser.is_accessible();
        // Only admins get the names of the apps, so there would be nothing to choose.
        press(&browser, ".links-bar", "filters");
        let labels = "[...document.querySelectorAll('.filters .field')].filter((one) => one.checkVisibility()).map((one) => one.querySelector('label').textContent)";
        let labels = browser.value(labels);
        let has = |name: &str| labels.as_array().unwrap().iter().any(|label| label == name);
        assert!(has("Domain"), "{labels}");
        assert!(!has("App"), "{labels}");
        browser.go(&at(&node, "usage"));
        shows(&browser, "main :is(.breakdowns, .usage-none)");
        browser.go(&at(&node, "settings"));
        says(&browser, "main", "This page needs a key with the role admin");
        browser.close();
    }
    node.terminate();
}

#[test]
fn refused_pages_lead_on() {
    let (console, ops, [audit]) = console_for_keys([("audit", "read-all")]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    enter_key(browser, &audit);
    says(browser, ".list-status", "0 links");
    // An import takes any key that may create links.
    browser.go(&at(node, "import"));
    says(browser, "main", "This page needs a key that may create links");
    press(browser, "main", "back");
    says(browser, ".list-status", "0 links");
    browser.go(&at(node, "settings"));
    says(browser, "main", "This page needs a key with the role admin");
    browser.resize(PHONE);
    browser.fits();
    browser.fits_fingers();
    browser.is_accessible();
    // Another key continues with the page that was refused.
    press(browser, "main", "other-key");
    wait_until("the sign-in page", || browser.title().starts_with("Sign in - "));
    enter_key(browser, &ops);
    shows(browser, "main .settings");
    console.close();
}

/// Another page of the browser signs in with another key, and this one gets the focus again.
fn change_key(browser: &Browser, key: &str) {
    sign_in_elsewhere(browser, key);
    browser.value("window.dispatchEvent(new Event('focus'))");
}

/// Opens a console at which several keys sign in. The live status ends with the session of its key, and the next key may not
/// read it.
fn console_for_keys<const N: usize>(apps: [(&str, &str); N]) -> (OpenConsole, String, [String; N]) {
    let (console, key, keys) = OpenConsole::with_keys(apps);
    let complaints = ["status of 401", "status of 403", "ERR_INCOMPLETE_CHUNKED_ENCODING"];
    (console.expecting(&complaints), key, keys)
}

#[test]
fn navigation_follows_the_key() {
    let (console, ops, [audit]) = console_for_keys([("audit", "read-all")]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    enter_key(browser, &audit);
    says(browser, ".list-status", "0 links");
    let pages = || browser.value("document.querySelectorAll('#nav a').length");
    let shows_status = "document.querySelector('#live').checkVisibility()";
    assert_eq!((pages(), browser.value(shows_status)), (json!(3), json!(false)));
    change_key(browser, &ops);
    wait_until("all pages", || pages() == 10);
    says(browser, "#nav [aria-current]", "Links");
    // The list now offers what the key may do.
    shows(browser, "main [data-action=new-link]");
    says(browser, "#account", "ops");
    wait_until("the live status", || browser.value("document.querySelector('#live').dataset.state") == "live");
    browser.click("#nav a[href='/admin/settings']");
    shows(browser, "main .settings");
    change_key(browser, &audit);
    wait_until("three pages", || pages() == 3);
    says(browser, "main", "This page needs a key with the role admin");
    assert_eq!(browser.value(shows_status), json!(false));
    // A page that was refused is drawn once the key may open it.
    change_key(browser, &ops);
    shows(browser, "main .settings");
    browser.is_accessible();
    console.close();
}

#[test]
fn advice_is_for_keys_that_may_follow_it() {
    let (console, ops, [audit]) = console_for_keys([("audit", "read-all")]);
    let OpenConsole { node, browser, .. } = &console;
    let mut boss = SignedIn::new(node, &ops);
    let code = boss.create(&json!({"longUrl": TARGET}));
    let archived = boss.send("PATCH", &format!("{SHORT_URLS}/{code}"), JSON, r#"{"archived": true}"#);
    assert_eq!(archived.status, 200, "{archived:?}");
    browser.go(&at(node, &format!("links/{code}")));
    enter_key(browser, &audit);
    says(browser, "[data-obstacle]", "so visitors get 410.");
    assert_eq!(browser.value("document.querySelector('[data-obstacle]').innerText.includes('Restore')"), json!(false));
    console.close();
}

#[test]
fn open_dialogs_outlive_another_key() {
    let (console, ops, [audit]) = console_for_keys([("audit", "read-all")]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    enter_key(browser, &ops);
    says(browser, ".list-status", "0 links");
    press(browser, "main", "new-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    change_key(browser, &audit);
    wait_until("three pages", || browser.value("document.querySelectorAll('#nav a').length") == 3);
    assert_eq!(browser.value("document.querySelector('dialog input[name=longUrl]').value"), json!(TARGET));
    let may_write = || browser.value("document.querySelector('main [data-action=new-link]') !== null") == true;
    assert!(may_write(), "the page below the dialog was drawn again");
    press(browser, "dialog", "cancel");
    wait_until("a page for the new key", || !may_write());
    says(browser, ".list-status", "0 links");
    console.close();
}

/// Script: the next request for links gets 401, as if another page had ended its session while it was under way. `lateThen` is its
/// path, then the status of the next request for the same.
const ONE_IS_LATE: &str = "(() => {
    const real = window.fetch;
    window.lateThen = [];
    window.fetch = async (path, ...rest) => {
        if (!String(path).startsWith('/rest/v3/short-urls')) return real(path, ...rest);
        if (window.lateThen.length === 0) {
            window.lateThen.push(String(path));
            return new Response('', { status: 401 });
        }
        const response = await real(path, ...rest);
        if (window.lateThen[0] === String(path)) window.lateThen.push(response.status);
        return response;
    };
})()";

#[test]
fn request_before_a_sign_in_is_sent_again() {
    let (console, key) = OpenConsole::with_key();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links"));
    enter_key(browser, &key);
    says(browser, ".list-status", "0 links");
    browser.value(ONE_IS_LATE);
    browser.fill(".links-bar input[type=search]", "x");
    // If the page is left for that of the sign-in, this is gone.
    wait_until("the second try of a late request", || browser.value("window.lateThen?.[1]") == 200);
    lacks(browser, "dialog[open]");
    console.close();
}

#[test]
fn list_follows_the_app_of_the_key() {
    let (console, _, [shop, news]) = console_for_keys([("shop", "write-own"), ("news", "write-own")]);
    let OpenConsole { node, browser, .. } = &console;
    SignedIn::new(node, &shop).create(&json!({"longUrl": TARGET}));
    browser.go(&at(node, "links"));
    enter_key(browser, &shop);
    says(browser, ".list-status", "1 link");
    change_key(browser, &news);
    says(browser, ".list-status", "0 links");
    says(browser, "#account", "news");
    console.close();
}
