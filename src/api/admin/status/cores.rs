//! The numbers of each core, for the status page.

use serde::Serialize;
use serde_json::Value;

use super::values::{grouped, items, tenths};
use carom_telemetry::readable;

/// The numbers of each core by row. Columns of zeros are left out.
#[derive(Debug, Serialize)]
pub(super) struct CoreTable {
    pub(super) heads: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Formats a latency of a core. One without redirects has latencies of 0.
fn latency(core: &Value, name: &str) -> String {
    let micros = core["latencyMicros"][name].as_f64().filter(|micros| *micros > 0.0);
    micros.map_or_else(|| "–".to_owned(), readable::rounded_latency)
}

/// Formats a latency of the core where it is largest.
pub(super) fn slowest(status: &Value, name: &str) -> String {
    let micros = |core: &&Value| core["latencyMicros"][name].as_f64().unwrap_or(0.0);
    let core = items(&status["cores"]).max_by(|one, other| micros(one).total_cmp(&micros(other)));
    latency(core.unwrap_or(&Value::Null), name)
}

/// Formats a number of bytes in MiB, without the unit.
pub(super) fn mebibytes(bytes: u64) -> String {
    tenths(bytes as f64 / 1_048_576.0)
}

/// A column of the table of cores.
type CoreColumn = (&'static str, fn(&Value) -> String);

/// Columns that are shown even if all their numbers are zero.
const CORE_COLUMNS_KEPT: usize = 5;

const CORE_COLUMNS: [CoreColumn; 14] = [
    ("Core", |core| core["core"].to_string()),
    ("CPU", |core| core["cpu"].to_string()),
    ("Links", |core| grouped(&core["links"])),
    ("Connections", |core| grouped(&core["connections"])),
    ("Redirects", |core| grouped(&core["redirects"])),
    ("Not found", |core| grouped(&core["misses"])),
    ("Lookups sent", |core| grouped(&core["forwardedOut"])),
    ("Served from copies", |core| grouped(&core["hotHits"])),
    ("Lookups answered", |core| grouped(&core["forwardedIn"])),
    ("Memory (MiB)", |core| mebibytes(core["mapBytes"].as_u64().unwrap_or(0))),
    ("Slugs ready", |core| grouped(&core["codes"]["remaining"])),
    ("p50", |core| latency(core, "p50")),
    ("p99", |core| latency(core, "p99")),
    ("Longest", |core| latency(core, "max")),
];

/// Renders the numbers of each core; `None` if there is one core.
pub(super) fn cores(status: &Value) -> Option<CoreTable> {
    let cores: Vec<&Value> = items(&status["cores"]).collect();
    if cores.len() < 2 {
        return None;
    }
    let is_shown = |(at, (_, cell)): &(usize, &CoreColumn)| {
        *at < CORE_COLUMNS_KEPT || cores.iter().any(|core| !["0", "–"].contains(&&*cell(core)))
    };
    let shown: Vec<&CoreColumn> = CORE_COLUMNS.iter().enumerate().filter(is_shown).map(|(_, column)| column).collect();
    let row = |core: &&Value| shown.iter().map(|(_, cell)| cell(core)).collect();
    Some(CoreTable { heads: shown.iter().map(|(head, _)| *head).collect(), rows: cores.iter().map(row).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn several_cores_have_a_table_without_zeros() {
        let core = |number: u64, misses: u64, p99: f64| {
            json!({
                "core": number, "cpu": number + 4, "links": 7, "misses": misses, "mapBytes": 3 << 20,
                "codes": {"remaining": 1_000}, "latencyMicros": {"p50": p99 / 10.0, "p99": p99, "max": 15_466.5},
            })
        };
        let table = |all: Value| cores(&json!({"cores": all}));
        let several = table(json!([core(0, 0, 0.0), core(1, 2, 89.6)])).unwrap();
        let heads = ["Core", "CPU", "Links", "Connections", "Redirects", "Not found"];
        assert_eq!(several.heads[..6], heads);
        assert_eq!(several.heads[6..], ["Memory (MiB)", "Slugs ready", "p50", "p99", "Longest"]);
        assert_eq!(several.rows[0][8..], ["–", "–", "15 ms"], "a core without redirects has no latencies");
        assert_eq!(several.rows[1], ["1", "5", "7", "0", "0", "2", "3.0", "1,000", "9 µs", "90 µs", "15 ms"]);
        assert!(table(json!([core(0, 0, 1.0)])).is_none());
    }

    #[test]
    fn slowest_core_counts() {
        let of = |micros: f64| json!({"latencyMicros": {"p99": micros}});
        let status = |cores: Value| json!({"cores": cores});
        assert_eq!(slowest(&status(json!([of(5.0), of(1_240.0), of(80.0)])), "p99"), "1.2 ms");
        assert_eq!(slowest(&status(json!([of(0.0)])), "p99"), "–");
        assert_eq!(slowest(&status(json!([])), "p99"), "–");
    }
}
