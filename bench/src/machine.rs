//! Facts about this machine, and the commit of the working copy; its CPUs (`cpus`) and virtual interfaces (`namespaces`).

pub(crate) mod cpus;
pub(crate) mod namespaces;

use std::process::Command;
use std::time::SystemTime;

use crate::results::BenchMachine;

/// Describes this machine and the working copy.
pub(crate) fn here(rounds: usize, seconds: u64) -> BenchMachine {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    BenchMachine {
        cpu: field("model name"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory: memory(),
        kernel: read("/proc/sys/kernel/osrelease"),
        is_virtual: field("flags").split(' ').any(|flag| flag == "hypervisor"),
        commit: commit(),
        date: httpdate::fmt_http_date(SystemTime::now()),
        rounds,
        seconds,
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

fn memory() -> u64 {
    let text = read("/proc/meminfo");
    let total =
        text.lines().next().and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok());
    total.unwrap_or(0) * 1024
}

fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // The results of an earlier measurement do not change the measured program.
    let elsewhere = ["status", "--porcelain", "--", ".", ":!bench/results", ":!bench/RESULTS.md"];
    let is_changed = git(&elsewhere).is_some_and(|text| !text.is_empty());
    if is_changed { format!("{commit}, changed") } else { commit }
}
