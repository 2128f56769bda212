//! The comparison of two runs, from their JSON results: a table, and conditions on the changes.

use std::fmt::Write as _;
use std::path::Path;

use carom_telemetry::readable;
use serde_json::Value;

use crate::command_line::cli::CompareArguments;
use crate::console::print;
use crate::failure::Failure;
use crate::units::{self, show_micros};

/// Exit code if a condition is met.
const CHANGED: u8 = 1;

/// Exit code if the generator was the bottleneck of a run.
const BOTTLENECK: u8 = 3;

/// Unit of a measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// Requests per second.
    Rate,
    /// Microseconds.
    Time,
    /// A number of requests.
    Count,
}

/// Measures of a run with their units, in the order of the table.
const MEASURES: [(&str, Unit); 10] = [
    ("throughput", Unit::Rate),
    ("mean", Unit::Time),
    ("p50", Unit::Time),
    ("p80", Unit::Time),
    ("p90", Unit::Time),
    ("p99", Unit::Time),
    ("p99.9", Unit::Time),
    ("p99.99", Unit::Time),
    ("max", Unit::Time),
    ("errors", Unit::Count),
];

/// Settings that should be those of the other run, by their names in the JSON.
const SETTINGS: [&str; 12] = [
    "mode",
    "arrival",
    "rate",
    "connections",
    "threads",
    "http2",
    "pipeline",
    "renew",
    "mix",
    "zipf",
    "headers",
    "links",
];

/// Compares two files. Returns the exit code.
///
/// # Errors
/// Every invalid condition and file.
pub(crate) fn run(arguments: &CompareArguments) -> Result<u8, Failure> {
    let parsed = arguments.fail_if.iter().flat_map(|list| list.split(',')).map(|text| FailCondition::read(text.trim()));
    let (conditions, wrong): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
    let mut wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    let results = [&arguments.base, &arguments.new].map(|path| Figures::of_file(path));
    wrong.extend(results.iter().filter_map(|result| result.as_ref().err().cloned()));
    let [Ok(base), Ok(new)] = results else { return Err(Failure::usage(wrong.join("\n"))) };
    if !wrong.is_empty() {
        return Err(Failure::usage(wrong.join("\n")));
    }
    let comparison = Comparison { base, new, conditions: conditions.into_iter().flatten().collect() };
    print(&comparison.table())?;
    Ok(comparison.exit_code())
}

/// Figures of one run.
#[derive(Clone, Debug)]
struct Figures {
    /// Values in the order of [`MEASURES`].
    values: [f64; MEASURES.len()],
    /// Settings in the order of [`SETTINGS`].
    settings: [String; SETTINGS.len()],
    /// True if the generator was the bottleneck.
    is_limited: bool,
    /// Verdict on the run, in words.
    verdict: String,
}

impl Figures {
    fn of_file(path: &Path) -> Result<Figures, String> {
        let wrong = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
        let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|error| wrong(&error))?;
        Figures::of(&json).map_err(|reason| wrong(&reason))
    }

    /// Takes the figures out of the JSON results of a run, of this version or an older one.
    fn of(json: &Value) -> Result<Figures, String> {
        let number = |path: &str| {
            let value = json.pointer(path).and_then(Value::as_f64);
            value.ok_or_else(|| format!("lacks {path}; expected the results of `carom-loadgen -o FILE.json`"))
        };
        // A closed loop has no planned send times.
        let from = if json["mode"] == "closed" { "actual" } else { "intended" };
        let latency = |name: &str| number(&format!("/latencyMicros/{from}/all/{name}"));
        if latency("count")? == 0.0 {
            return Err("no request was measured in this run".to_owned());
        }
        let mut values = [0.0; MEASURES.len()];
        for (value, (name, _)) in values.iter_mut().zip(MEASURES) {
            *value = match name {
                "throughput" => number("/throughput")?,
                "errors" => number("/errors/total")? + number("/requests/unsent")?,
                _ => latency(&name.replace('.', ""))?,
            };
        }
        Ok(Figures {
            values,
            settings: SETTINGS.map(|name| json[name].to_string()),
            is_limited: json["generator"]["bottleneck"] == true,
            verdict: json["verdict"].as_str().unwrap_or("unknown").to_owned(),
        })
    }
}

/// Size of a change.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    /// Percent of the value in the base.
    Percent(f64),
    /// Difference of the values.
    Amount(f64),
}

