//! A command on a pseudo terminal, and the screen that a person sees. The tests of the load generator use this file,
//! too.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::str::Chars;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{ioctl_fionread, retry_on_intr};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Size of the terminal, in characters.
const SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// Longest wait for a text or an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two looks at the screen.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Time without output after which a picture counts as complete. A live view draws a picture in one go, and the next one
/// later than that.
const QUIET: Duration = Duration::from_millis(100);

/// Opens a pseudo terminal of 80 columns and 24 rows. Returns the side of a person, with the keyboard and the screen, and
/// the side of a program.
pub(crate) fn pseudo_terminal() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let person = openpt(flags).unwrap();
    unlockpt(&person).unwrap();
    tcsetwinsize(&person, SIZE).unwrap();
    let program = ioctl_tiocgptpeer(&person, flags).unwrap();
    (File::from(person), program)
}

/// A command on a pseudo terminal. It is killed if a test leaves it behind.
pub(crate) struct Terminal {
    keyboard: File,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

/// The output of a command, and the time of its last byte.
struct Seen {
    bytes: Vec<u8>,
    last: Instant,
}

impl Seen {
    fn screen(&self) -> String {
        shown(&String::from_utf8_lossy(&self.bytes))
    }
}

impl Terminal {
    /// Starts a command on a new terminal of 80 columns and 24 rows, without colours.
    pub(crate) fn start(mut command: Command) -> Terminal {
        let (keyboard, terminal) = pseudo_terminal();
        let side = || Stdio::from(terminal.try_clone().unwrap());
        command.env("TERM", "xterm-256color").env("NO_COLOR", "1").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        // The output ends once no process has the terminal open.
        drop((command, terminal));
        let seen = Arc::new(Mutex::new(Seen { bytes: Vec::new(), last: Instant::now() }));
        let (mut output, kept) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4_096];
            loop {
                retry_on_intr(|| poll(&mut [PollFd::new(&output, PollFlags::IN)], None)).unwrap();
                // Bytes that have left the terminal are among those seen before anybody else gets the lock.
                let mut seen = kept.lock().unwrap();
                // The kernel reports the end of the terminal as an error.
                let Ok(len @ 1..) = output.read(&mut piece) else { break };
                seen.bytes.extend_from_slice(&piece[..len]);
                seen.last = Instant::now();
            }
        });
        Terminal { keyboard, seen, reader: Some(reader), child }
    }

    /// Returns the screen once it shows a text and the picture is complete.
    pub(crate) fn screen_with(&self, text: &str) -> String {
        wait_for(text, || {
            let seen = self.seen.lock().unwrap();
            // What the thread has not yet come to is a part of the picture, too.
            let is_read = !ioctl_fionread(&self.keyboard).is_ok_and(|left| left > 0);
            let is_complete = is_read && seen.last.elapsed() > QUIET;
            is_complete.then(|| seen.screen()).filter(|screen| screen.contains(text))
        })
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a secret once the terminal no longer shows what is typed.
    pub(crate) fn press_hidden(&mut self, keys: &str) {
        wait_for("a prompt for a secret", || {
            let modes = tcgetattr(&self.keyboard).unwrap().local_modes;
            (!modes.contains(LocalModes::ECHO)).then_some(())
        });
        self.press(keys);
    }

    /// Interrupts the command, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end of the command, and returns everything that it has left on the screen.
    pub(crate) fn end(mut self) -> String {
        wait_for("the end of the command", || self.child.try_wait().unwrap());
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.seen.lock().unwrap().screen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A command that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The lines of a terminal. It has as many as are written: nothing scrolls out of sight, and long lines do not wrap.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// The lines and the place of the cursor from before a full-screen view.
    before: Option<(Vec<Vec<char>>, usize, usize)>,
}

/// Returns the text on a terminal after this output.
fn shown(output: &str) -> String {
    let mut screen = Screen::default();
    let mut signs = output.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\x1b' => screen.obey(&mut signs),
            '\n' => screen.row += 1,
            '\r' => screen.column = 0,
            '\x08' => screen.column = screen.column.saturating_sub(1),
            sign if sign.is_control() => {}
            sign => screen.put(sign),
        }
    }
    let lines = screen.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
    let text = lines.collect::<Vec<String>>().join("\n");
    text.trim_end().to_owned()
}

impl Screen {
    /// Writes a sign at the cursor.
    fn put(&mut self, sign: char) {
        let line = self.line();
        let column = self.column;
        let line = &mut self.lines[line];
        if line.len() <= column {
            line.resize(column + 1, ' ');
        }
        line[column] = sign;
        self.column += 1;
    }

    /// Returns the index of the line at the cursor, which then exists.
    fn line(&mut self) -> usize {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        self.row
    }

    /// Follows an escape sequence: moves of the cursor, erasures and the alternate screen. Others change no text.
    fn obey(&mut self, signs: &mut Chars<'_>) {
        if signs.next() != Some('[') {
            return;
        }
        let mut parameters = String::new();
        let Some(command) = signs.find(|sign| {
            let is_end = sign.is_ascii_alphabetic() || *sign == '~';
            if !is_end {
                parameters.push(*sign);
            }
            is_end
        }) else {
            return;
        };
        let number = |at: usize| parameters.split(';').nth(at).and_then(|number| number.parse::<usize>().ok());
        let count = number(0).unwrap_or(1);
        match command {
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row += count,
            'C' => self.column += count,
            'D' => self.column = self.column.saturating_sub(count),
            'F' => (self.row, self.column) = (self.row.saturating_sub(count), 0),
            'G' => self.column = count.saturating_sub(1),
            'H' => (self.row, self.column) = (count.saturating_sub(1), number(1).unwrap_or(1).saturating_sub(1)),
            'J' => self.erase_below(number(0) == Some(2)),
            'K' => {
                let (line, from) = (self.line(), if number(0) == Some(2) { 0 } else { self.column });
                self.lines[line].truncate(from);
            }
            'h' if parameters == "?1049" => {
                self.before = Some((std::mem::take(&mut self.lines), self.row, self.column));
            }
            'l' if parameters == "?1049" => {
                (self.lines, self.row, self.column) = self.before.take().unwrap_or_default();
            }
            _ => {}
        }
    }

    /// Erases everything from the cursor on, or the whole screen.
    fn erase_below(&mut self, is_whole: bool) {
        let (line, column) = if is_whole { (0, 0) } else { (self.line(), self.column) };
        self.lines.truncate(line + 1);
        if let Some(last) = self.lines.last_mut() {
            last.truncate(column);
        }
    }
}

#[test]
fn screens_follow_escape_sequences() {
    assert_eq!(shown("a\r\n\x1b[32mbc\x1b[0m\r\n"), "a\nbc");
    assert_eq!(shown("10 %\r\x1b[2Kdone\r\n"), "done");
    assert_eq!(shown("one\r\ntwo\r\n\x1b[2F\x1b[J\x1b[?7hthree"), "three");
    assert_eq!(shown("$ top\r\n\x1b[?1049h\x1b[2;3Hx\x1b[1;1Hy"), "y\n  x");
    assert_eq!(shown("$ top\r\n\x1b[?1049hx\x1b[?1049lend"), "$ top\nend");
}
