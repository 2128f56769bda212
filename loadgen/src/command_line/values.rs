//! Checks of single values of the command line. Each error says what would be right.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use carom_telemetry::readable;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plan::Target;

/// Maximum rate in requests per second: ten times the highest rate seen on one CPU.
pub(crate) const RATE_MAX: f64 = 20e6;

/// Maximum duration, a week: a longer one is a mistake.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Open files besides connections: the rings, reports, and those of the system.
const OTHER_FILES: u64 = 64;

/// Checks that a time is above zero and at most [`TIME_MAX`].
pub(crate) fn some_time(time: Duration) -> Result<Duration, String> {
    if time.is_zero() {
        Err("the time is zero; expected one such as 500ms or 20s".to_owned())
    } else {
        possible_time(time)
    }
}

/// Checks that a time is at most [`TIME_MAX`].
pub(crate) fn possible_time(time: Duration) -> Result<Duration, String> {
    if time <= TIME_MAX {
        Ok(time)
    } else {
        Err(format!("{} s is longer than a week; expected at most {} h", time.as_secs(), TIME_MAX.as_secs() / 3_600))
    }
}

/// Checks that a rate is at most [`RATE_MAX`].
pub(crate) fn possible_rate(rate: f64) -> Result<f64, String> {
    if rate <= RATE_MAX {
        Ok(rate)
    } else {
        Err(format!("{rate:.0}/s is too much; expected at most {}/s", readable::grouped(RATE_MAX as u64)))
    }
}

/// Checks that a count is at most `most`.
pub(crate) fn at_most(count: u64, most: u64) -> Result<u64, String> {
    if count <= most {
        Ok(count)
    } else {
        Err(format!("{} is too much; expected at most {}", readable::grouped(count), readable::grouped(most)))
    }
}

/// Raises the limit on open files if `connections` need more. Returns `connections`.
///
/// # Errors
/// A message with the limit, if it cannot be raised so far.
pub(crate) fn open_files(connections: u64) -> Result<u64, String> {
    let wanted = connections + OTHER_FILES;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted) {
        return Ok(connections);
    }
    let raised = Rlimit { current: Some(wanted), maximum: limits.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Ok(connections),
        Err(_) => {
            let most = limits.maximum.unwrap_or(0);
            Err(format!(
                "{connections} connections need {wanted} open files, but the limit is {most}; see `ulimit -Hn`"
            ))
        }
    }
}

/// Parses the exponent of Zipf's law.
pub(crate) fn exponent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=10.0).contains(value));
    value.ok_or_else(|| format!("`{text}` is not an exponent from 0 to 10; 1 is typical of web traffic"))
}

/// Checks a header field such as `Name: value`.
pub(crate) fn header(field: &str) -> Result<(), String> {
    let (name, _) =
        field.split_once(':').ok_or_else(|| format!("`{field}` is not a header field such as `Name: value`"))?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(format!("`{name}` is not a header name; expected letters, digits, - and _"));
    }
    visible(field)
}

/// Checks that client addresses are of the family of a target.
pub(crate) fn reachable_from(clients: &[IpAddr], target: &Target) -> Result<(), String> {
    match clients.iter().find(|client| client.is_ipv4() != target.address.is_ipv4()) {
        None => Ok(()),
        Some(client) => Err(format!("{client} is not of the address family of {}", target.address)),
    }
}

/// Checks that a text cannot end a line of a request. The text may be secret, so the error does not show it.
pub(crate) fn visible(text: &str) -> Result<(), String> {
    if text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err("contains a character that is not printable ASCII".to_owned())
    }
}

/// Checks that a report can be written to a path, before a run of hours.
pub(crate) fn is_writable(path: &Path) -> Result<(), String> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(|_| ()).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Returns the CPU of each of `threads` threads: those of `list`, or the last ones that this process may use.
/// `is_given` is true if the user chose the number of threads.
pub(crate) fn cpus(list: Option<&str>, threads: usize, is_given: bool) -> Result<Vec<usize>, String> {
    let allowed = rustix::thread::sched_getaffinity(None).map_err(|error| error.to_string())?;
    let allowed: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let Some(list) = list else {
        if threads > allowed.len() {
            return Err(format!(
                "{threads} threads need as many CPUs, but this process may use only {}",
                allowed.len()
            ));
        }
        return Ok(allowed[allowed.len() - threads..].to_vec());
    };
    let mut cpus = Vec::new();
    for text in list.split(',') {
        let cpu = text.trim().parse().map_err(|_| format!("`{text}` is not a CPU number"))?;
        if !allowed.contains(&cpu) {
            return Err(format!("this process may not use CPU {cpu}; choose from {allowed:?}"));
        }
        if cpus.contains(&cpu) {
            return Err(format!("CPU {cpu} is listed twice; each thread needs its own"));
        }
        cpus.push(cpu);
    }
    if is_given && cpus.len() != threads {
        return Err(format!("lists {} CPUs, but --threads is {threads}; list one per thread", cpus.len()));
    }
    Ok(cpus)
}
