//! Visits in the console: the list of single visits, and the breakdowns of an answer with statistics.

use serde_json::json;

use crate::support::browser::{PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, lacks, press, says, shows};
use crate::support::http::Wire;
use crate::support::node::{Setup, wait_until};
use crate::support::visits::{BOT, FIREFOX, counted, follow, logging};

/// Script: true if the list of visits has referrers, and each takes one line.
const REFERRERS_ARE_ON_ONE_LINE: &str = "(() => {
    const all = [...document.querySelectorAll('.visits td.clip.short > *')];
    return all.length > 0 && all.every((one) => one.getBoundingClientRect().height < 30);
})()";

/// Script: the titles of the columns of the list of visits, then whether its first time is like "1 Dec, 03:59".
const COLUMNS_AND_TIME: &str = "[
    ...[...document.querySelectorAll('.visits thead th')].map((one) => one.textContent),
    /^\\d{1,2} [A-Z][a-z]+, \\d\\d:\\d\\d$/.test(document.querySelector('.visits tbody time').textContent),
]";

/// Ten rows once had the same destination and the same zone.
#[test]
fn single_visits_do_not_repeat_themselves() {
    let console = OpenConsole::with(|dir| logging(dir).start());
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("seen", TARGET);
    (0..2).for_each(|_| follow(&mut wire, "/seen", FIREFOX));
    let listed = || node.wire().get("/rest/v3/visits/non-orphan").json()["visits"]["pagination"]["totalItems"].clone();
    wait_until("two visits", || listed() == json!(2));
    browser.live_in("UTC");
    browser.go(&at(node, "links/seen"));
    says(browser, ".visits", "Firefox, Linux");
    assert_eq!(browser.value(COLUMNS_AND_TIME), json!(["Time (UTC)", "Browser", "Referrer", true]));
    browser.go(&at(node, "usage"));
    says(browser, ".visits", "Firefox, Linux");
    assert_eq!(browser.value(COLUMNS_AND_TIME), json!(["Time (UTC)", "Link", "Browser", "Referrer", true]));
    console.close();
}

#[test]
fn single_visits_are_listed_page_by_page() {
    let console = OpenConsole::with(|dir| logging(dir).start());
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("seen", TARGET);
    follow(&mut wire, "/seen", &format!("{BOT}Referer: https://news.example/a\r\n"));
    (0..11).for_each(|_| follow(&mut wire, "/seen", FIREFOX));
    let listed =
        |wire: &mut Wire| wire.get("/rest/v3/visits/non-orphan").json()["visits"]["pagination"]["totalItems"].clone();
    wait_until("twelve visits", || listed(&mut wire) == json!(12));
    for page in ["links/seen", "usage"] {
        browser.go(&at(node, page));
        says(browser, ".visits", "Firefox, Linux");
        says(browser, ".visits .pager", "1 to 10 of 12");
        press(browser, ".visits", "older");
        says(browser, ".visits .pager", "11 to 12 of 12");
        says(browser, ".visits", "news.example");
        says(browser, ".visits .badge", "Bot");
        for size in [PHONE, SCREEN] {
            browser.resize(size);
            browser.fits();
            assert_eq!(browser.value(REFERRERS_ARE_ON_ONE_LINE), json!(true), "{page} {size:?}");
        }
        press(browser, ".visits", "newer");
        says(browser, ".visits .pager", "1 to 10 of 12");
    }
    console.close();
}

