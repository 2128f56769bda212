//! Instructions of the small functions, counted by valgrind's callgrind. The counts do not depend on the load of
//! the machine, so a regression of a few percent shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::micro;
use crate::terminal::say;

/// Repetitions of the longer of two runs; the shorter does half of them. The difference excludes the preparation.
const REPETITIONS: u64 = 2_000;

/// Share of growth from which a function counts as slower.
const GROWTH_MAX: f64 = 0.05;

/// Counts all functions, compares the counts with `file`, and saves them if `save` is true.
///
/// # Errors
/// If valgrind is missing, or a function has grown by more than [`GROWTH_MAX`].
pub(crate) fn run(file: &Path, save: bool) -> Result<()> {
    let known: BTreeMap<String, u64> = match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is not readable", file.display()))?,
        Err(_) => BTreeMap::new(),
    };
    let mut counted = BTreeMap::new();
    for name in micro::NAMES {
        say(name);
        let each = (count(name, REPETITIONS)? - count(name, REPETITIONS / 2)?) / (REPETITIONS / 2);
        counted.insert(name.to_owned(), each);
    }
    let (table, grown) = compare(&counted, &known);
    say(&table);
    if save {
        std::fs::write(file, serde_json::to_string_pretty(&counted)? + "\n")?;
        say(&format!("written to {}", file.display()));
    } else if !grown.is_empty() {
        bail!("more instructions than before: {}; if that is meant, use --save", grown.join(", "));
    }
    Ok(())
}

/// Repeats a piece of work `times` times. Run under callgrind.
pub(crate) fn repeat(name: &str, times: u64) {
    let mut work = micro::work(name);
    (0..times).for_each(&mut work);
}

fn count(name: &str, times: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["repeat", name, &times.to_string()])
        .output()
        .context("valgrind cannot be started; install the Debian package valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    let collected = line.and_then(|(_, count)| count.trim().parse().ok());
    collected.with_context(|| format!("callgrind counted nothing of `{name}`: {text}"))
}

/// Returns the table, and the names of the functions that have grown.
fn compare(counted: &BTreeMap<String, u64>, known: &BTreeMap<String, u64>) -> (String, Vec<String>) {
    let mut table = format!("{:<40}{:>12}{:>12}{:>9}\n", "instructions", "now", "before", "change");
    let mut grown = Vec::new();
    for (name, &now) in counted {
        let before = known.get(name).copied();
        let change = before.map(|before| now as f64 / before.max(1) as f64 - 1.0);
        if change.is_some_and(|change| change > GROWTH_MAX) {
            grown.push(name.clone());
        }
        let before = before.map_or("-".to_owned(), |before| before.to_string());
        let change = change.map_or("-".to_owned(), |change| format!("{:+.1} %", change * 100.0));
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{name:<40}{now:>12}{before:>12}{change:>9}");
    }
    (table, grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_named() {
        let before = BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 100), ("c".to_owned(), 100)]);
        let now =
            BTreeMap::from([("a".to_owned(), 104), ("b".to_owned(), 106), ("c".to_owned(), 50), ("d".to_owned(), 9)]);
        let (table, grown) = compare(&now, &before);
        assert_eq!(grown, ["b"]);
        assert!(table.contains("+6.0 %"), "{table}");
        assert!(table.contains("-50.0 %"), "{table}");
    }

    #[test]
    fn every_piece_of_work_works() {
        micro::NAMES.iter().for_each(|name| repeat(name, 3));
    }
}
