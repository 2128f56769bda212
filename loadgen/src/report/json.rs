//! All figures as JSON. Other programs rely on the names.

use serde_json::{Map, Value, json};

use super::Report;
use crate::check::Fault;
use crate::plan::Loop;
use crate::record::{QUANTILES, Summary};
use crate::run::Second;

impl Report {
    /// Returns the report as JSON text.
    pub(crate) fn json(&self, series: &[Second]) -> String {
        let (record, counts, plan) = (&self.record, &self.record.counts, &self.plan);
        let (arrival, rate) = match plan.pace {
            Loop::Open { arrival, rate } => (json!(arrival.name()), json!(rate)),
            Loop::Closed => (Value::Null, Value::Null),
        };
        let kinds = |pick: fn(&super::LatencyRow) -> &Summary| {
            Value::Object(self.rows.iter().map(|row| (row.name.to_owned(), summary(pick(row)))).collect())
        };
        let mut errors: Map<String, Value> =
            Fault::ALL.into_iter().map(|fault| (fault.name().to_owned(), json!(record.fault(fault)))).collect();
        errors.insert("total".to_owned(), json!(record.errors()));
        let value = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "seed": plan.seed,
            "targets": plan.targets.iter().map(|target| &target.name).collect::<Vec<_>>(),
            "mode": if self.is_open() { "open" } else { "closed" },
            "arrival": arrival,
            "rate": rate,
            "connections": plan.connections,
            "threads": plan.cpus.len(),
            "cpus": plan.cpus,
            "pipeline": plan.pipeline,
            "renew": plan.renew,
            "requestLimit": plan.requests,
            "mix": plan.mix.to_string(),
            "zipf": plan.zipf,
            "headers": plan.headers.name(),
            "links": self.links,
            "durationSeconds": record.seconds,
            "warmupSeconds": plan.warmup.as_secs_f64(),
            "requests": {
                "planned": counts.planned,
                "sent": counts.sent,
                "completed": counts.completed,
                "completedInTime": counts.in_time,
                "late": counts.late_for_server + counts.late_for_generator,
                "lateForServer": counts.late_for_server,
                "lateForGenerator": counts.late_for_generator,
                "unsent": counts.unsent,
            },
            "throughput": record.throughput(),
            "latencyMicros": { "intended": kinds(|row| &row.intended), "actual": kinds(|row| &row.actual) },
            "errors": errors,
            "series": series.iter().map(second).collect::<Vec<_>>(),
            "generator": {
                "cpuSeconds": { "user": record.cpu.user, "system": record.cpu.system },
                "cpuMicrosPerRequest": record.cpu_micros_per_request(),
                "busiestThread": record.busiest,
                "displaced": record.displaced,
                "lagMicros": { "p50": self.lag.quantiles[0], "p99": self.lag.quantiles[3], "max": self.lag.max },
                "ceiling": self.ceiling(),
                "bottleneck": self.bottleneck.is_some(),
            },
            "machine": { "cpuSeconds": record.machine },
            "slo": self.judged.iter().map(|judged| json!({
                "objective": judged.text, "value": judged.value, "held": judged.held,
            })).collect::<Vec<_>>(),
            "search": self.found.iter().map(|step| json!({
                "rate": step.rate, "held": step.held, "text": step.text,
            })).collect::<Vec<_>>(),
            "interrupted": self.interrupted,
            "verdict": self.verdict.text(),
        });
        format!("{value:#}\n")
    }
}

fn summary(summary: &Summary) -> Value {
    let mut fields = Map::new();
    fields.insert("count".to_owned(), json!(summary.count));
    fields.insert("mean".to_owned(), json!(summary.mean));
    for ((name, _), value) in QUANTILES.iter().zip(summary.quantiles) {
        fields.insert((*name).to_owned(), json!(value));
    }
    fields.insert("max".to_owned(), json!(summary.max));
    Value::Object(fields)
}

fn second(second: &Second) -> Value {
    json!({
        "second": second.second,
        "completed": second.completed,
        "errors": second.errors,
        "p50": second.summary.quantiles[0],
        "p99": second.summary.quantiles[3],
        "max": second.summary.max,
    })
}