#[test]
fn empty_log_says_how_to_turn_it_on() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("seen", TARGET);
    browser.go(&at(node, "links/seen"));
    // A link without visits has one card about them, which offers the next step.
    says(browser, ".link-unvisited", "No visits yet");
    says(browser, ".link-unvisited", "visits.log");
    shows(browser, ".link-unvisited [data-action=copy]");
    let others = "main :is(.period, .tiles, .visits-chart, .breakdowns, .visits)";
    let seen = format!("[...document.querySelectorAll('{others}')].filter((one) => one.checkVisibility()).length");
    assert_eq!(browser.value(&seen), json!(0));
    assert_eq!(browser.value("document.querySelector('main').innerText.includes('All-time referrers')"), json!(false));
    browser.fits_everywhere_by_finger();
    follow(&mut node.wire(), "/seen", FIREFOX);
    wait_until("a visit", || counted(node, "seen") == 1);
    browser.go(&at(node, "links/seen"));
    says(browser, ".breakdowns", "visits.log");
    // Referrers of all time need no log.
    says(browser, "main", "All-time referrers");
    // The list of single visits does not say it once more.
    lacks(browser, ".visits:not([hidden])");
    lacks(browser, ".link-unvisited");
    console.close();
}

/// Script: answers each request of the page whose path has one of these parts, until it calls `restore()`. `answer` is a
/// promise.
fn intercept(parts: &[&str], answer: &str) -> String {
    let parts = json!(parts);
    format!(
        "(() => {{
            const real = window.fetch;
            window.restore = () => {{ window.fetch = real; }};
            window.fetch = (path, ...rest) => ({parts}.some((part) => String(path).includes(part)) ? {answer} : real(path, ...rest));
        }})()"
    )
}

#[test]
fn charts_do_not_wait_for_the_visit_log() {
    let console = OpenConsole::with(|dir| Setup::new(dir).env("CAROM_VISITS_LOG", "on").start());
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    wire.shorten_as("seen", TARGET);
    assert_eq!(wire.ask("GET", "/seen", FIREFOX, b"").status, 302);
    wait_until("a visit", || counted(node, "seen") == 1);
    browser.resize(SCREEN);
    let open_with = |parts: &[&str], answer: &str| {
        browser.go(&at(node, "links"));
        says(browser, "tbody", "seen");
        browser.value(&intercept(parts, answer));
        browser.value("document.querySelector('tbody .short-url a').click()");
    };
    open_with(&["/visits/stats", "/short-urls/seen/visits"], "new Promise(() => {})");
    shows(browser, ".visits-chart");
    shows(browser, ".visits .loading");
    // Without the counts, the page has everything else, and asks for them once more on request.
    let refused = "Promise.resolve(Response.json({ title: 'Busy', detail: 'Come back later.' }, { status: 503 }))";
    open_with(&["/admin/api/visits/"], refused);
    says(browser, ".visit-counts", "Come back later.");
    says(browser, ".destination", TARGET);
    says(browser, ".visits", "Firefox, Linux");
    browser.value("window.restore()");
    press(browser, ".visit-counts", "retry");
    shows(browser, ".visits-chart");
    console.close();
}

/// Script: shows the breakdowns of an answer in place of the page.
fn with_answer(stats: &serde_json::Value) -> String {
    let stats = json!({ "visitStats": stats });
    format!(
        "(async () => {{
            const real = window.fetch;
            window.fetch = (path, ...rest) => (String(path).startsWith('/rest/v3/visits/stats') ? Promise.resolve(Response.json({stats})) : real(path, ...rest));
            const {{ breakdowns }} = await import(new URL('breakdowns.js', document.querySelector('script[type=module]').src));
            const groups = ['places', 'technology', 'languages', 'campaigns', 'destinations'];
            const one = breakdowns({{ query: () => ({{}}), groups, signal: new AbortController().signal }});
            document.querySelector('main').replaceChildren(document.querySelector('.page-head'), one.element);
            await one.load();
            return document.querySelector('.breakdowns').innerText;
        }})()"
    )
}

