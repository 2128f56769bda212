//! Commands and people at a terminal: questions, and texts that a terminal must not interpret.

use std::io::{self, BufRead, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// Longest secret that a prompt accepts, in bytes.
const SECRET_LEN_MAX: usize = 1_024;

/// Returns the text without control characters, which a terminal would interpret.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Writes a message to standard error. A closed standard error is not an error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A terminal that shows no input until this is dropped.
struct Silence {
    before: Termios,
}

impl Silence {
    fn begin() -> io::Result<Silence> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        // Ctrl-C arrives as a byte: a signal would end the process and leave the terminal silent.
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Silence { before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
        let _ = writeln!(io::stderr());
    }
}

/// Asks for a secret at the terminal of standard input, without showing it.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] after Ctrl-C, and failures of the terminal.
pub(crate) fn ask_secret(prompt: &str) -> io::Result<String> {
    let mut out = io::stderr();
    write!(out, "{prompt}")?;
    out.flush()?;
    let _silence = Silence::begin()?;
    typed(io::stdin().lock())
}

/// Reads what is typed until Enter, with the keys that edit a line.
fn typed(input: impl BufRead) -> io::Result<String> {
    let mut bytes: Vec<u8> = Vec::new();
    for byte in input.bytes() {
        match byte? {
            b'\r' | b'\n' | 0x04 => break,
            0x03 => return Err(io::ErrorKind::Interrupted.into()),
            // Backspace, and Ctrl-U for the whole line.
            0x08 | 0x7f => _ = bytes.pop(),
            0x15 => bytes.clear(),
            _ if bytes.len() == SECRET_LEN_MAX => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the key is too long"));
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the key is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a[31mb");
    }

    #[test]
    fn a_typed_secret_can_be_corrected() {
        let read = |bytes: &[u8]| typed(bytes).map_err(|error| error.kind());
        assert_eq!(read(b"abc\nrest"), Ok("abc".to_owned()));
        assert_eq!(read(b"wrong\x15ab\x7fc\r"), Ok("ac".to_owned()));
        assert_eq!(read(b"ab"), Ok("ab".to_owned()));
        assert_eq!(read(b"ab\x03"), Err(io::ErrorKind::Interrupted));
        assert_eq!(read(&[b'a'; SECRET_LEN_MAX + 1]), Err(io::ErrorKind::InvalidData));
        assert_eq!(read(b"\xff\n"), Err(io::ErrorKind::InvalidData));
    }
}
