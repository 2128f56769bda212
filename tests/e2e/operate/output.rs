//! Standard output that cannot be written: a closed pipe ends a command quietly, and a full disk is an error.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use crate::support::cli_user::CliUser;
use crate::support::node::{Setup, wait_for};
use crate::support::terminal::Terminal;

/// Runs a command with that standard output.
fn run(user: &CliUser, arguments: &[&str], out: impl Into<Stdio>) -> Output {
    user.command(arguments).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).output().unwrap()
}

/// Commands that print: results, help, and the lines of an export.
fn printing(data_dir: &str) -> [Vec<&str>; 6] {
    [
        vec!["config", "show"],
        vec!["--help"],
        vec!["link", "create", "-h"],
        vec!["--version"],
        vec!["completions", "bash"],
        vec!["export", "--data-dir", data_dir],
    ]
}

#[test]
fn unwritable_output_tells_disks_from_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).start();
    node.wire().shorten_as("kept", "https://example.org/");
    let setup = node.terminate();
    let user = CliUser::new();
    for arguments in printing(setup.data_dir().to_str().unwrap()) {
        let full = run(&user, &arguments, File::options().write(true).open("/dev/full").unwrap());
        let said = String::from_utf8(full.stderr).unwrap();
        assert_eq!(full.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("standard output cannot be written: No space left on device"), "{arguments:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = run(&user, &arguments, writer);
        let said = String::from_utf8(closed.stderr).unwrap();
        // An export may log the opening of the store.
        let is_quiet = said.is_empty() || arguments[0] == "export" && !said.contains("cannot be written");
        assert_eq!(closed.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(is_quiet, "{arguments:?}: {said}");
    }
}

#[test]
fn endless_output_ends_with_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new();
    let admin = node.admin.to_string();
    let mut command = user.command(&["top", "--json", "--admin", &admin]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.is_empty()), (Some(0), true), "{ended:?}");
    node.terminate();
}

/// A command that is killed at the end of its test.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn endless_output_ends_without_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new();
    let mut command = user.command(&["top", "--json", "--admin", &node.admin.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut endless = Endless(child);
    let mut results = BufReader::new(endless.0.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    node.terminate();
    let mut errors = BufReader::new(endless.0.stderr.take().unwrap());
    line.clear();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("/status: "), "{line}");
    drop(results);
    let status = wait_for("the end of the command", || endless.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn verbosity_decides_on_notes_and_details() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    user.done(&["link", "create", "https://example.org/"]);
    let said = |flag: &[&str]| user.run(&[flag, &["link", "list"]].concat()).err;
    assert!(said(&[]).starts_with("1 link"));
    assert_eq!(said(&["-q"]), "");
    let details = said(&["-v"]);
    let request = details.lines().next().unwrap();
    assert!(request.starts_with("GET http://127.0.0.1"), "{details}");
    assert!(request.contains(": 200 after "), "{details}");
    node.terminate();
}

#[test]
fn tables_fit_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let (user, admin) = (CliUser::new(), node.admin.to_string());
    let arguments = ["status", "--admin", &admin];
    let screen = Terminal::start(user.command(&arguments)).end();
    let titles: Vec<&str> = screen.lines().filter(|line| line.starts_with("core ")).collect();
    assert!(titles.len() == 2, "{screen}");
    assert!(titles.iter().all(|line| line.chars().count() <= 80), "{screen}");
    // In a pipe, all columns are in one table.
    let piped = user.done(&arguments);
    assert_eq!(piped.lines().filter(|line| line.starts_with("core ")).count(), 1, "{piped}");
    node.terminate();
}

#[test]
fn errors_of_all_commands_have_one_shape() {
    let user = CliUser::new();
    let nobody = "127.0.0.1:1";
    for (arguments, code) in [
        (vec!["top", "--admin", nobody], 2),
        (vec!["status", "--admin", nobody], 1),
        (vec!["health", "--admin", nobody], 1),
        (vec!["export", "--data-dir", "none"], 2),
        (vec!["app", "list", "--data-dir", "none"], 2),
        (vec!["config", "check", "none.toml"], 2),
        (vec!["link", "list", "--url", "http://127.0.0.1:1"], 1),
    ] {
        let ran = user.run(&arguments);
        let lines: Vec<&str> = ran.err.lines().collect();
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        let has_shape = lines[0].starts_with("error: ") && lines[lines.len() - 1].starts_with("hint: ");
        assert!(has_shape, "{arguments:?}: {ran:?}");
    }
}
