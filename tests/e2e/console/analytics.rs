//! Analytics in the console, of one link and of all: periods and comparisons, filters, files, and the way to an answer.

use serde_json::json;

use crate::support::browser::{Browser, CONTROL, ENTER, PHONE, SCREEN};
use crate::support::console::{OpenConsole, TARGET, at, lacks, press, press_in_menu, says, shows, visited_node};
use crate::support::node::wait_until;
use crate::support::visits::{FIREFOX, counted, follow};

/// Script: from now on, the link `seen` has two visits on each of the last 30 days, and one on each of the 35 before. It is
/// `window.age` days old.
const WITH_COUNTS: &str = "(() => {
    const real = window.fetch;
    const day = 86400000;
    window.age = 66;
    window.fetch = async (path, ...rest) => {
        const url = new URL(path, location.href);
        if (url.pathname === '/rest/v3/short-urls/seen') {
            const link = await (await real(path, ...rest)).json();
            return Response.json({ ...link, dateCreated: new Date(Date.now() - window.age * day).toISOString() });
        }
        if (url.pathname !== '/admin/api/visits/seen') return real(path, ...rest);
        const [from, to] = ['startDate', 'endDate'].map((name) => Date.parse(url.searchParams.get(name) ?? ''));
        const all = Array.from({ length: 65 }, (_, at) => ({ at: Date.now() - (64 - at) * day, total: at < 35 ? 1 : 2 }));
        const dated = all.map(({ at, total }) => ({ date: new Date(at).toISOString().slice(0, 10), total, nonBots: total, bots: 0 }));
        const perDay = dated.filter(({ date }) => !(Date.parse(date) + day <= from) && !(Date.parse(date) > to));
        const total = perDay.reduce((sum, one) => sum + one.total, 0);
        return Response.json({ visits: { summary: { total, nonBots: total, bots: 0 }, perDay, perHour: [], referrers: [] }, sources: null });
    };
})()";

/// Script: keeps the files that the page saves, instead of saving them.
const KEEP_FILES: &str = "(() => {
    window.files = [];
    const real = URL.createObjectURL;
    URL.createObjectURL = (blob) => { window.files.push(blob); return real.call(URL, blob); };
    document.addEventListener('click', (event) => event.target.closest('a[download]') && event.preventDefault(), true);
})()";

/// Waits for a file that the page saves as `number`, and returns its lines.
fn saved(browser: &Browser, number: usize) -> Vec<String> {
    wait_until("a file", || browser.value("window.files.length") == json!(number));
    let text = browser.value("window.files.at(-1).text()");
    text.as_str().unwrap().lines().map(str::to_owned).collect()
}

/// Script: how many pixels are free at the end of each row of cards, where it is more than none. After a
/// resize, browsers do not lay out folded content, so its rows keep their former width.
const GAPS: &str =
    "[...document.querySelectorAll('main .cards')].filter((all) => all.checkVisibility()).flatMap((all) => {
    const { right } = all.getBoundingClientRect();
    const boxes = [...all.children].map((one) => one.getBoundingClientRect());
    const ends = boxes.filter((box) => !boxes.some((other) => other.top === box.top && other.left > box.left));
    return ends.map((end) => Math.round(right - end.right)).filter((gap) => gap !== 0);
})";

/// Script: which groups of tabs and which choices of a period take more than one line.
const BROKEN_LINES: &str = "document.fonts.ready.then(() => [...document.querySelectorAll('main .segments, main .period')]
    .filter((all) => [...all.children].filter((one) => one.checkVisibility()).some((one, _, [first]) => Math.abs(one.offsetTop - first.offsetTop) > 4))
    .map((one) => one.innerText))";

#[test]
fn tabs_and_periods_take_one_line() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    for page in ["usage", "links/seen"] {
        browser.resize(SCREEN);
        browser.go(&at(node, page));
        shows(browser, "#card-campaigns [data-part=utmContents]");
        assert_eq!(browser.value(BROKEN_LINES), json!([]), "{page}");
        browser.resize(PHONE);
        let tabs = BROKEN_LINES.replace(", main .period", "");
        assert_eq!(browser.value(&tabs), json!([]), "{page} on a phone");
    }
    console.close();
}

#[test]
fn cards_fill_their_rows() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    for page in ["usage", "links/seen", ""] {
        browser.go(&at(node, page));
        shows(browser, "main .cards .card");
        wait_until("all of the page", || {
            browser.value("document.querySelector('main .loading, main [aria-busy=true]') === null") == true
        });
        browser
            .value("document.querySelectorAll('main .server-details').forEach((details) => { details.open = true; })");
        for size in [PHONE, (900, 860), SCREEN, (1_480, 860), (1_900, 860)] {
            browser.resize(size);
            assert_eq!(browser.value(GAPS), json!([]), "{page} in {size:?}");
        }
    }
    console.close();
}

