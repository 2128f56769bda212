//! Quantiles of the latencies between two status documents.

use std::collections::BTreeMap;

use serde_json::Value;

/// Number of requests by latency, in nanoseconds.
pub(super) type LatencyCounts = BTreeMap<u64, u64>;

/// Quantiles of latencies, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

/// Returns the requests of a core between two documents, by latency.
pub(super) fn between(before: &Value, now: &Value) -> LatencyCounts {
    let before = steps(before);
    let mut steps = steps(now);
    for (nanos, count) in &mut steps {
        *count = count.saturating_sub(before.get(nanos).copied().unwrap_or(0));
    }
    steps.retain(|_, count| *count > 0);
    steps
}

/// Adds the requests of a core to those of others.
pub(super) fn add(total: &mut LatencyCounts, steps: &LatencyCounts) {
    for (nanos, count) in steps {
        *total.entry(*nanos).or_default() += count;
    }
}

/// Returns the requests of a core since its start. A core that did not report in time has none.
fn steps(core: &Value) -> LatencyCounts {
    let list = core.pointer("/latencyMicros/stepsNanos").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|step| Some((step[0].as_u64()?, step[1].as_u64()?))).collect()
}

impl Quantiles {
    /// Returns the quantiles; `None` without requests.
    pub(super) fn of(steps: &LatencyCounts) -> Option<Quantiles> {
        let total: u64 = steps.values().sum();
        let quantile = |share: f64| {
            let wanted = ((total as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let reached = steps.iter().find(|(_, count)| {
                seen += **count;
                seen >= wanted
            });
            reached.map(|(nanos, _)| *nanos as f64 / 1_000.0)
        };
        Some(Quantiles { p50: quantile(0.5)?, p99: quantile(0.99)?, p999: quantile(0.999)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantiles_are_those_of_the_time_in_between() {
        let before = json!({"latencyMicros": {"stepsNanos": [[10_000, 1_000]]}});
        let now = json!({"latencyMicros": {"stepsNanos": [[10_000, 1_090], [500_000, 9], [9_000_000, 1]]}});
        let steps = between(&before, &now);
        assert_eq!(steps, LatencyCounts::from([(10_000, 90), (500_000, 9), (9_000_000, 1)]));
        let quantiles = Quantiles::of(&steps).unwrap();
        assert_eq!((quantiles.p50, quantiles.p99, quantiles.p999), (10.0, 500.0, 9_000.0));
        assert_eq!(Quantiles::of(&between(&now, &now)), None);
    }

    #[test]
    fn cores_without_latencies_have_no_quantiles() {
        for core in [json!({}), json!({"latencyMicros": null}), json!({"latencyMicros": {"stepsNanos": [1, "a", []]}})]
        {
            assert_eq!(Quantiles::of(&between(&core, &core)), None, "{core}");
        }
    }

    #[test]
    fn cores_are_added_up() {
        let mut total = LatencyCounts::from([(1, 2)]);
        add(&mut total, &LatencyCounts::from([(1, 3), (4, 5)]));
        assert_eq!(total, LatencyCounts::from([(1, 5), (4, 5)]));
    }
}
