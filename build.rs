//! Passes the commit and the target of a build to the binary, for `carom --version`.
//!
//! `CAROM_BUILD_COMMIT` and `CAROM_BUILD_DATE` replace what git says, for a tree without git. If neither knows the commit,
//! the version names it as unknown. A build for development never asks git: otherwise, each commit would compile the
//! library anew.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

/// Variables of the build: its name in the environment, its name in the source, and the arguments of git that print it.
/// Cargo sets the variable with the second name for `cargo run` and for tests. It does not begin with `CAROM_`, because
/// carom would take it for an unknown setting.
const VARIABLES: [(&str, &str, &[&str]); 2] = [
    ("CAROM_BUILD_COMMIT", "BUILD_COMMIT", &["rev-parse", "--short=12", "HEAD"]),
    ("CAROM_BUILD_DATE", "BUILD_COMMIT_DATE", &["log", "-1", "--format=%cs"]),
];

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    // A tree that was unpacked within another repository is not a part of it.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let has_git = is_release && git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    for (given, name, question) in VARIABLES {
        let value = env::var(given).ok().or_else(|| if has_git { git(question) } else { None }).unwrap_or_default();
        writeln!(out, "cargo::rustc-env={name}={value}")?;
        writeln!(out, "cargo::rerun-if-env-changed={given}")?;
    }
    let target = env::var("TARGET").unwrap_or_default();
    writeln!(out, "cargo::rustc-env=BUILD_TARGET={target}")?;
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    // Every commit and checkout appends to this log. Cargo would run this each time if the file did not exist.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| has_git && Path::new(log).exists());
    if let Some(log) = log {
        writeln!(out, "cargo::rerun-if-changed={log}")?;
    }
    Ok(())
}

/// Returns the answer of git, without the line break; `None` if there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
