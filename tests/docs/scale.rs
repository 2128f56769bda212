//! The figures that depend on the number of links, on the page of results, from the result file of `carom-bench growth`
//! and `carom-bench join`.

use serde_json::Value;

use crate::benchmark::shown;
use crate::fleet::median_of;

/// The columns: numbers of links, and their headings.
const COLUMNS: [(u64, &str); 3] = [(1_000_000, "1 million"), (10_000_000, "10 million"), (100_000_000, "100 million")];

/// A row: what it shows, the names of its figure around the number of links, the factor of the value, and the unit. Of
/// several figures, a cell shows the first that was measured.
type Row = (&'static str, &'static [[&'static str; 2]], f64, &'static str);

/// A row with the figure of the row above it, of a node that keeps only the links in use in memory.
const IN_USE: &str = "the same with `links.residency = \"hot\"`";

/// The rows.
const ROWS: [Row; 10] = [
    ("join from a node with 20,000 redirects/s", &[["join, ", " links"]], 1.0, "s"),
    ("p99 of these redirects meanwhile", &[["p99 of the peer during a join, ", " links"]], 1e-3, "ms"),
    (
        "p99 of the worst five seconds of them",
        &[["p99 of the peer in the worst part of a join, ", " links"]],
        1e-3,
        "ms",
    ),
    ("ready after `kill -9`", &[["ready after kill -9, ", " links, 2 CPU"]], 1.0, "s"),
    (IN_USE, &[["start after kill -9, ", " links, hot residency"]], 1.0, "s"),
    ("memory of a node that is ready", &[["memory once ready, ", " links"]], 1e-9, "GB"),
    (IN_USE, &[["memory once ready, ", " links, hot residency"]], 1e-9, "GB"),
    ("disk of a node", &[["disk of a node, ", " links"], ["disk after an import, ", " links"]], 1e-9, "GB"),
    (
        IN_USE,
        &[["disk of a node, ", " links, hot residency"], ["disk after an import, ", " links, hot residency"]],
        1e-9,
        "GB",
    ),
    ("Redis memory per link changed within `fleet.retention`", &[["Redis memory per link, ", " links"]], 1.0, "bytes"),
];

/// Returns a row for each figure, and what each request costs Redis.
pub(crate) fn table(results: &Value) -> String {
    let headings: String = COLUMNS.iter().map(|(_, heading)| format!(" {heading} |")).collect();
    let mut table = format!("| links |{headings}\n|---|{}\n", "---|".repeat(COLUMNS.len()));
    for (what, names, factor, unit) in ROWS {
        let named = |links: u64| names.iter().map(move |[before, behind]| format!("{before}{links}{behind}"));
        let cell = |(links, _): &(u64, &str)| match named(*links).find_map(|name| figure(results, &name)) {
            Some(value) => format!(" {} {unit} |", shown(Some(value * factor))),
            None => " – |".to_owned(),
        };
        let cells: String = COLUMNS.iter().map(cell).collect();
        table.push_str(&format!("| {what} |{cells}\n"));
    }
    let commands = |scenario: &str| median_of(&results["fleet"], "three nodes", scenario, "/redis/commands");
    if let (Some(create), Some(redirect)) = (commands("creates, 500/s"), commands("redirects, 5,000/s")) {
        table.push_str(&format!(
            "\nFor each create, a fleet of three nodes sends Redis {create:.2} commands, and for each redirect {redirect:.3}.\n"
        ));
    }
    table
}

/// Returns the value of a figure by its name.
fn figure(results: &Value, name: &str) -> Option<f64> {
    let figures = results["growth"].as_array().into_iter().flatten();
    figures.filter(|figure| figure["name"] == name).find_map(|figure| figure["value"].as_f64())
}

#[test]
fn figures_stand_below_their_number_of_links() {
    let figure = |name: &str, value: f64| serde_json::json!({"name": name, "value": value});
    let results = serde_json::json!({
        "growth": [
            figure("join, 10000000 links", 48.26),
            figure("p99 of the peer during a join, 10000000 links", 4_321.0),
            figure("disk of a node, 1000000 links", 0.512e9),
            figure("disk of a node, 1000000 links, hot residency", 0.341e9),
            figure("disk after an import, 1000000 links", 0.6e9),
            figure("disk after an import, 100000000 links, hot residency", 32.24e9),
            figure("memory once ready, 100000000 links, hot residency", 0.481e9),
        ],
        "fleet": {
            "scenarios": [], "subjects": [],
            "runs": [
                {"subject": "three nodes", "scenario": "creates, 500/s", "redis": {"commands": 3.8}},
                {"subject": "three nodes", "scenario": "redirects, 5,000/s", "redis": {"commands": 0.0}},
            ],
        },
    });
    let table = table(&results);
    for row in [
        "| join from a node with 20,000 redirects/s | – | 48.3 s | – |",
        "| p99 of these redirects meanwhile | – | 4.32 ms | – |",
        "| disk of a node | 0.51 GB | – | – |",
        "| the same with `links.residency = \"hot\"` | 0.34 GB | – | 32.2 GB |",
        "| memory of a node that is ready | – | – | – |\n| the same with `links.residency = \"hot\"` | – | – | 0.48 GB |",
        "sends Redis 3.80 commands, and for each redirect 0.000.",
    ] {
        assert!(table.contains(row), "{row} in {table}");
    }
}
