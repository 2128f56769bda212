//! The keys that a person presses: bytes of the terminal, and their meaning.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

/// Most bytes that are read at once.
const READ_LEN: usize = 64;

/// Time for the rest of a sequence that a slow connection has cut: without it, a cut arrow key would be Esc.
const REST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Escape, alone the key Esc, otherwise the first byte of a sequence.
const ESCAPE: u8 = 0x1b;

/// Ctrl-C, which arrives as a byte in raw mode.
const CTRL_C: u8 = 0x03;

/// A key of the view. Others are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ViewKey {
    /// A printable ASCII character.
    Char(char),
    /// Esc.
    Escape,
    /// Ctrl-C.
    Interrupt,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
}

/// Reads keys from standard input, until the terminal is gone or `receive` returns false. Blocks.
pub(super) fn read_all(mut receive: impl FnMut(ViewKey) -> bool) {
    let mut buffer = [0_u8; READ_LEN];
    loop {
        let len = match read(io::stdin(), &mut buffer) {
            Ok(0) => return,
            Ok(len) => len,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        let mut bytes = buffer[..len].to_vec();
        if is_cut(&bytes)
            && more_follows()
            && let Ok(len) = read(io::stdin(), &mut buffer)
        {
            bytes.extend_from_slice(&buffer[..len]);
        }
        if !parse(&bytes).into_iter().all(&mut receive) {
            return;
        }
    }
}

/// True if the terminal sends more within [`REST_WAIT`].
fn more_follows() -> bool {
    let input = io::stdin();
    poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&REST_WAIT)).is_ok_and(|ready| ready > 0)
}

/// True if the bytes end within a sequence, or with the key Esc.
fn is_cut(bytes: &[u8]) -> bool {
    [&b"\x1b"[..], b"\x1b[", b"\x1bO"].iter().any(|start| bytes.ends_with(start))
}

/// Returns the keys that the bytes stand for.
fn parse(bytes: &[u8]) -> Vec<ViewKey> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let (key, len) = match first {
            ESCAPE => sequence(after),
            CTRL_C => (Some(ViewKey::Interrupt), 0),
            b' '..=b'~' => (Some(ViewKey::Char(char::from(first))), 0),
            _ => (None, 0),
        };
        keys.extend(key);
        rest = &after[len..];
    }
    keys
}

/// Returns the key of a sequence, and the number of its bytes behind the escape.
fn sequence(after: &[u8]) -> (Option<ViewKey>, usize) {
    match after.first() {
        // A CSI sequence ends with the first byte in this range; parameters such as those of Ctrl come before.
        Some(b'[') => match after[1..].iter().position(|byte| (0x40..=0x7e).contains(byte)) {
            Some(at) => (arrow(after[1 + at]), at + 2),
            None => (None, after.len()),
        },
        // The same keys in the application mode of the keypad.
        Some(b'O') => (after.get(1).copied().and_then(arrow), after.len().min(2)),
        None | Some(&ESCAPE) => (Some(ViewKey::Escape), 0),
        // A key with Alt.
        Some(_) => (None, 1),
    }
}

fn arrow(end: u8) -> Option<ViewKey> {
    match end {
        b'A' => Some(ViewKey::Up),
        b'B' => Some(ViewKey::Down),
        b'C' => Some(ViewKey::Right),
        b'D' => Some(ViewKey::Left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        let cases: &[(&[u8], &[ViewKey])] = &[
            (b"qs", &[ViewKey::Char('q'), ViewKey::Char('s')]),
            (b"\x03", &[ViewKey::Interrupt]),
            (b"\x1b", &[ViewKey::Escape]),
            (b"\x1b\x1b[A", &[ViewKey::Escape, ViewKey::Up]),
            (b"\x1b[A\x1b[B\x1b[C\x1b[D", &[ViewKey::Up, ViewKey::Down, ViewKey::Right, ViewKey::Left]),
            (b"\x1bOC", &[ViewKey::Right]),
            (b"\x1b[1;5Dr", &[ViewKey::Left, ViewKey::Char('r')]),
            (b"\x1b[3~p", &[ViewKey::Char('p')]),
            (b"\x1bq", &[]),
            (b"\x1b[12", &[]),
            (b"\x1bO", &[]),
            (b"\x04\xc3\xa9\x00", &[]),
            (b"", &[]),
        ];
        for (bytes, keys) in cases {
            assert_eq!(parse(bytes), *keys, "{bytes:?}");
        }
    }

    #[test]
    fn cut_sequences_are_noticed() {
        assert!(is_cut(b"\x1b"));
        assert!(is_cut(b"a\x1b["));
        assert!(is_cut(b"\x1bO"));
        assert!(!is_cut(b"\x1b[A"));
        assert!(!is_cut(b"O"));
        assert!(!is_cut(b""));
    }
}
