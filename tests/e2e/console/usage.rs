//! The first cards of Analytics in the console: numbers above the chart of visits, and what was visited most, in tabs.

use serde_json::json;

use crate::support::browser::{END, LEFT, RIGHT, SCREEN};
use crate::support::console::{OpenConsole, at, says, shows, visited_node};

/// Script: the title of the first card of the page, the height of its chart, and the third lines of the last tiles.
const HERO: &str = "[
    document.querySelector('main .card h2').textContent,
    document.querySelector('.usage-hero .visits-chart .plot-picture').offsetHeight,
    ...[...document.querySelectorAll('.usage-hero .tile .change')].slice(-3).map((one) => one.innerText.trim()),
]";

/// Two of six tiles once had no third line, and one a picture that no other had.
#[test]
fn tiles_of_analytics_have_the_same_lines() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    browser.go(&at(node, "usage"));
    shows(browser, ".usage-hero .tile:nth-child(6) .change");
    assert_eq!(browser.value(HERO), json!(["Visits by day", 264, "from 0", "from 0", "1 in this period"]));
    assert_eq!(browser.value("document.querySelectorAll('.usage-hero .tile .change').length"), json!(6));
    console.close();
}

/// Script: the tab that is chosen, and whether its panel is named after it.
const CHOSEN_TAB: &str = "(() => {
    const tabs = [...document.querySelectorAll('#card-links [role=tab]')];
    const chosen = tabs.filter((one) => one.ariaSelected === 'true' && one.tabIndex === 0);
    const panel = document.querySelector('#card-links [role=tabpanel]');
    return [...chosen.map((one) => one.textContent), tabs.every((one) => one.getAttribute('aria-controls') === panel.id), panel.getAttribute('aria-labelledby') === chosen[0]?.id];
})()";

/// Links, tags, apps and domains are one card, whose address names the list that is shown.
#[test]
fn tabs_choose_the_list_of_most_visited() {
    let console = OpenConsole::with(visited_node);
    let OpenConsole { node, browser, .. } = &console;
    browser.resize(SCREEN);
    browser.go(&at(node, "usage?period=7d"));
    says(browser, "#card-links", "seen");
    browser.value("document.querySelector('#card-links [role=tab][aria-selected=true]').focus()");
    for (key, tab, address) in [
        (RIGHT, "Tags", "usage?period=7d&list=tags"),
        (END, "Domains", "usage?period=7d&list=domains"),
        (RIGHT, "Links", "usage?period=7d&list=links"),
        (LEFT, "Domains", "usage?period=7d&list=domains"),
    ] {
        browser.press(key);
        assert_eq!(browser.value(CHOSEN_TAB), json!([tab, true, true]));
        assert_eq!(browser.value("document.activeElement.textContent"), json!(tab));
        assert!(browser.url().ends_with(address), "{}", browser.url());
    }
    says(browser, "#card-links [role=tabpanel]", "Default domain");
    browser.fits_everywhere_by_finger();
    browser.go(&browser.url());
    shows(browser, "#card-links [data-tab=domains][aria-selected=true]");
    browser.is_accessible();
    // A step back shows the list of that address.
    browser.click("#card-links [data-tab=tags]");
    says(browser, "#card-links [role=tabpanel]", "news");
    browser.value("history.back()");
    shows(browser, "#card-links [data-tab=domains][aria-selected=true]");
    console.close();
}
