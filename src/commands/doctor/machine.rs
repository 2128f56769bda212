//! Checks of the machine: kernel, limits, disk, interrupts and clock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::system::uname;

use super::finding::CheckResult;
use crate::startup::data_dir::saved_rules_note;
use crate::startup::preflight;
use carom_settings::Settings;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// Writes whose sync is timed.
const SYNCS: usize = 32;

/// Bytes of a write whose sync is timed.
const SYNC_LEN: usize = 4_096;

/// Time of a sync from which on the disk is slow: a create waits for one, and often for two.
const SYNC_SLOW: Duration = Duration::from_millis(10);

/// Time for an answer of `timedatectl`.
const CLOCK_TIME: Duration = Duration::from_secs(5);

/// Backlog that a machine with redirects should allow, as `60-carom.conf` of the package sets it.
const BACKLOG: u64 = 65_535;

/// An instant in the past, in milliseconds since 1970 UTC: 2026-01-01. A clock before it is wrong.
const PAST_MS: u64 = 1_767_225_600_000;

/// Checks the machine for a node with these settings.
pub(super) fn findings(settings: &Settings) -> Vec<CheckResult> {
    let cores = settings.cores.cpus.len();
    let mut findings = vec![
        CheckResult::of(preflight::ring().map(|()| kernel())),
        CheckResult::of(preflight::locked_memory(cores).map(|()| "enough memory can be locked".to_owned())),
        CheckResult::of(preflight::open_files(cores).map(|limit| format!("{} open files", readable::grouped(limit)))),
    ];
    findings.extend(data_dir(&settings.data_dir));
    findings.extend(destination_rules(&settings.data_dir));
    findings.push(backlog(fs::read_to_string("/proc/sys/net/core/somaxconn").ok().as_deref()));
    findings.extend(interrupts(Path::new("/"), thread::available_parallelism().map_or(1, usize::from)));
    findings.push(clock(unix_ms(), is_synchronised()));
    findings
}

fn kernel() -> String {
    format!("Linux {} with the io_uring operations that carom needs", uname().release().to_string_lossy())
}

/// Checks the data directory without creating it: `carom doctor` may run as another user than the node.
fn data_dir(path: &Path) -> Vec<CheckResult> {
    if !path.exists() {
        let text = format!("the data directory {} does not exist yet", path.display());
        return vec![CheckResult::warning(text, "`carom serve` creates it; or pass --data-dir or --config")];
    }
    let free = preflight::data_dir(path);
    let is_writable = free.is_ok();
    let text = |free: u64| format!("{} can be written, {} MiB free", path.display(), readable::grouped(free >> 20));
    let mut findings = vec![CheckResult::of(free.map(text))];
    if is_writable {
        findings.push(match sync_times(path) {
            Ok(times) => check_sync_times(times),
            Err(error) => CheckResult::error(format!("{} cannot be synced: {error}", path.display()), "check the disk"),
        });
    }
    findings
}

/// Says if saved destination rules apply instead of those of the settings.
fn destination_rules(data_dir: &Path) -> Option<CheckResult> {
    saved_rules_note(data_dir).transpose().map(CheckResult::of)
}

/// Returns the times that small writes take to reach the disk.
fn sync_times(folder: &Path) -> io::Result<Vec<Duration>> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let timed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(time_syncs);
    let removed = fs::remove_file(&path);
    let times = timed?;
    removed.map(|()| times)
}

fn time_syncs(mut file: File) -> io::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.write_all(&[0; SYNC_LEN])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn check_sync_times(mut times: Vec<Duration>) -> CheckResult {
    times.sort();
    let latency = |at: usize| readable::latency(times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6));
    let text = format!("a sync of the disk takes {}, at most {}", latency(times.len() / 2), latency(times.len() - 1));
    if times[times.len() / 2] < SYNC_SLOW {
        return CheckResult::ok(text);
    }
    CheckResult::warning(text, "creates wait for syncs: put data_dir on a local SSD, not on a network or shared disk")
}

fn backlog(text: Option<&str>) -> CheckResult {
    match text.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(most) if most < BACKLOG => CheckResult::warning(
            format!("net.core.somaxconn is {most}: bursts of connections are dropped"),
            format!("sysctl -w net.core.somaxconn={BACKLOG}; the Debian package sets it at boot"),
        ),
        Some(most) => CheckResult::ok(format!("net.core.somaxconn is {most}")),
        None => CheckResult::ok("net.core.somaxconn cannot be read here"),
    }
}

