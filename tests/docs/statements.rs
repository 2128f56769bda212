//! Statements of pages that were wrong before, or that say twice what the code or another page says.

use std::path::Path;

use carom_model::visits::count_exchange::CountsLack;
use carom_telemetry::alarms::Alarm;
use serde_json::Value;

use crate::benchmark::{quoted, thousands};
use crate::{pages, read};

/// Alarms about what each node of a fleet has to hold. Another node would have to hold as much.
const OF_EACH_NODE: [Alarm; 3] = [Alarm::DiskFull, Alarm::MemoryFull, Alarm::MemoryLimitLow];

/// The page that says how much memory Redis needs for a link.
const SIZING: &str = "docs/src/deploy/sizing.md";

/// Returns a text in one line, with single spaces.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns what the runbook says under a heading about an alarm, from one of its parts up to the next one.
fn part_of(runbook: &str, alarm: Alarm, part: &str) -> String {
    let section = runbook.split_once(&format!("\n### {}\n", alarm.name())).map_or("", |(_, behind)| behind);
    let section = section.split("\n#").next().unwrap_or_default();
    let text = section.split_once(part).map_or("", |(_, behind)| behind);
    joined(text.split("\n**").next().unwrap_or_default())
}

/// Returns the sentences of a remedy that recommend another node.
fn more_nodes(fix: &str) -> Vec<&str> {
    let names_nodes = |sentence: &&str| {
        let sentence = sentence.to_lowercase();
        ["more nodes", "add a node", "add nodes", "another node"].iter().any(|words| sentence.contains(words))
            && !sentence.contains(" not ")
    };
    fix.split(". ").filter(names_nodes).collect()
}

/// Returns the paragraphs and lines of lists that say how much memory Redis needs for a link.
fn memory_in_redis(page: &str) -> Vec<String> {
    let blocks = page.split("\n\n").flat_map(|block| block.split("\n* ")).map(joined);
    let has_figure = |block: &String| {
        block.contains("Redis") && ["500 bytes", "600 bytes"].iter().any(|figure| block.contains(figure))
    };
    blocks.filter(has_figure).collect()
}

/// Returns the number before some words of a text.
fn number_before<'t>(text: &'t str, words: &str) -> &'t str {
    let before = text.split_once(words).unwrap_or_else(|| panic!("the page no longer says: {words}")).0;
    before.rsplit(' ').next().unwrap_or_default()
}

#[test]
fn every_alarm_says_what_to_check_and_do() {
    let runbook = read("docs/src/operate/runbook.md");
    for alarm in Alarm::ALL {
        for part in ["**Users see:**", "**Check:**", "**Fix:**", "**Over when:**"] {
            assert!(!part_of(&runbook, alarm, part).is_empty(), "{}: {part} has no text", alarm.name());
        }
    }
}

#[test]
fn more_nodes_cure_no_full_node() {
    let runbook = read("docs/src/operate/runbook.md");
    for alarm in OF_EACH_NODE {
        let fix = part_of(&runbook, alarm, "**Fix:**");
        assert_eq!(more_nodes(&fix), Vec::<&str>::new(), "{}", alarm.name());
    }
    assert_eq!(
        more_nodes("configure more `cores`, or add a node. Restart it."),
        ["configure more `cores`, or add a node"]
    );
    assert_eq!(more_nodes("More nodes do not help, because every node stores all links."), Vec::<&str>::new());
}

#[test]
fn searches_have_the_limits_of_the_code() {
    let api: Value = serde_json::from_str(&read("src/api/rest/openapi.json")).expect("the description is JSON");
    let list = &api["paths"]["/rest/v3/short-urls"]["get"];
    let said = joined(list["description"].as_str().expect("the list is described"));
    let looked = thousands(carom_limits::LIST_LOOKED_MAX as f64);
    let [short, long] = [carom_limits::LIST_TIME_MAX, carom_limits::SEARCH_TIME_MAX].map(|time| time.as_millis());
    let expected = format!(
        "examines at most {looked} links, for at most {short} ms, or {long} ms with a search term, a state, excluded tags or an order other than by date."
    );
    assert!(said.contains(&expected), "{said}");
    let guide = joined(&read("docs/src/guides/api.md"));
    assert!(guide.contains(&format!("examines at most {looked} links, for at most {short} ms.")), "the guide differs");
    assert!(guide.contains(&format!("other than by date, the limit is {long} ms.")), "the guide differs");
}

#[test]
fn memory_in_redis_is_given_on_one_page() {
    let pages = pages();
    // A decision says what was known when it was taken.
    let others = pages.iter().filter(|(path, _)| !path.ends_with(SIZING) && !path.starts_with("docs/src/decisions"));
    let found: Vec<(&Path, String)> = others
        .flat_map(|(path, text)| memory_in_redis(text).into_iter().map(move |block| (path.as_path(), block)))
        .collect();
    assert!(found.is_empty(), "link to {SIZING} instead: {found:#?}");
    let sizing = joined(&pages[Path::new(SIZING)]);
    let for_a_while = number_before(&sizing, " bytes per link that was created, changed or deleted within");
    assert_eq!(number_before(&sizing, " bytes + 2 × 16 MiB"), for_a_while, "the example differs from the figures");
    let forever = number_before(&sizing, " bytes for every link, for good");
    assert!(sizing.contains(&format!("| *N* × {forever} bytes, for good")), "the table differs from the figures");
    assert_eq!(memory_in_redis("# A\n\nRedis needs\n600 bytes.\n\n* Disk: 500 bytes\n* Redis: 7").len(), 1);
}

#[test]
fn sizing_quotes_the_results() {
    let sizing = joined(&read(SIZING));
    let [rate, forwarded] = quoted();
    for text in [format!("answered {rate}/s"), format!("cost {forwarded} times"), format!("{rate} ÷ {forwarded}")] {
        assert!(sizing.contains(&text), "{SIZING} does not say: {text}");
    }
}

#[test]
fn restarts_name_the_file_of_a_stop() {
    let page = joined(&read("docs/src/internals/restart.md"));
    assert!(!page.contains("writes nothing for the next start"), "a stop writes the sections of the search index");
    let saved = thousands(carom_limits::SEARCH_KEPT_AFTER as f64);
    assert!(page.contains("A stop writes one file for the next start, `search.sections`"), "the page omits the file");
    assert!(page.contains(&format!("after every {saved} changes")), "the page has another interval");
}

#[test]
fn reasons_of_missing_visits_are_explained() {
    let (page, console) = (read("docs/src/operate/monitoring.md"), read("src/api/console/web/strings-shell.js"));
    for reason in CountsLack::ALL.map(CountsLack::as_str) {
        assert!(page.contains(&format!("\n| `{reason}` |")), "{reason} is not in the table of reasons");
        assert!(console.contains(&format!("\n    {reason}: (since) =>")), "the console has no text for {reason}");
    }
}
