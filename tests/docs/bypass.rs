//! The figures of kernel bypass on the page of results, from the result file of `carom-bench bypass`.

use serde_json::Value;

use crate::benchmark::{middle, setting, shown, thousands};

/// Text for a result file without the comparison.
const NOT_MEASURED: &str = "Not measured yet.\n";

/// Returns the figures with their budgets, and the same for kernel sockets.
pub(crate) fn figures(results: &Value) -> String {
    let Some(bypass) = bypass(results) else { return NOT_MEASURED.to_owned() };
    let mut table =
        "| what | over bypass | over kernel sockets | budget | result |\n|---|---|---|---|---|\n".to_owned();
    for figure in list(bypass, "figures") {
        let unit = match figure["unit"].as_str() {
            None | Some("" | "times") => String::new(),
            Some(unit) => format!(" {unit}"),
        };
        let value = figure["value"].as_f64().expect("a figure has a value");
        let kernel = figure["kernel"].as_f64().map_or(String::new(), |value| format!("{}{unit}", digits(value)));
        let (budget, result) = match figure["budget"]["atMost"].as_f64() {
            None => (String::new(), String::new()),
            Some(most) if value <= most => (format!("at most {most}{unit}"), "reached".to_owned()),
            Some(most) => {
                (format!("at most {most}{unit}"), format!("not reached: {} instead of {most}", digits(value)))
            }
        };
        let name = figure["name"].as_str().unwrap_or_default();
        table.push_str(&format!("| {name} | {}{unit} | {kernel} | {budget} | {result} |\n", digits(value)));
    }
    table
}

/// Returns the medians of every server in every scenario.
pub(crate) fn table(results: &Value) -> String {
    let Some(bypass) = bypass(results) else { return NOT_MEASURED.to_owned() };
    let links = thousands(bypass["links"].as_f64().unwrap_or_default());
    let mut table = format!(
        "carom with {links} links. {}\n\n| scenario | server | redirects/s | server CPU | machine CPU | p50 | p99 | p99.9 |\n|---|---|---|---|---|---|---|---|\n",
        setting(&bypass["machine"])
    );
    for scenario in list(bypass, "scenarios") {
        for subject in list(bypass, "subjects") {
            let median = |value: fn(&Value) -> Option<f64>| {
                let runs = list(bypass, "runs").iter();
                let ours = runs.filter(|run| run["subject"] == subject["name"] && run["scenario"] == *scenario);
                middle(ours.filter_map(|run| value(&run["sample"])).collect())
            };
            let rate =
                thousands((median(|run| run["throughput"].as_f64()).unwrap_or_default() / 100.0).round() * 100.0);
            let times = [
                median(|run| Some(run["userMicros"].as_f64()? + run["systemMicros"].as_f64()?)),
                median(|run| run["machineMicros"].as_f64()),
                median(|run| run["p50"].as_f64()),
                median(|run| run["p99"].as_f64()),
                median(|run| run["p999"].as_f64()),
            ];
            let cells: String = times.map(|time| format!(" {} |", shown(time))).concat();
            let (scenario, name) = (text(scenario), text(&subject["name"]));
            table.push_str(&format!("| {scenario} | {name} | {rate} |{cells}\n"));
        }
    }
    table
}

fn bypass(results: &Value) -> Option<&Value> {
    Some(&results["bypass"]).filter(|bypass| !bypass.is_null())
}

fn list<'a>(results: &'a Value, name: &str) -> &'a [Value] {
    results[name].as_array().unwrap_or_else(|| panic!("the result file has no bypass.{name}"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("names are texts")
}

/// Two decimals for ratios and times, none for bytes.
fn digits(value: f64) -> String {
    if value < 20.0 { format!("{value:.2}") } else { thousands(value) }
}

#[test]
fn missed_budget_says_by_how_much() {
    let figure = |value: f64| serde_json::json!({"name": "CPU", "value": value, "unit": "times", "kernel": 0.95, "budget": {"atMost": 0.6}});
    let results = serde_json::json!({"bypass": {"figures": [figure(0.5), figure(0.7)]}});
    let table = figures(&results);
    assert!(table.contains("| CPU | 0.50 | 0.95 | at most 0.6 | reached |"), "{table}");
    assert_eq!(figures(&serde_json::json!({})), NOT_MEASURED);
    assert!(table.contains("| CPU | 0.70 | 0.95 | at most 0.6 | not reached: 0.70 instead of 0.6 |"), "{table}");
}
