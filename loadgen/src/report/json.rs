//! All figures as JSON. Other programs rely on the names: new words for a figure stand beside the older ones.

use serde_json::{Map, Value, json};

use super::Report;
use crate::plan::Loop;
use crate::results::check::Fault;
use crate::results::record::{QUANTILES, Summary};
use crate::run::Second;

impl Report {
    /// Returns the report as JSON text.
    pub(crate) fn json(&self, series: &[Second]) -> String {
        let (record, plan) = (&self.record, &self.plan);
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
            // Null for HTTP/1.1, as in the results of older versions.
            "http2": plan.http2.then_some(true),
            "pipeline": plan.pipeline,
            "renew": plan.renew,
            "requestLimit": plan.requests,
            "mix": plan.mix.to_string(),
            "zipf": plan.zipf,
            "headers": plan.headers.name(),
            "links": self.links,
            "durationSeconds": record.seconds,
            "warmupSeconds": plan.warmup.as_secs_f64(),
            "requests": self.requests(),
            "throughput": record.throughput(),
            "latencyMicros": {
                "corrected": kinds(|row| &row.intended),
                "uncorrected": kinds(|row| &row.actual),
                "intended": kinds(|row| &row.intended),
                "actual": kinds(|row| &row.actual),
            },
            "errors": errors,
            "series": series.iter().map(second).collect::<Vec<_>>(),
            "generator": self.generator(),
            "machine": { "cpuSeconds": record.machine },
            "slo": self.objectives.iter().map(|objective| json!({
                "objective": objective.text, "value": objective.value, "met": objective.held, "held": objective.held,
            })).collect::<Vec<_>>(),
            "search": self.found.iter().map(|step| json!({
                "rate": step.rate, "met": step.held, "held": step.held, "text": step.text,
            })).collect::<Vec<_>>(),
            "found": self.found_rate.as_ref().map(|found| json!({ "maxRate": found.rate, "text": found.text })),
            "interrupted": self.interrupted,
            "verdict": self.verdict.text(),
        });
        format!("{value:#}\n")
    }

    /// Returns the numbers of requests.
    fn requests(&self) -> Value {
        let counts = &self.record.counts;
        json!({
            "planned": counts.planned,
            "sent": counts.sent,
            "successful": counts.completed,
            "completed": counts.completed,
            "successfulInTime": counts.in_time,
            "completedInTime": counts.in_time,
            "late": counts.late_for_server + counts.late_for_generator,
            "lateForServer": counts.late_for_server,
            "lateForGenerator": counts.late_for_generator,
            "notSent": counts.unsent,
            "unsent": counts.unsent,
        })
    }

    /// Returns the load of the generator itself.
    fn generator(&self) -> Value {
        let record = &self.record;
        let lag = json!({ "p50": self.lag.quantiles[0], "p99": self.lag.quantiles[3], "max": self.lag.max });
        json!({
            "cpuSeconds": { "user": record.cpu.user, "system": record.cpu.system },
            "cpuMicrosPerRequest": record.cpu_micros_per_request(),
            "busiestThread": record.busiest,
            "displaced": record.displaced,
            "schedulerLagMicros": lag,
            "lagMicros": lag,
            "ceiling": self.ceiling(),
            "bottleneck": self.bottleneck.is_some(),
        })
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
