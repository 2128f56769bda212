//! The CPUs that the cores run on.

use std::fmt;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::problem::{InvalidValue, Warning, quoted};
use crate::value::{self, Written};
use carom_telemetry::readable;

/// Maximum number of cores. More than any machine of today has CPUs, and the most CPUs in the kernel's usual mask.
const CORES_MAX: usize = CpuSet::MAX_CPU;

/// The configured CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuChoice {
    /// One core on each CPU that the process may use.
    All,
    /// A number of cores, at least 1, on the first CPUs that the process may use.
    Count(usize),
    /// One core on each of these CPUs, without duplicates.
    List(Vec<usize>),
}

/// The cores of the node, assigned to CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cores {
    /// The configured CPUs.
    pub choice: CpuChoice,
    /// The CPU of each core. At least one, and several cores may share a CPU.
    pub cpus: Vec<usize>,
}

impl fmt::Display for CpuChoice {
    /// Formats the choice as in settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuChoice::All => f.write_str("all"),
            CpuChoice::Count(count) => write!(f, "{count}"),
            CpuChoice::List(cpus) => f.write_str(&ranges(cpus)),
        }
    }
}

/// Formats a list as in settings: ranges such as `4-7`, and never a single number, which would be a count.
pub(crate) fn ranges(cpus: &[usize]) -> String {
    match cpus {
        [cpu] => format!("{cpu}-{cpu}"),
        cpus => runs(cpus),
    }
}

/// Formats a list for people: `0`, `0-3` or `0-3,6`.
fn runs(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let run =
        |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Describes the cores for people, such as `1 core on CPU 0` or `4 cores on CPUs 0-3`.
pub(crate) fn on_cpus(cpus: &[usize]) -> String {
    let cores = if cpus.len() == 1 { "core" } else { "cores" };
    let several = if cpus.iter().all(|cpu| Some(cpu) == cpus.first()) { "CPU" } else { "CPUs" };
    let mut distinct = cpus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    format!("{} {cores} on {several} {}", cpus.len(), runs(&distinct))
}

/// Reads a count, a list or `all`.
pub(crate) fn parse(written: &Written) -> Result<CpuChoice, InvalidValue> {
    let text = match written {
        Written::Integer(digits) => digits,
        Written::List(_) => {
            return Err(InvalidValue::new("is a list", "write \"0,2,4-7\" in quotes"));
        }
        other => value::text(other)?.trim(),
    };
    if text.eq_ignore_ascii_case("all") {
        return Ok(CpuChoice::All);
    }
    if !text.contains([',', '-']) || text.starts_with('-') {
        let count = value::integer(&Written::Word(text.to_owned()), 1, CORES_MAX as u64);
        return count
            .map(|count| CpuChoice::Count(count as usize))
            .map_err(|wrong| InvalidValue { right: right(), ..wrong });
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        for cpu in run(part.trim())? {
            if cpus.contains(&cpu) {
                return Err(InvalidValue::new(format!("lists CPU {cpu} twice"), "list each CPU once"));
            }
            cpus.push(cpu);
        }
    }
    Ok(CpuChoice::List(cpus))
}

fn run(part: &str) -> Result<std::ops::RangeInclusive<usize>, InvalidValue> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    // `parse` accepts a sign, which would hide a typo such as `0-+3`.
    let number = |text: &str| {
        let text = text.trim();
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<usize>().ok()).flatten()
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last && last < CORES_MAX => Ok(first..=last),
        (Some(first), Some(last)) if first > last => {
            Err(InvalidValue::new(format!("{} ends before it starts", quoted(part)), right()))
        }
        (Some(_), Some(last)) => Err(InvalidValue::new(format!("CPU {last} is above {}", CORES_MAX - 1), right())),
        _ => Err(InvalidValue::new(format!("{} is neither a CPU nor a range of CPUs", quoted(part)), right())),
    }
}

fn right() -> String {
    format!("write a number of cores from 1 to {CORES_MAX}, or CPUs such as 0,2,4-7; for one CPU, 3-3")
}