/// Script: by how many pixels the cards of a column are higher than what is in them, where it is more than their padding.
const EMPTY_ENDS: &str = "[...document.querySelectorAll('main .cards > .stack > .card')]
    .map((card) => Math.round(card.getBoundingClientRect().bottom - card.lastElementChild.getBoundingClientRect().bottom))
    .filter((pixels) => pixels > 20)";

/// Cards beside each other once had one height, so a short list left a hole below it.
#[test]
fn cards_end_where_their_content_does() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    for page in ["usage", "links/seen"] {
        browser.go(&at(node, page));
        shows(browser, ".breakdowns .cards > .stack:nth-child(2) > .card");
        assert_eq!(browser.value(EMPTY_ENDS), json!([]), "{page}");
    }
    console.close();
}

/// Analytics once showed eight cards that said the same.
#[test]
fn empty_analytics_is_one_state() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "usage"));
    says(browser, ".usage-none", "No visits yet");
    assert_eq!(browser.value("document.querySelectorAll('main .card, main .tiles').length"), json!(1));
    browser.fits_everywhere_by_finger();
    press(browser, ".usage-none", "first-link");
    browser.fill("dialog input[name=longUrl]", TARGET);
    press(browser, "dialog", "submit");
    shows(browser, "dialog .created");
    // The new link is in the numbers at once.
    says(browser, ".usage-none", "No visits in this period");
    shows(browser, "main > .stack > .tiles");
    console.close();
}

/// Script: the first and the last day of the month before this one, in UTC.
const LAST_MONTH: &str = "(() => {
    const [now, day] = [new Date(), (ms) => new Date(ms).toISOString().slice(0, 10)];
    return [Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1), Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 0)].map(day);
})()";

/// Script: the number of visible choices of a period, and those whose names are wider than their buttons.
const CUT_PERIODS: &str = "document.fonts.ready.then(() => {
    const all = [...document.querySelectorAll('[data-period]')].filter((one) => one.checkVisibility());
    return [all.length, all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)];
})";

#[test]
fn last_month_is_a_period() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    let days = "[...document.querySelectorAll('.period input[type=date]')].map((one) => one.value)";
    for size in [PHONE, SCREEN] {
        browser.resize(size);
        browser.go(&at(node, "usage"));
        shows(browser, ".period");
        // All six choices are there, and none of their names is cut. A phone has a list in their place.
        let buttons = if size == PHONE { 0 } else { 6 };
        assert_eq!(browser.value(CUT_PERIODS), json!([buttons, []]), "{size:?}");
        if size == PHONE {
            browser.choose("[data-action=period]", "month");
        } else {
            browser.click("[data-period=month]");
        }
        shows(browser, "[data-period=month][aria-pressed=true]");
        assert_eq!(browser.value(days), browser.value(LAST_MONTH), "{size:?}");
        // The address has the period, and the file its days.
        assert!(browser.url().ends_with("usage?period=month"), "{}", browser.url());
        browser.fits();
        browser.is_accessible();
    }
    console.close();
}

#[test]
fn visits_of_a_link_are_compared() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("seen", TARGET);
    browser.go(&at(node, "links"));
    shows(browser, "tbody .short-url a");
    browser.value(WITH_COUNTS);
    browser.value("document.querySelector('tbody .short-url a').click()");
    says(browser, ".tiles", "60");
    // The change and the dashed line are of the same 30 days, whose weekends lie below these.
    says(browser, ".tiles", "+100%");
    // Today is not over, and the day it would be compared with has no hours any more: both are left out.
    says(browser, ".visits-chart .plot-legend", "Same 30 days, 5 weeks earlier 29");
    says(browser, ".visit-counts .compared", "vs. same 30 days, 5 weeks earlier, without today");
    shows(browser, "[data-period='30d'][aria-pressed=true]");
    browser.fits_everywhere_by_finger();
    // Nothing was before the first visit.
    browser.click("[data-period='all']");
    says(browser, ".tiles", "95");
    wait_until("no comparison", || {
        browser.value("!document.querySelector('.visits-chart').innerText.includes('earlier')") == true
    });
    assert!(browser.url().ends_with("links/seen?period=all"), "{}", browser.url());
    // Days of one's own.
    let choose = "(() => {
        const day = (back) => new Date(Date.now() - back * 86400000).toISOString().slice(0, 10);
        const inputs = document.querySelectorAll('.period input[type=date]');
        [inputs[0].value, inputs[1].value] = [day(39), day(30)];
    })()";
    press(browser, ".period", "days");
    shows(browser, ".days:popover-open");
    browser.value(choose);
    press(browser, ".period .days", "apply-days");
    lacks(browser, ".days:popover-open");
    says(browser, ".tiles", "10");
    says(browser, ".tiles", "0%");
    assert!(browser.url().contains("links/seen?from="), "{}", browser.url());
    // A step back, and a reload, show what the address says.
    browser.value("history.back()");
    shows(browser, "[data-period='all'][aria-pressed=true]");
    says(browser, ".tiles", "95");
    follow(&mut node.wire(), "/seen", FIREFOX);
    wait_until("a visit", || counted(node, "seen") == 1);
    browser.go(&at(node, "links/seen?period=7d"));
    shows(browser, "[data-period='7d'][aria-pressed=true]");
    // Days have one form, whatever the language of the browser.
    browser.go(&at(node, "links/seen?from=2025-11-02&to=2025-12-01"));
    says(browser, ".visits-chart", "No visits in this period");
    says(browser, ".period [data-action=days]", "2 Nov – 1 Dec 2025");
    console.close();
}