#[test]
fn breakdowns_show_shares() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "usage"));
    shows(browser, ".usage-none");
    let entry = |value: &str, visits: u32| json!({"value": value, "visits": visits});
    let stats = json!({
        "enabled": true, "total": 200, "bots": 4, "complete": false, "since": "2026-09-01T00:00:00+00:00",
        "countries": [{"value": "DE", "label": "Germany", "visits": 150}, entry("", 50)],
        "cities": [{"value": "Berlin", "country": "DE", "visits": 100}],
        "browsers": [entry("Firefox", 120), entry("<b>Evil</b>", 80)], "operatingSystems": [], "devices": [entry("mobile", 200)],
        "languages": [entry("de", 199), entry("not a language!", 1)], "referrers": [], "destinations": [entry(TARGET, 200)],
        "utmSources": [entry("", 200)], "utmMediums": [], "utmCampaigns": [], "utmTerms": [], "utmContents": [],
    });
    let text = browser.value(&with_answer(&stats));
    let text = text.as_str().unwrap();
    for part in
        ["Germany", "75%", "Unknown", "Mobile", "100%", "German", "not a language!", TARGET, "incomplete", "utm_source"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // The heading of each column says what the names are.
    let heading = |card: &str| browser.value(&format!("document.querySelector('#card-{card} th').innerText"));
    assert_eq!([heading("places"), heading("languages")], ["Country", "Language"]);
    browser.value("document.querySelector('[data-part=browsers]').click()");
    says(browser, ".breakdowns", "<b>Evil</b>");
    browser.value("document.querySelector('[data-part=cities]').click()");
    says(browser, ".breakdowns", "Berlin, Germany");
    browser.fits_everywhere(|_| {});
    let off = json!({"enabled": false, "total": 0, "bots": 0, "complete": true, "since": null});
    let text = browser.value(&with_answer(&off));
    assert!(text.as_str().unwrap().contains("visits.log"), "{text}");
    console.close();
}

/// Visits without a campaign once had no bar, so most visits looked like none. They stand last.
#[test]
fn bars_are_as_long_as_their_share() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "usage"));
    shows(browser, ".usage-none");
    let mut stats = json!({
        "enabled": true, "total": 250, "bots": 0, "complete": true, "since": "2026-09-01T00:00:00+00:00",
        "countries": [], "cities": [], "browsers": [], "operatingSystems": [], "devices": [], "languages": [], "referrers": [],
        "destinations": [], "utmSources": [], "utmMediums": [], "utmTerms": [], "utmContents": [],
        "utmCampaigns": [{"value": "", "visits": 150}, {"value": "spring", "visits": 80}, {"value": "autumn", "visits": 20}],
    });
    browser.value(&with_answer(&stats));
    says(browser, "#card-campaigns", "Not set");
    let bars = "[...document.querySelectorAll('#card-campaigns .share > i')].map((bar) => bar.style.width)";
    assert_eq!(browser.value(bars), json!(["32%", "8%", "60%"]));
    let last = "document.querySelector('#card-campaigns tbody tr:last-child td').innerText.trim()";
    assert_eq!(browser.value(last), "Not set");
    // It stays in sight below many others, which alone are counted.
    let many = (0..9).map(|at| json!({"value": format!("campaign-{at}"), "visits": 10}));
    stats["utmCampaigns"] = many.chain([json!({"value": "", "visits": 150})]).collect();
    browser.value(&with_answer(&stats));
    says(browser, "#card-campaigns", "Show all 9");
    assert_eq!(browser.value(last), "Not set");
    press(browser, "#card-campaigns", "all-rows");
    says(browser, "#card-campaigns", "campaign-8");
    assert_eq!(browser.value(last), "Not set");
    console.close();
}

/// A long name once ended in the middle of a word, like a whole one.
#[test]
fn cut_names_of_clients_end_with_an_ellipsis() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, ""));
    shows(browser, "main h1");
    let script = "import(new URL('user-agents.js', document.querySelector('script[type=module]').src)).then(({ agentName }) => [
        'Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0', 'Mozilla/5.0 (compatible; Robot/2.1; +https://example.org/)',
        'fetcher/1.2', 'a program without a version in its name',
    ].map(agentName))";
    let names = ["Firefox, Linux", "Robot", "fetcher", "a program without a version i…"];
    assert_eq!(browser.value(script), json!(names));
    console.close();
}
