//! The terminal of a command: its width and colours, questions to the user, and escapes for texts from elsewhere.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratatui::text::Span;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;

use super::cli::ColourMode;
use crate::startup::logging::{self, Verbosity};
use crate::startup::signals::{self, ProcessSignal};
use carom_model::formats::dates;

/// Narrowest width that texts are fitted to, in columns: below it, the terminal breaks lines.
const WIDTH_MIN: usize = 40;

/// Longest answer to a question, in bytes.
const REPLY_LEN_MAX: u64 = 64;

/// Longest secret that a prompt accepts, in bytes.
const SECRET_LEN_MAX: usize = 1_024;

/// The modes of the terminal from before a prompt, while the terminal shows no input.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Returns the text without control characters, which a terminal would interpret, and without marks that change the
/// direction of what follows: they can make one URL look like another.
pub(crate) fn plain(text: &str) -> String {
    let is_direction = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !is_direction(*c)).collect()
}

/// Returns JSON for people and programs, in which no control character is left that a terminal would interpret.
pub(crate) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    for c in format!("{value:#}\n").chars() {
        // Within strings only; JSON has an escape for each.
        if c.is_control() && c != '\n' { text.push_str(&format!("\\u{:04x}", u32::from(c))) } else { text.push(c) }
    }
    text
}

/// Returns the width of standard output in columns; `None` if it is not a terminal, where nothing is to be cut.
pub(crate) fn width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(&out).map_or(0, |size| size.ws_col);
    Some(if columns == 0 { 80 } else { usize::from(columns).max(WIDTH_MIN) })
}

/// Returns the width of a text in columns of a terminal: many characters of East Asia take two, and combining marks none.
pub(crate) fn text_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the text cut to a width in columns, with an ellipsis in place of what is missing.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let (mut cut, mut left) = (String::new(), width.saturating_sub(1));
    for c in text.chars() {
        let Some(rest) = left.checked_sub(text_width(c.encode_utf8(&mut [0; 4]))) else { break };
        left = rest;
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Returns the text with spaces behind it, up to a width in columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text_width(text))))
}

/// Returns an instant in milliseconds since 1970 to the minute, such as `2030-01-31 23:59 UTC`.
pub(crate) fn minute(ms: u64) -> String {
    format!("{} UTC", dates::format(ms)[..16].replace('T', " "))
}

/// Sets whether output and log have colours, for the whole process.
pub fn set_colours(mode: ColourMode) {
    logging::set_colours(match mode {
        ColourMode::Auto => None,
        ColourMode::Always => Some(true),
        ColourMode::Never => Some(false),
    });
}

/// True if standard output gets colours: as `--color` says, and by default at a terminal without `NO_COLOR`.
pub(crate) fn has_colours() -> bool {
    logging::has_colours(&io::stdout())
}

/// Asks a question that can be answered with yes. Returns false for every other answer.
pub(crate) fn confirms(question: &str) -> bool {
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut reply = String::new();
    let read = io::stdin().lock().take(REPLY_LEN_MAX).read_line(&mut reply);
    read.is_ok() && matches!(reply.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Writes a warning, an error or a question to standard error. A closed standard error is not an error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a note to standard error, unless `--quiet` is set.
pub(crate) fn note(text: &str) {
    if logging::writes(Verbosity::Normal) {
        say(text);
    }
}

/// Writes a detail to standard error if `--verbose` is set.
pub(crate) fn detail(text: &str) {
    if logging::writes(Verbosity::Verbose) {
        say(text);
    }
}

/// A terminal that shows no input until this is dropped, or until a signal ends the process.
struct HiddenInput;

impl HiddenInput {
    fn begin() -> io::Result<HiddenInput> {
        // From now on, a signal that ends the process restores the terminal first.
        signals::watch(&ProcessSignal::ENDING, |signal| {
            // The lock is held to the end of the process, so that no other prompt hides the input.
            let mut modes = modes_before();
            restore(&mut modes);
            signal.end_process()
        })?;
        let mut modes = modes_before();
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        // Ctrl-C arrives as a byte: a signal would end the process and leave the input hidden.
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
        hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        *modes = Some(before);
        Ok(HiddenInput)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        restore(&mut modes_before());
    }
}

fn modes_before() -> MutexGuard<'static, Option<Termios>> {
    MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal its modes from before a prompt, if there is one.
fn restore(modes: &mut Option<Termios>) {
    if let Some(before) = modes.take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
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
    let _hidden = HiddenInput::begin()?;
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
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a[31mb");
        assert_eq!(plain("a\u{202e}b\u{2066}c\u{5d0}"), "abc\u{5d0}");
        let value = serde_json::json!({"title": "a\u{1b}b\u{9b}c\nd"});
        let text = json_text(&value);
        assert!(!text.trim_end().replace('\n', "").contains(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn texts_are_cut_to_the_width() {
        assert_eq!(fitted("short", 5), "short");
        assert_eq!(fitted("größere", 4), "grö…");
        // These characters take two columns each, and the combining mark none.
        assert_eq!((fitted("日本", 4), fitted("日本語", 4)), ("日本".to_owned(), "日…".to_owned()));
        assert_eq!(fitted("e\u{301}a", 2), "e\u{301}a");
        assert_eq!((padded("日本", 6), padded("日本", 3)), ("日本  ".to_owned(), "日本".to_owned()));
    }

    #[test]
    fn instants_are_shown_to_the_minute() {
        let ms = dates::parse("2026-02-01T00:59:59.999+01:00").unwrap();
        assert_eq!(minute(ms), "2026-01-31 23:59 UTC");
        assert_eq!(minute(u64::MAX), "9999-12-31 23:59 UTC");
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
