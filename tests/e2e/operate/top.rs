//! The live view of `carom top` on a pseudo terminal, and the state in which it leaves the terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{InputModes, LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::node::{CAROM, Node, Setup, wait_for, wait_until};
use crate::support::terminal::pseudo_terminal;

/// The end of everything that the view writes: the cursor, and the screen as it was.
const LEFT: &str = "\x1b[?25h\x1b[?1049l";

/// The modes of a terminal that a view changes.
type Modes = (InputModes, OutputModes, LocalModes);

/// A pseudo terminal with a running `carom top`, which is killed if a test leaves it behind.
struct TopView {
    keyboard: File,
    /// The side of the program. While it is open, the terminal stays.
    terminal: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
    before: Modes,
}

impl TopView {
    fn start(node: &Node, variables: &[(&str, &str)]) -> TopView {
        let (keyboard, terminal) = pseudo_terminal();
        let before = modes(&terminal);
        let side = || Stdio::from(terminal.try_clone().unwrap());
        let child = Command::new(CAROM)
            .args(["top", "--admin", &node.admin.to_string()])
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, kept) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // The kernel reports the end of the terminal as an error.
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..len]);
            }
        });
        TopView { keyboard, terminal, seen, child, before }
    }

    /// Everything that the terminal got so far.
    fn seen(&self) -> String {
        self.seen_since(0)
    }

    /// Everything that the terminal got behind so many bytes.
    fn seen_since(&self, known: usize) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()[known..]).into_owned()
    }

    /// The number of bytes that the terminal got so far.
    fn known(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses keys, and waits for a sign that their effect is drawn.
    fn press_until(&mut self, keys: &str, sign: char) {
        let known = self.known();
        self.press(keys);
        wait_until(&format!("{sign} after {keys:?}"), || self.seen_since(known).contains(sign));
    }

    /// Changes the size of the terminal, so that the view draws everything again, and waits until that has these words.
    /// The parts of a line are apart by sequences, so only words can be found.
    fn redraws_with(&self, columns: u16, words: &[&str]) {
        let known = self.known();
        resize(&self.keyboard, columns, 30);
        wait_until(&format!("{words:?}"), || {
            let new = self.seen_since(known);
            words.iter().all(|word| new.contains(word))
        });
    }

    /// Waits for the end of the view, which must have restored the terminal.
    fn ends(mut self) {
        let status = wait_for("the end of the view", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", self.seen());
        wait_until("the screen as it was", || self.seen().ends_with(LEFT));
        assert_eq!(modes(&self.terminal), self.before);
    }
}

impl Drop for TopView {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modes(terminal: &OwnedFd) -> Modes {
    let all = tcgetattr(terminal).unwrap();
    (all.input_modes, all.output_modes, all.local_modes)
}

fn resize(screen: &File, columns: u16, rows: u16) {
    tcsetwinsize(screen, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

#[test]
fn top_shows_a_node_and_restores_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    node.wire().shorten("https://example.org/");
    let mut view = TopView::start(&node, &[]);
    wait_until("the node", || ["ready", "requests/s", "core▲"].iter().all(|word| view.seen().contains(word)));
    assert_ne!(modes(&view.terminal), view.before, "the view reads keys one by one");
    view.redraws_with(100, &["accepting", "p99.9", "CPU", "quit"]);
    view.press_until("s", '▲');
    view.redraws_with(90, &["CPU▲"]);
    view.press_until("h", '↑');
    view.redraws_with(100, &["previous", "refused"]);
    view.press_until("h", '▲');
    view.press_until("\x1b[C", '▼');
    view.redraws_with(90, &["requests/s▼"]);
    // The view outlives the node.
    node.terminate();
    wait_until("the loss", || view.seen().contains("ANSWER"));
    view.redraws_with(100, &["--admin"]);
    view.press("q");
    view.ends();
}

#[test]
fn top_restores_the_terminal_after_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    for end in [Some(Signal::TERM), Some(Signal::HUP), None] {
        let mut view = TopView::start(&node, &[]);
        wait_until("the node", || view.seen().contains("ready"));
        match end {
            Some(signal) => kill_process(Pid::from_child(&view.child), signal).unwrap(),
            // Ctrl-C is a key of the view.
            None => view.press("\x03"),
        }
        view.ends();
    }
    node.terminate();
}

#[test]
fn top_has_colours_unless_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let colour = "\x1b[38;5;";
    for (variables, has_colours) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut view = TopView::start(&node, variables);
        wait_until("the node", || view.seen().contains("ready"));
        assert_eq!(view.seen().contains(colour), has_colours, "{:?}", view.seen());
        view.press("\x1b");
        view.ends();
    }
    node.terminate();
}

#[test]
fn top_needs_a_terminal() {
    let output = Command::new(CAROM).args(["top", "--admin", "127.0.0.1:1"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("needs a terminal"), "{said}");
    assert!(said.contains("carom status"), "{said}");
}
