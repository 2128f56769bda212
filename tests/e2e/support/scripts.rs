//! Programs that run to their end, and the scripts that are deployed with carom.

use std::path::Path;
use std::process::Command;

/// The output of a program and its exit code.
pub(crate) struct Ran {
    /// The exit code.
    pub(crate) code: i32,
    /// The standard output.
    pub(crate) out: String,
    /// The standard error.
    pub(crate) err: String,
}

/// Runs a program to its end, without settings of carom from the environment.
pub(crate) fn run(command: &mut Command) -> Ran {
    let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CAROM_"));
    ours.for_each(|name| _ = command.env_remove(name));
    let made = command.output().expect("it can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: made.status.code().expect("no signal ends it"), out: text(made.stdout), err: text(made.stderr) }
}

/// Returns the command for a script below `deploy/`.
pub(crate) fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name))
}
