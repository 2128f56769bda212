//! A user of the command line, with a home directory of their own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::node::CAROM;

/// The end of a command: its exit code and its output.
#[derive(Debug)]
pub(crate) struct CliRan {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A user of the command line.
pub(crate) struct CliUser {
    home: TempDir,
    variables: Vec<(String, String)>,
}

impl CliUser {
    pub(crate) fn new() -> CliUser {
        CliUser { home: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// One more environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> CliUser {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The home directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file into the home directory, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `carom` to its end, without settings from the environment and without a terminal.
    pub(crate) fn run(&self, arguments: &[&str]) -> CliRan {
        self.run_with_input(arguments, "")
    }

    /// Runs `carom` with that standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> CliRan {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let ended = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CliRan { code: ended.status.code().unwrap(), out: text(ended.stdout), err: text(ended.stderr) }
    }

    /// Returns the command, without settings from the environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(CAROM);
        let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CAROM_"));
        ours.for_each(|name| _ = command.env_remove(name));
        command.env_remove("XDG_CONFIG_HOME").env_remove("NO_COLOR").env("HOME", self.home()).current_dir(self.home());
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).args(arguments);
        command
    }

    /// Runs `carom`, which must succeed. Returns its output.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs `carom`, which must succeed and print JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.done(arguments);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// Runs `carom`, which must end with that code and say these words.
    pub(crate) fn refused(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let ran = self.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        for word in words {
            assert!(ran.err.contains(word), "`{word}` is not in: {ran:?}");
        }
    }
}

/// Runs `carom` without settings from the environment. Returns its exit code and everything that it says.
pub(crate) fn carom(arguments: &[&str]) -> (i32, String) {
    let CliRan { code, out, err } = CliUser::new().run(arguments);
    (code, out + &err)
}

/// Runs `carom`, which must succeed. Returns everything that it says.
pub(crate) fn done(arguments: &[&str]) -> String {
    let (code, said) = carom(arguments);
    assert_eq!(code, 0, "{arguments:?}: {said}");
    said
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
