//! The progress of a run: a live view on a terminal, and a line for each second elsewhere.

use std::io::Read as _;
use std::process::Stdio;

use crate::Generator;
use crate::server::{Server, right};
use crate::terminal::pseudo_terminal;

const LOAD: &str = "--rate 300 --connections 2 --warmup 0s";

/// Returns what a terminal of the kind `term` gets from a run.
fn on_terminal(options: &str, term: &str) -> String {
    let (server, generator) = (Server::start(right), Generator::new());
    let (mut screen, terminal) = pseudo_terminal();
    let mut command = generator.command(&server, &format!("{LOAD} {options}"));
    command.stderr(Stdio::from(terminal)).env("TERM", term);
    let child = command.spawn().unwrap();
    // The screen ends once nobody has the terminal open.
    drop(command);
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        // The kernel reports the end as an error, behind all bytes.
        let _ = screen.read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).into_owned()
    });
    generator.finish(&child.wait_with_output().unwrap(), 0);
    reader.join().unwrap()
}

#[test]
fn terminal_shows_a_live_view_and_is_left_clean() {
    // Time for several pictures, even if the machine stands still for a while.
    let seen = on_terminal("--duration 3s", "xterm-256color");
    for words in ["last second", "successful", "p99.9", "errors", "s of 3.0 s", "█", "300/s, 2 connections"] {
        assert!(seen.contains(words), "{words} in {seen:?}");
    }
    assert!(seen.matches("\x1b[8F\x1b[?7l").count() >= 2, "several pictures in one place: {seen:?}");
    assert!(seen.ends_with("\x1b[8F\x1b[J"), "{seen:?}");
}

#[test]
fn lines_take_the_place_of_the_live_view() {
    for (options, term) in [("--duration 1s --no-live", "xterm-256color"), ("--duration 1s", "dumb")] {
        let seen = on_terminal(options, term);
        assert!(seen.contains("   1 s of 1: "), "{options} {term}: {seen:?}");
        assert!(!seen.contains('\x1b'), "{options} {term}: {seen:?}");
    }
    assert_eq!(on_terminal("--duration 1s --quiet", "xterm-256color"), "");
}

#[test]
fn pipes_get_lines() {
    let (server, generator) = (Server::start(right), Generator::new());
    let output =
        generator.command(&server, &format!("{LOAD} --duration 1s")).env("TERM", "xterm-256color").output().unwrap();
    generator.finish(&output, 0);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("   1 s of 1: "), "{text:?}");
    assert!(!text.contains('\x1b'), "{text:?}");
}