/// The change of a young link once counted days before its creation.
#[test]
fn young_links_are_compared_with_nothing() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("seen", TARGET);
    browser.go(&at(node, "links"));
    shows(browser, "tbody .short-url a");
    browser.value(WITH_COUNTS);
    browser.value("window.age = 45");
    browser.value("document.querySelector('tbody .short-url a').click()");
    says(browser, ".tiles", "60");
    assert_eq!(browser.value("document.querySelector('.tiles').innerText.includes('+')"), json!(false));
    let legend = "document.querySelector('.visits-chart .plot-legend').innerText.includes('earlier')";
    assert_eq!(browser.value(legend), json!(false));
    // Two periods of seven days fit into its life.
    browser.click("[data-period='7d']");
    says(browser, ".visits-chart .plot-legend", "Previous period");
    console.close();
}

#[test]
fn visits_of_a_link_are_saved_as_files() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "links/seen"));
    says(browser, ".breakdowns", "spring");
    // One card has the referrers of the period and those of all time.
    says(browser, "#card-sources [aria-pressed=true]", "This period");
    browser.value("document.querySelector('#card-sources [data-part=allReferrers]').click()");
    lacks(browser, "#card-sources th:nth-child(3)");
    let titles = "[...document.querySelectorAll('main h2')].filter((one) => one.checkVisibility() && one.textContent.includes('eferrers')).length";
    assert_eq!(browser.value(titles), json!(1));
    // All visits went to the destination above.
    lacks(browser, "#card-destinations");
    browser.value(KEEP_FILES);
    press_in_menu(browser, "export-counts");
    let lines = saved(browser, 1);
    assert_eq!(lines[0], "kind,name,visits,bots");
    assert!(lines[1].starts_with("day,20"), "{lines:?}");
    assert!(lines[1].ends_with(",4,0"), "{lines:?}");
    for line in ["utmCampaign,spring,2,", "utmCampaign,autumn,1,", "browser,Firefox,4,"] {
        assert!(lines.iter().any(|one| one == line), "{line} is missing: {lines:?}");
    }
    press_in_menu(browser, "export-single");
    let lines = saved(browser, 2);
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[0].starts_with("date,visitedUrl,redirectUrl,referrer,country,"), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains(",spring,")).count(), 2, "{lines:?}");
    says(browser, "#toasts", "4 visits exported");
    // A filter narrows what is saved, too.
    browser.value("document.querySelector('#card-campaigns [data-action=filter-by]').click()");
    says(browser, ".chips", "Campaign: spring");
    // The chart and the numbers are those of the filter, too.
    says(browser, ".visits-chart", "Visits that match all filters");
    wait_until("two visits", || browser.value("document.querySelector('.tiles dd').innerText") == json!("2"));
    says(browser, ".visits .region", "Firefox");
    press_in_menu(browser, "export-single");
    assert_eq!(saved(browser, 3).len(), 3);
    assert!(browser.url().contains("utmCampaign=spring"), "{}", browser.url());
    browser.fits_everywhere_by_finger();
    press(browser, ".chips", "without-utmCampaign");
    says(browser, ".breakdowns", "autumn");
    console.close();
}