/// Assigns a CPU to each core, given the CPUs that the process may use (at least one).
pub(crate) fn resolve(choice: CpuChoice, allowed: &[usize]) -> Result<(Cores, Option<Warning>), InvalidValue> {
    let (cpus, warning) = match &choice {
        CpuChoice::All => (allowed.to_vec(), None),
        CpuChoice::Count(count) => {
            let cpus: Vec<usize> = allowed.iter().copied().cycle().take(*count).collect();
            let crowded = format!(
                "cores: {count} cores share {}, which slows redirects down; set at most one core per CPU",
                readable::count(allowed.len() as u64, "CPU")
            );
            (cpus, (*count > allowed.len()).then_some(Warning(crowded)))
        }
        CpuChoice::List(list) => {
            let denied: Vec<usize> = list.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
            if !denied.is_empty() {
                let plural = if denied.len() == 1 { "CPU" } else { "CPUs" };
                let reason = format!("this process may not use {plural} {}", join(&denied));
                return Err(InvalidValue::new(reason, format!("choose from CPUs {}", join(allowed))));
            }
            (list.clone(), None)
        }
    };
    Ok((Cores { choice, cpus }, warning))
}

fn join(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the CPUs that the kernel lets this process use, in order; at least one.
pub(crate) fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        // The kernel rejects a mask of this size only if it may have more than 1,024 CPUs; they are counted then.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CpuChoice, InvalidValue> {
        parse(&Written::Word(text.to_owned()))
    }

    #[test]
    fn a_bare_number_is_a_count_and_a_run_is_a_list() {
        assert_eq!(read("4"), Ok(CpuChoice::Count(4)));
        assert_eq!(parse(&Written::Integer("4".into())), Ok(CpuChoice::Count(4)));
        assert_eq!(read("3-3"), Ok(CpuChoice::List(vec![3])));
        assert_eq!(read("0, 2,4-7"), Ok(CpuChoice::List(vec![0, 2, 4, 5, 6, 7])));
        assert_eq!(read("All"), Ok(CpuChoice::All));
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in
            ["0", "-1", "1025", "", "a", "1,", "1-", "-", "3-1", "0,0", "0-2,1", "0-1024", "0-+3", "1-2-3", "1;2"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&Written::List(vec![])).is_err());
        assert!(parse(&Written::Bool(true)).is_err());
    }

    #[test]
    fn what_is_shown_is_read_back_as_the_same() {
        for choice in [
            CpuChoice::All,
            CpuChoice::Count(3),
            CpuChoice::List(vec![3]),
            CpuChoice::List(vec![0, 2]),
            CpuChoice::List(vec![0, 2, 4, 5, 6]),
            CpuChoice::List(vec![5, 4, 0]),
        ] {
            assert_eq!(read(&choice.to_string()), Ok(choice));
        }
    }

    #[test]
    fn cores_are_described_in_words_that_fit_their_number() {
        let described = [&[0][..], &[3, 3], &[0, 1], &[0, 1, 0], &[5, 2, 3, 4, 9]].map(on_cpus);
        assert_eq!(
            described,
            [
                "1 core on CPU 0",
                "2 cores on CPU 3",
                "2 cores on CPUs 0-1",
                "3 cores on CPUs 0-1",
                "5 cores on CPUs 2-5,9"
            ]
        );
    }

    #[test]
    fn a_count_above_the_cpus_wraps_with_a_warning() {
        let (cores, warning) = resolve(CpuChoice::Count(5), &[1, 3]).unwrap();
        assert_eq!(cores.cpus, [1, 3, 1, 3, 1]);
        assert!(warning.is_some());
        let (cores, warning) = resolve(CpuChoice::Count(2), &[1, 3, 4]).unwrap();
        assert_eq!((cores.cpus.as_slice(), warning), ([1, 3].as_slice(), None));
    }

    #[test]
    fn a_list_is_taken_whole_or_refused() {
        assert_eq!(resolve(CpuChoice::List(vec![3, 1]), &[1, 3]).unwrap().0.cpus, [3, 1]);
        let wrong = resolve(CpuChoice::List(vec![0, 1, 2]), &[1, 3]).unwrap_err();
        assert_eq!(wrong.reason, "this process may not use CPUs 0, 2");
        assert_eq!(wrong.right, "choose from CPUs 1, 3");
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        assert!(!allowed().is_empty());
    }
}