/// Checks that the interrupts of no network card go to one of several CPUs alone. `root` is `/`, except in tests.
fn interrupts(root: &Path, cpus: usize) -> Vec<CheckResult> {
    let Ok(cards) = fs::read_dir(root.join("sys/class/net")) else { return Vec::new() };
    if cpus < 2 {
        return Vec::new();
    }
    let mut names: Vec<_> = cards.filter_map(|card| Some(card.ok()?.file_name())).collect();
    names.sort();
    let mut findings = Vec::new();
    for name in names {
        let numbers = fs::read_dir(root.join("sys/class/net").join(&name).join("device/msi_irqs"));
        let numbers = numbers.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
        let cpus: Vec<String> = numbers.filter_map(|number| cpus_of(root, Path::new(&number))).collect();
        let name = name.to_string_lossy();
        // A card with one queue has no choice.
        let Some(first) = cpus.first().filter(|_| cpus.len() > 2) else { continue };
        let is_single = first.bytes().all(|byte| byte.is_ascii_digit());
        if is_single && cpus.iter().all(|other| other == first) {
            findings.push(CheckResult::warning(
                format!("all {} interrupts of {name} go to CPU {first}", cpus.len()),
                format!("carom-affinity --interface {name}"),
            ));
        } else {
            findings.push(CheckResult::ok(format!("the {} interrupts of {name} are distributed", cpus.len())));
        }
    }
    findings
}

/// Returns the CPUs that an interrupt goes to; `None` for one that is not in use.
fn cpus_of(root: &Path, number: &Path) -> Option<String> {
    let folder = root.join("proc/irq").join(number);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    let text = read("effective_affinity_list").filter(|text| !text.is_empty());
    text.or_else(|| read("smp_affinity_list")).filter(|text| !text.is_empty())
}

/// Asks systemd whether the clock is synchronised; `None` if systemd does not know, or does not answer in time.
fn is_synchronised() -> Option<bool> {
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let output = Command::new("timedatectl").args(["show", "--property=NTPSynchronized", "--value"]).output();
        // After the time has passed, nobody waits for it.
        let _ = sender.send(output);
    });
    let output = answer.recv_timeout(CLOCK_TIME).ok()?.ok()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn clock(now_ms: u64, is_synchronised: Option<bool>) -> CheckResult {
    let shown = carom_model::formats::dates::format(carom_model::formats::dates::whole_second(now_ms));
    match is_synchronised {
        _ if now_ms < PAST_MS => CheckResult::error(
            format!("the clock says {shown}, which is in the past"),
            "timedatectl set-ntp true; start and expiry dates of links follow the clock",
        ),
        Some(true) => CheckResult::ok(format!("the clock is synchronised: {shown}")),
        Some(false) => CheckResult::warning(
            format!("the clock is not synchronised: {shown}"),
            "timedatectl set-ntp true; the nodes of a fleet must agree on the time within a second",
        ),
        None => CheckResult::ok(format!("the clock says {shown}; timedatectl cannot say whether it is synchronised")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::CheckSeverity;

    #[test]
    fn slow_disks_and_short_backlogs_are_warnings() {
        let of_millis = |millis: u64| check_sync_times(vec![Duration::from_millis(millis); 5]);
        assert_eq!(of_millis(1).health, CheckSeverity::Ok);
        assert_eq!(of_millis(10).health, CheckSeverity::Warning);
        assert!(backlog(Some("4096\n")).remedy.contains("65535"));
        assert_eq!(backlog(Some("65535\n")).health, CheckSeverity::Ok);
        assert_eq!(backlog(None).health, CheckSeverity::Ok);
    }

    #[test]
    fn syncs_are_timed_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(sync_times(folder.path()).unwrap().len(), SYNCS);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = folder.path().join("missing");
        assert!(data_dir(&missing)[0].text.contains("does not exist"));
        assert!(!missing.exists());
        assert_eq!(data_dir(folder.path()).len(), 2);
    }

    #[test]
    fn interrupts_on_one_cpu_are_found() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (card, number, cpu) in [("eth0", 30, "0"), ("eth0", 31, "0"), ("eth0", 32, "0"), ("eth1", 40, "0")] {
            put(format!("sys/class/net/{card}/device/msi_irqs/{number}"), "");
            put(format!("proc/irq/{number}/effective_affinity_list"), cpu);
        }
        let found = interrupts(root.path(), 4);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("all 3 interrupts of eth0 go to CPU 0"), "{found:?}");
        put("proc/irq/31/effective_affinity_list".to_owned(), "1\n");
        assert_eq!(interrupts(root.path(), 4)[0].health, CheckSeverity::Ok);
    }

    #[test]
    fn wrong_clocks_are_found() {
        assert_eq!(clock(1_000, Some(true)).health, CheckSeverity::Error);
        assert_eq!(clock(PAST_MS, Some(true)).health, CheckSeverity::Ok);
        assert_eq!(clock(PAST_MS, Some(false)).health, CheckSeverity::Warning);
        assert_eq!(clock(PAST_MS, None).health, CheckSeverity::Ok);
    }
}