#[test]
fn single_visits_need_a_log() {
    let console = OpenConsole::open().expecting(&["/tags/news/visits"]);
    let OpenConsole { node, browser, .. } = &console;
    node.wire().shorten_as("seen", TARGET);
    browser.go(&at(node, "links/seen"));
    says(browser, ".link-unvisited", "visits.log");
    press(browser, "main", "link-menu");
    shows(browser, ".menu [data-action=export-counts]");
    assert_eq!(browser.value("document.querySelector('.menu [data-action=export-single]')"), json!(null));
    // A filter by its address is no dead end.
    browser.go(&at(node, "usage?tag=news"));
    says(browser, ".breakdowns", "visits.log");
    says(browser, "main", "View all links of this tag");
    press(browser, ".chips", "without-tag");
    // Without visits, one state stands in place of all cards about them.
    says(browser, ".usage-none", "visits.log");
    lacks(browser, ".visits-chart, .breakdowns, main .card.visits");
    console.close();
}

/// Script: true if the chips of filters are between the period and the lower edge of the window.
const CHIPS_ARE_IN_SIGHT: &str = "(() => {
    const [chips, period] = ['.chips', '.period'].map((name) => document.querySelector(name).getBoundingClientRect());
    return chips.top >= period.bottom && chips.bottom <= innerHeight;
})()";

#[test]
fn rows_of_analytics_are_filters() {
    let console = OpenConsole::with(visited_node).expecting(&["/tags/other/visits"]);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "usage?period=7d"));
    says(browser, "#card-campaigns", "spring");
    browser.value("(() => { const row = document.querySelector('#card-campaigns [data-action=filter-by]'); row.scrollIntoView(); row.click(); })()");
    says(browser, ".chips", "Campaign: spring");
    wait_until("the filter in sight", || browser.value(CHIPS_ARE_IN_SIGHT) == true);
    shows(browser, ".visits td > [title$='utm_campaign=spring'] > a[href='/admin/links/seen']");
    wait_until("two visits", || browser.value("document.querySelector('.tiles dd').innerText") == json!("2"));
    // The days, links and referrers are those of the filter, and a link keeps it.
    shows(browser, ".visits-chart .plot-picture");
    shows(browser, "#card-referrers");
    says(browser, "#card-links", "seen");
    shows(browser, "#card-links a[href*='links/seen?period=7d&utmCampaign=spring']");
    // Filters add up, and stay in the address.
    browser.value("document.querySelector('[data-part=browsers]').click()");
    browser.value("document.querySelector('#card-technology [data-action=filter-by]').click()");
    says(browser, ".chips", "Browser: Firefox");
    for part in ["period=7d", "utmCampaign=spring", "browser=Firefox"] {
        assert!(browser.url().contains(part), "{part} is missing: {}", browser.url());
    }
    browser.go(&browser.url());
    says(browser, ".chips", "Browser: Firefox");
    says(browser, ".breakdowns", "spring");
    browser.fits_everywhere_by_finger();
    press(browser, ".chips", "without-browser");
    press(browser, ".chips", "without-utmCampaign");
    wait_until("no chips", || browser.value("document.querySelector('.chips').hidden") == true);
    // A domain, by its name; what is selected by a tag has no other visits.
    shows(browser, "#card-links [data-tab=domains]");
    browser.click("#card-links [data-tab=domains]");
    shows(browser, "a[data-action=filter-by][href*='domain=DEFAULT']");
    browser.value("document.querySelector('a[data-action=filter-by][href*=\"domain=DEFAULT\"]').click()");
    says(browser, ".chips", "Domain: Default domain");
    press(browser, ".chips", "without-domain");
    shows(browser, "#card-links [data-tab=tags]");
    browser.click("#card-links [data-tab=tags]");
    shows(browser, "a[data-action=filter-by][href*='tag=news']");
    browser.value("document.querySelector('a[data-action=filter-by][href*=\"tag=news\"]').click()");
    says(browser, ".chips", "Tag: news");
    wait_until("all visits of the tag", || {
        browser.value("document.querySelector('.tiles dd').innerText") == json!("4")
    });
    browser.go(&at(node, "usage?tag=other"));
    says(browser, ".breakdowns", "No visits match all filters");
    console.close();
}

/// Script: the labels of the tiles.
const TILES: &str = "[...document.querySelectorAll('.tile dt')].map((one) => one.textContent)";

/// Script: the texts of the cells of a row without an app.
const WITHOUT_AN_APP: &str = "(() => {
    const row = [...document.querySelectorAll('#card-links tbody tr')].find((one) => one.innerText.includes('Without an app'));
    return row ? [...row.cells].slice(1).map((one) => one.innerText) : null;
})()";

