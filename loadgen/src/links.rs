//! The links that are asked for: codes and where they lead, packed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

/// Lines between two signs of progress.
const PROGRESS_LINES: usize = 1_000_000;

/// Codes and long URLs in one block of memory: 8 bytes a link beside the texts.
#[derive(Debug, Default)]
pub(crate) struct Links {
    texts: Vec<u8>,
    /// Where each link begins in `texts`, with the length of its code in the lowest 7 bits.
    places: Vec<u64>,
}

/// The longest code that `places` can tell. carom's own limit is 64.
const CODE_LEN_MAX: usize = 127;

/// A line of an export; other fields do not matter here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow)]
    short_code: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    long_url: std::borrow::Cow<'a, str>,
}

impl Links {
    /// Reads an export: one JSON object a line, with `shortCode` and `longUrl`.
    ///
    /// # Errors
    /// The file and the line, and what is wrong with it.
    pub(crate) fn read(path: &Path, mut progress: impl FnMut(usize)) -> Result<Links, String> {
        let show = path.display();
        let file = File::open(path).map_err(|error| format!("{show}: {error}"))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut links = Links::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(|error| format!("{show}: {error}"))? == 0 {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            links.take_line(&line).map_err(|reason| format!("{show}, line {number}: {reason}"))?;
            if number % PROGRESS_LINES == 0 {
                progress(number);
            }
        }
        if links.is_empty() {
            return Err(format!("{show} holds no links; `carom export` writes such a file"));
        }
        Ok(links)
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(line)
            .map_err(|error| format!("not an object with \"shortCode\" and \"longUrl\": {error}"))?;
        self.push(line.short_code.as_bytes(), line.long_url.as_bytes())
    }

    /// Adds a link.
    ///
    /// # Errors
    /// When the code cannot stand in a request line, or the target in a header.
    pub(crate) fn push(&mut self, code: &[u8], target: &[u8]) -> Result<(), String> {
        if code.is_empty() || code.len() > CODE_LEN_MAX || !code.iter().all(u8::is_ascii_graphic) {
            return Err("the code is empty, too long, or holds other than visible ASCII characters".to_owned());
        }
        if target.iter().any(|byte| byte.is_ascii_control()) {
            return Err("the long URL holds control characters".to_owned());
        }
        self.places.push((self.texts.len() as u64) << 7 | code.len() as u64);
        self.texts.extend_from_slice(code);
        self.texts.extend_from_slice(target);
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The code of a link.
    pub(crate) fn code(&self, link: u64) -> &[u8] {
        let (start, code_len) = self.place(link);
        &self.texts[start..start + code_len]
    }

    /// Where a link leads.
    pub(crate) fn target(&self, link: u64) -> &[u8] {
        let (start, code_len) = self.place(link);
        let end = self.places.get(link as usize + 1).map_or(self.texts.len(), |next| (next >> 7) as usize);
        &self.texts[start + code_len..end]
    }

    fn place(&self, link: u64) -> (usize, usize) {
        let place = self.places[link as usize];
        ((place >> 7) as usize, (place & 0x7f) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Links, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Links::read(file.path(), |_| {})
    }

    #[test]
    fn links_come_back_as_they_were() {
        let links = read(
            "{\"shortCode\":\"abc\",\"longUrl\":\"https://a/\\u00e4?q=1\",\"title\":null}\n\n{\"longUrl\":\"https:\\/\\/b/\",\"shortCode\":\"Z\"}",
        )
        .unwrap();
        assert_eq!(links.len(), 2);
        assert_eq!((links.code(0), links.target(0)), (&b"abc"[..], "https://a/ä?q=1".as_bytes()));
        assert_eq!((links.code(1), links.target(1)), (&b"Z"[..], &b"https://b/"[..]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\"}\nnonsense", "line 2"),
            ("{\"shortCode\":\"a\"}", "longUrl"),
            ("{\"shortCode\":\"a b\",\"longUrl\":\"b\"}", "code"),
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\\r\\nX: y\"}", "control"),
            ("", "no links"),
            ("\n\n", "no links"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(Links::read(Path::new("/nowhere/at/all"), |_| {}).is_err());
    }
}
