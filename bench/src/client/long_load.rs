//! A load that lasts until it is stopped. Its figures are those of the whole time and, exactly, those of its parts.

use std::fs::File;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use data_encoding::BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Load, Scenario};
use crate::results::Sample;
use crate::servers::peers::BenchDirs;
use crate::servers::process::ServerCpu;

/// Exit code of the generator if a signal has ended a run without wrong answers.
const INTERRUPTED: i32 = 130;

/// A running load. Dropping it ends it without figures.
#[derive(Debug)]
pub(crate) struct LongLoad {
    child: Child,
    report: PathBuf,
    /// Histograms of each second.
    log: PathBuf,
    messages: PathBuf,
}

/// Figures of a load that was stopped.
#[derive(Debug)]
pub(crate) struct LongRun {
    /// Figures of all requests.
    pub(crate) whole: Sample,
    /// Latencies of each second from the intended instant, in nanoseconds.
    seconds: Vec<Histogram<u64>>,
}

impl LongLoad {
    /// Starts a load. It must be stopped before its time is over.
    pub(crate) fn start(load: &Load, scenario: &Scenario, place: &BenchDirs) -> Result<LongLoad> {
        let [report, log, messages] =
            ["json", "hlog", "log"].map(|kind| place.scratch.join(format!("long-load.{kind}")));
        let output = File::create(&messages).with_context(|| format!("{} cannot be made", messages.display()))?;
        let mut command = super::command(load, scenario, place, &report);
        command.arg("--hlog").arg(&log).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.spawn().context("carom-loadgen cannot be started")?;
        Ok(LongLoad { child, report, log, messages })
    }

    /// Stops the load. All requests until then count.
    ///
    /// # Errors
    /// If the load has ended by itself, or an answer was wrong.
    pub(crate) fn stop(mut self) -> Result<LongRun> {
        // SIGINT makes the generator write its figures. A process that has ended takes the signal until it is waited for.
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        let status = self.child.wait()?;
        if status.code() != Some(INTERRUPTED) {
            let said = std::fs::read_to_string(&self.messages).unwrap_or_default();
            bail!("carom-loadgen ended with {status}: {said}");
        }
        let json: Value = serde_json::from_slice(&std::fs::read(&self.report)?)?;
        let whole = super::sample(&json, ServerCpu::default())?;
        Ok(LongRun { whole, seconds: histograms(&std::fs::read(&self.log)?)? })
    }
}

impl Drop for LongLoad {
    fn drop(&mut self) {
        // After `stop`, the process has ended, and both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LongRun {
    /// Returns the largest 99th percentile of the parts of this run, in microseconds. Each part has `seconds`, and the last
    /// one also has the remaining seconds.
    pub(crate) fn worst_p99(&self, seconds: usize) -> Result<f64> {
        let seconds = seconds.max(1);
        let parts = (self.seconds.len() / seconds).max(1);
        let mut worst: f64 = 0.0;
        for part in 0..parts {
            let end = if part + 1 == parts { self.seconds.len() } else { (part + 1) * seconds };
            let Some((first, others)) = self.seconds[part * seconds..end].split_first() else { continue };
            let mut merged = first.clone();
            for other in others {
                merged.add(other)?;
            }
            worst = worst.max(merged.value_at_quantile(0.99) as f64 / 1e3);
        }
        Ok(worst)
    }
}

/// Returns the histograms of a log of the generator, in order.
fn histograms(log: &[u8]) -> Result<Vec<Histogram<u64>>> {
    let mut seconds = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        let entry = entry.map_err(|error| anyhow!("the log of latencies cannot be read: {error:?}"))?;
        if let LogEntry::Interval(second) = entry {
            let packed = BASE64.decode(second.encoded_histogram().as_bytes())?;
            seconds.push(Deserializer::new().deserialize::<u64, _>(&mut Cursor::new(packed))?);
        }
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use hdrhistogram::serialization::V2DeflateSerializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

    use super::*;

    /// Returns a log as the generator writes it, with a hundred requests of so many microseconds in each second.
    fn log(micros: &[u64]) -> Vec<u8> {
        let (mut out, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        let mut builder = IntervalLogWriterBuilder::new();
        builder.with_base_time(SystemTime::UNIX_EPOCH).with_max_value_divisor(1e6);
        let mut writer = builder.begin_log_with(&mut out, &mut serializer).unwrap();
        for (second, micros) in micros.iter().enumerate() {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
            histogram.record_n(micros * 1_000, 100).unwrap();
            let start = Duration::from_secs(second as u64);
            writer.write_histogram(&histogram, start, Duration::from_secs(1), None::<Tag<'_>>).unwrap();
        }
        out
    }

    fn worst_p99(micros: &[u64], seconds: usize) -> f64 {
        let run = LongRun { whole: Sample::default(), seconds: histograms(&log(micros)).unwrap() };
        run.worst_p99(seconds).unwrap()
    }

    #[test]
    fn worst_part_is_found_by_its_merged_requests() {
        let is_about = |value: f64, micros: f64| (value / micros - 1.0).abs() < 0.002;
        assert!(is_about(worst_p99(&[1_000, 9_000, 1_000, 1_000], 1), 9_000.0));
        assert!(is_about(worst_p99(&[1_000, 2_000, 4_000, 3_000], 2), 4_000.0));
        // The fifth second belongs to the second part.
        assert!(is_about(worst_p99(&[1_000, 1_000, 1_000, 1_000, 7_000], 2), 7_000.0));
        // A slow second is less than a hundredth of a long part.
        let mut long = [1_000; 200];
        long[50] = 9_000;
        assert!(is_about(worst_p99(&long, 200), 1_000.0));
        assert_eq!((worst_p99(&[], 5), is_about(worst_p99(&[2_000], 5), 2_000.0)), (0.0, true));
    }
}
