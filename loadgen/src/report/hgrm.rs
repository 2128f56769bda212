//! The percentile distribution as text, in the form that HdrHistogram's plotters read:
//! `Histogram.outputPercentileDistribution` of HdrHistogram's Java version, with 5 steps in each half of the
//! distance to 100 %.

use std::fmt::Write as _;

use super::Report;

/// Steps in each half of the distance to 100 %.
const TICKS_PER_HALF: u32 = 5;

impl Report {
    /// Returns the distribution of all requests from the intended instant, in milliseconds.
    pub(crate) fn hgrm(&self) -> String {
        let histogram = self.record.all().intended;
        let mut out =
            format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
        let mut count = 0;
        for step in histogram.iter_quantiles(TICKS_PER_HALF) {
            count += step.count_since_last_iteration();
            let (value, quantile) = (step.value_iterated_to() as f64 / 1e6, step.quantile_iterated_to());
            // Writing to a string cannot fail.
            let _ = if quantile < 1.0 {
                writeln!(out, "{value:12.6} {quantile:2.12} {count:10} {:14.2}", 1.0 / (1.0 - quantile))
            } else {
                writeln!(out, "{value:12.6} {quantile:2.12} {count:10}")
            };
        }
        let (mean, deviation) = (histogram.mean() / 1e6, histogram.stdev() / 1e6);
        let (max, total) = (histogram.max() as f64 / 1e6, histogram.len());
        let _ = writeln!(out, "#[Mean    = {mean:12.6}, StdDeviation   = {deviation:12.6}]");
        let _ = writeln!(out, "#[Max     = {max:12.6}, Total count    = {total:12}]");
        let (buckets, sub_buckets) =
            (histogram.buckets(), histogram.distinct_values() / usize::from(histogram.buckets()).max(1));
        let _ = writeln!(out, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]");
        out
    }
}