#[test]
fn people_and_links_without_app_are_shown() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.go(&at(node, "usage"));
    shows(browser, ".tiles");
    let labels = ["Visits", "People", "Bots", "Unknown links", "New links", "Total links"];
    assert_eq!(browser.value(TILES), json!(labels));
    shows(browser, "#card-links [data-tab=apps]");
    browser.click("#card-links [data-tab=apps]");
    // While there are no keys, no link has an app.
    wait_until("the link and its visits", || {
        press(browser, "main", "refresh");
        browser.value(WITHOUT_AN_APP) == json!(["1", "1", "4"])
    });
    says(browser, ".tile:nth-child(2)", "100%");
    browser.resize(PHONE);
    browser.fits();
    browser.fits_fingers();
    console.close();
}

/// Returns a script: from now on, the log has 20 visits of the last 7 days, 10 of the 7 before, and the first of all
/// visits so many days ago.
fn with_log(days: u32) -> String {
    format!(
        "(() => {{
            const real = window.fetch;
            window.fetch = (path, ...rest) => {{
                const url = new URL(path, location.href);
                if (url.pathname !== '/rest/v3/visits/stats' || !['1', '25'].includes(url.searchParams.get('limit'))) return real(path, ...rest);
                const isNow = Date.parse(url.searchParams.get('endDate')) > Date.now();
                const since = new Date(Date.now() - {days} * 86400000).toISOString();
                return Promise.resolve(Response.json({{ visitStats: {{ enabled: true, total: isNow ? 20 : 10, bots: 0, complete: true, since, perDay: [], links: [], referrers: [] }} }}));
            }};
            const link = document.createElement('a');
            link.href = '/admin/usage?period=7d&tag=news';
            document.getElementById('main').append(link);
            link.click();
        }})()"
    )
}

#[test]
fn filtered_visits_need_a_whole_period() {
    let console = OpenConsole::open().expecting(&["/tags/news/visits"]);
    let OpenConsole { node, browser, .. } = &console;
    for (days, is_compared) in [(30, true), (10, false)] {
        browser.go(&at(node, "links"));
        shows(browser, "#nav a[href='/admin/usage']");
        browser.value(&with_log(days));
        says(browser, ".tiles", "20");
        // The comparison may be drawn a moment later.
        if is_compared {
            says(browser, ".tiles", "+100%");
        }
        let said = browser.value("document.querySelector('.tiles').innerText.includes('+100%')");
        assert_eq!(said, json!(is_compared), "the log begins {days} days ago");
    }
    console.close();
}

#[test]
fn files_of_analytics_have_all_rows() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    let mut wire = node.wire();
    for number in 0..25 {
        follow(&mut wire, &format!("/seen?utm_campaign=c{number}"), FIREFOX);
    }
    let total = || node.wire().get("/rest/v3/visits/stats").json()["visitStats"]["total"].clone();
    wait_until("all visits", || total() == json!(29));
    browser.go(&at(node, "usage"));
    says(browser, "#card-campaigns", "The 20 largest");
    browser.value(KEEP_FILES);
    press(browser, "main", "export-csv");
    let lines = saved(browser, 1);
    let campaigns = lines.iter().filter(|line| line.starts_with("utmCampaign,c")).count();
    assert_eq!(campaigns, 25, "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("day,20")), "{lines:?}");
    console.close();
}

/// One step leads from the overview, and one from the palette, to the campaign that brought most visits last week.
#[test]
fn best_campaign_is_one_step_away() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    let is_answered = || {
        // The first row is the campaign with most visits, not the visits without one.
        wait_until("the answer", || {
            browser.value("document.querySelector('#card-campaigns tbody tr td')?.innerText.trim() ?? ''")
                == json!("spring")
        });
        shows(browser, "[data-period='7d'][aria-pressed=true]");
        let is_focused = "document.activeElement.closest('#card-campaigns') !== null";
        wait_until("the focus", || browser.value(is_focused) == true);
        // The header with its notice about open access and the period stay above the card, in this order.
        let is_below =
            "['.top', '.period > div', '#card-campaigns'].map((part) => document.querySelector(part).getBoundingClientRect())
            .every(({ top }, at, all) => at === 0 || top >= all[at - 1].bottom - 1)";
        wait_until("a card below the header and the period", || browser.value(is_below) == true);
    };
    browser.go(&at(node, ""));
    // The most visited links are a card of their own, which leads to all of them.
    shows(browser, "main .card-head [data-action=report-links]");
    press(browser, ".reports", "report-campaigns");
    is_answered();
    browser.go(&at(node, "links"));
    browser.chord(CONTROL, "k");
    shows(browser, "dialog.palette");
    browser.press("which campaign brought most visits");
    says(browser, ".palette-entry[aria-selected=true]", "Top campaigns, last 7 days");
    browser.press(ENTER);
    is_answered();
    console.close();
}
