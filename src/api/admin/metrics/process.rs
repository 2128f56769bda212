//! Metrics of the process that the operating system keeps, under the names that all exporters use.

use std::fs;

use rustix::process::{Resource, getrlimit};

use carom_telemetry::exposition::{Exposition, MetricKind, MetricLabels};

/// Adds the metrics of the process. Values that cannot be read are left out.
pub(super) fn write(out: &mut Exposition) {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return };
    // The name in parentheses may contain anything, so fields are counted from behind it (proc(5)): the first is
    // number 3.
    let Some((_, behind)) = stat.rsplit_once(") ") else { return };
    let field =
        |number: usize| behind.split(' ').nth(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    out.family("process_cpu_seconds_total", MetricKind::Counter, "CPU time used, user and system.");
    out.sample(&MetricLabels::none(), (field(14) + field(15)) as f64 / ticks);
    out.family("process_resident_memory_bytes", MetricKind::Gauge, "Resident memory.");
    out.sample(&MetricLabels::none(), field(24) * rustix::param::page_size() as u64);
    out.family("process_virtual_memory_bytes", MetricKind::Gauge, "Virtual memory.");
    out.sample(&MetricLabels::none(), field(23));
    out.family("process_threads", MetricKind::Gauge, "Threads.");
    out.sample(&MetricLabels::none(), field(20));
    if let Some(boot) = boot_seconds() {
        out.family(
            "process_start_time_seconds",
            MetricKind::Gauge,
            "Start time of the process, in seconds since 1970 UTC.",
        );
        out.sample(&MetricLabels::none(), boot as f64 + field(22) as f64 / ticks);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        out.family("process_open_fds", MetricKind::Gauge, "Open file descriptors.");
        out.sample(&MetricLabels::none(), open.count());
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        out.family("process_max_fds", MetricKind::Gauge, "Limit on open file descriptors.");
        out.sample(&MetricLabels::none(), most);
    }
}

/// Returns the boot time of the machine, in seconds since 1970 UTC.
fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