/// A change that fails the comparison.
#[derive(Clone, PartialEq, Debug)]
struct FailCondition {
    /// Index of the measure in [`MEASURES`].
    measure: usize,
    /// True if larger changes than the bound fail; false if smaller ones do.
    is_above: bool,
    bound: Change,
    /// Text of the condition as the user wrote it.
    text: String,
}

impl FailCondition {
    fn read(text: &str) -> Result<FailCondition, String> {
        let wrong = |why: &str| format!("--fail-if: invalid condition `{text}`{why}; expected e.g. p99>+10%");
        let (name, rest) = text.split_at(text.find(['<', '>']).ok_or_else(|| wrong(""))?);
        let (sign, bound) = rest.split_at(1);
        let (name, bound) = (name.trim(), bound.trim());
        let measure = MEASURES.iter().position(|(known, _)| *known == name).ok_or_else(|| {
            let known = MEASURES.map(|(known, _)| known).join(", ");
            format!("--fail-if: invalid condition `{text}`: unknown measure `{name}`; expected one of {known}")
        })?;
        let bound = match bound.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<f64>().ok().filter(|percent| percent.is_finite());
                Change::Percent(percent.ok_or_else(|| wrong(&format!(": `{bound}` is not a percentage")))?)
            }
            None => {
                let amount = match bound.split_at_checked(1) {
                    Some(("+", size)) => amount(MEASURES[measure].1, size),
                    Some(("-", size)) => amount(MEASURES[measure].1, size).map(|amount| -amount),
                    _ => return Err(wrong(": a change begins with + or -, or ends with %")),
                };
                Change::Amount(amount.map_err(|reason| wrong(&format!(": {reason}")))?)
            }
        };
        Ok(FailCondition { measure, is_above: sign == ">", bound, text: text.to_owned() })
    }

    /// True if the change of a run against its base meets the condition.
    fn is_met(&self, base: &Figures, new: &Figures) -> bool {
        let (base, new) = (base.values[self.measure], new.values[self.measure]);
        let (change, bound) = match self.bound {
            Change::Percent(bound) => (percent(base, new), bound),
            Change::Amount(bound) => (new - base, bound),
        };
        if self.is_above { change > bound } else { change < bound }
    }
}

/// Parses the size of a change.
fn amount(unit: Unit, text: &str) -> Result<f64, String> {
    match unit {
        _ if text == "0" => Ok(0.0),
        Unit::Rate => units::number(text),
        Unit::Time => units::duration(text).map(|time| time.as_secs_f64() * 1e6),
        Unit::Count => units::count(text).map(|count| count as f64),
    }
}

/// Returns the change in percent. It is infinite if the base is zero and the new value is not.
fn percent(base: f64, new: f64) -> f64 {
    if base == new { 0.0 } else { (new - base) / base * 100.0 }
}

/// Two runs, and the changes that fail the comparison.
#[derive(Debug)]
struct Comparison {
    base: Figures,
    new: Figures,
    conditions: Vec<FailCondition>,
}

impl Comparison {
    fn exit_code(&self) -> u8 {
        let is_met = |condition: &FailCondition| condition.is_met(&self.base, &self.new);
        match self.conditions.as_slice() {
            [] => 0,
            _ if self.base.is_limited || self.new.is_limited => BOTTLENECK,
            conditions if conditions.iter().any(is_met) => CHANGED,
            _ => 0,
        }
    }

    fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{:<12}{:>14}{:>14}{:>12}", "", "base", "new", "change")?;
        for (at, (name, unit)) in MEASURES.into_iter().enumerate() {
            let (base, new) = (self.base.values[at], self.new.values[at]);
            let show = |value: f64| match unit {
                Unit::Rate => format!("{}/s", readable::grouped(value as u64)),
                Unit::Time => show_micros(value),
                Unit::Count => readable::grouped(value as u64),
            };
            let change = match unit {
                Unit::Count => format!("{:+}", new as i64 - base as i64),
                Unit::Rate | Unit::Time => format!("{:+.1}%", percent(base, new)),
            };
            writeln!(out, "{name:<12}{:>14}{:>14}{change:>12}", show(base), show(new))?;
        }
        for (name, figures) in [("base", &self.base), ("new", &self.new)] {
            if figures.verdict != "ok" {
                writeln!(out, "note        {name}: {}", figures.verdict)?;
            }
        }
        let pairs = self.base.settings.iter().zip(&self.new.settings);
        for (name, (base, new)) in SETTINGS.iter().zip(pairs).filter(|(_, (base, new))| base != new) {
            writeln!(out, "note        the runs differ in {name}: {base} and {new}")?;
        }
        for condition in &self.conditions {
            let word = if condition.is_met(&self.base, &self.new) { "failed" } else { "passed" };
            writeln!(out, "{word:<12}{}", condition.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(p99: f64, throughput: f64, errors: u64) -> Figures {
        let latency = json!({
            "count": 10, "mean": 1.0, "p50": 1.0, "p80": 1.0, "p90": 1.0, "p99": p99, "p999": 2.0, "p9999": 3.0, "max": 4.0,
        });
        let json = json!({
            "mode": "open", "throughput": throughput, "errors": { "total": errors }, "requests": { "unsent": 0 },
            "latencyMicros": { "intended": { "all": latency } }, "generator": { "bottleneck": false }, "verdict": "ok",
        });
        Figures::of(&json).unwrap()
    }

    fn compare(base: Figures, new: Figures, condition: &str) -> u8 {
        Comparison { base, new, conditions: vec![FailCondition::read(condition).unwrap()] }.exit_code()
    }

    #[test]
    fn conditions_look_at_the_change() {
        for (condition, expected) in [
            ("p99>+10%", 1),
            ("p99>10%", 1),
            ("p99 > +25%", 0),
            ("p99>+10us", 1),
            ("p99>+20us", 0),
            ("p99<-10%", 0),
            ("throughput<-5%", 1),
            ("throughput<-20%", 0),
            ("throughput<-50", 1),
            ("errors>+0", 1),
            ("errors>+3", 0),
            ("errors>+10%", 1),
            ("max>+0%", 0),
        ] {
            assert_eq!(compare(result(100.0, 1e3, 0), result(120.0, 900.0, 3), condition), expected, "{condition}");
        }
        assert_eq!(compare(result(120.0, 1e3, 3), result(100.0, 1e3, 0), "p99<-10%"), 1);
    }

    #[test]
    fn a_limited_generator_spoils_a_comparison() {
        let limited = Figures { is_limited: true, ..result(1.0, 1.0, 0) };
        assert_eq!(compare(limited.clone(), result(9.0, 1.0, 0), "p99>+10%"), BOTTLENECK);
        assert_eq!(Comparison { base: limited.clone(), new: limited, conditions: vec![] }.exit_code(), 0);
    }

    #[test]
    fn wrong_conditions_and_results_are_named() {
        for (text, words) in [
            ("p99", "expected e.g. p99>+10%"),
            ("p98>+10%", "unknown measure `p98`"),
            ("p99>10ms", "begins with + or -"),
            ("p99>", "begins with + or -"),
            ("p99>+x%", "is not a percentage"),
            ("p99>+5", "is not a time such as"),
            ("errors>+x", "not a number"),
        ] {
            let wrong = FailCondition::read(text).unwrap_err();
            assert!(wrong.contains(&format!("`{text}`")), "{text}: {wrong}");
            assert!(wrong.contains(words), "{text}: {wrong}");
        }
        assert!(Figures::of(&json!({})).unwrap_err().contains("lacks /latencyMicros"));
        let mut empty = json!({ "latencyMicros": { "intended": { "all": { "count": 0 } } } });
        assert!(Figures::of(&empty).unwrap_err().contains("no request was measured"));
        empty["mode"] = json!("closed");
        assert!(Figures::of(&empty).unwrap_err().contains("/actual/"));
        assert!(Figures::of_file(Path::new("/nowhere/at/all")).unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn table_shows_changes_and_differences() {
        let mut new = result(120.0, 900.0, 3);
        new.settings[0] = "\"closed\"".to_owned();
        new.verdict = "objective missed".to_owned();
        let conditions = vec![FailCondition::read("p99>+10%").unwrap(), FailCondition::read("p50>+10%").unwrap()];
        let table = Comparison { base: result(100.0, 1e3, 0), new, conditions }.table();
        for words in ["+20.0%", "-10.0%", "+3\n", "differ in mode", "new: objective missed"] {
            assert!(table.contains(words), "{words} in {table}");
        }
        assert!(table.contains("failed      p99>+10%\n"), "{table}");
        assert!(table.contains("passed      p50>+10%\n"), "{table}");
    }
}
