//! The figures of a fleet on the page of results, from the result file of `carom-bench fleet`.

use serde_json::Value;

use crate::benchmark::{middle, setting, thousands};

/// Text for a result file without the measurement.
const NOT_MEASURED: &str = "Not measured yet.\n";

/// Returns the medians of every fleet under every load.
pub(crate) fn table(results: &Value) -> String {
    let fleet = &results["fleet"];
    if fleet.is_null() {
        return NOT_MEASURED.to_owned();
    }
    let mut table = format!(
        "{}\n\n| load | fleet | per second | Redis commands for each | Redis bytes for each |\n|---|---|---|---|---|\n",
        setting(&fleet["machine"])
    );
    let list = |name: &str| fleet[name].as_array().unwrap_or_else(|| panic!("the result file has no fleet.{name}"));
    for scenario in list("scenarios") {
        for subject in list("subjects") {
            let (scenario, subject) = (scenario.as_str().unwrap_or_default(), subject.as_str().unwrap_or_default());
            let median = |pointer: &str| median_of(fleet, subject, scenario, pointer);
            let rate = thousands((median("/throughput").unwrap_or_default() / 10.0).round() * 10.0);
            let commands = median("/redis/commands").map_or("–".to_owned(), |commands| format!("{commands:.3}"));
            let bytes = median("/redis/bytes").map_or("–".to_owned(), thousands);
            table.push_str(&format!("| {scenario} | {subject} | {rate} | {commands} | {bytes} |\n"));
        }
    }
    table
}

/// Returns the median of a figure of a fleet under a load.
pub(crate) fn median_of(fleet: &Value, subject: &str, scenario: &str, pointer: &str) -> Option<f64> {
    let runs = fleet["runs"].as_array().into_iter().flatten();
    let ours = runs.filter(|run| run["subject"] == subject && run["scenario"] == scenario);
    middle(ours.filter_map(|run| run.pointer(pointer)?.as_f64()).collect())
}

#[test]
fn fleets_are_compared_by_medians() {
    let run = |subject: &str, rate: f64, redis: Value| serde_json::json!({"subject": subject, "scenario": "creates", "throughput": rate, "redis": redis});
    let redis = |commands: f64| serde_json::json!({"commands": commands, "bytes": 1_234.4});
    let results = serde_json::json!({"fleet": {
        "machine": {}, "scenarios": ["creates"], "subjects": ["alone", "three"],
        "runs": [run("alone", 9_004.0, Value::Null), run("three", 5_000.0, redis(3.0)), run("three", 7_000.0, redis(5.0)), run("three", 6_000.0, redis(4.0))],
    }});
    let table = table(&results);
    assert!(
        table.contains("| creates | alone | 9,000 | – | – |\n| creates | three | 6,000 | 4.000 | 1,234 |"),
        "{table}"
    );
    assert_eq!(super::fleet::table(&serde_json::json!({})), NOT_MEASURED);
}
