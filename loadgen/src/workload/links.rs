//! The links to request: packed codes and destinations.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

/// Codes and destinations in one block of memory: 8 bytes for each link besides the texts.
#[derive(Debug, Default)]
pub(crate) struct LinkTable {
    texts: Vec<u8>,
    /// Start of each link in `texts`. The lowest 7 bits hold the length of its code, and the next 3 the index of
    /// its status in [`STATUSES`].
    places: Vec<u64>,
}

/// Statuses of redirects. An index past the end means that the status is unknown.
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// Longest line of an export, in bytes. carom's own lines have at most 3 KiB.
const LINE_LEN_MAX: u64 = 64 * 1024;

/// Lines between two progress calls, which may stop the reader.
const LOOK_EVERY: usize = 4_096;

/// Longest code that `places` can represent. carom's own limit is 64.
const CODE_LEN_MAX: usize = 127;

/// Remaining lifetime from which a link counts as lasting: longer than any run.
const LASTING: Duration = Duration::from_secs(24 * 60 * 60);

/// A line of an export. Unknown fields are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExportLine<'a> {
    #[serde(borrow)]
    short_code: Cow<'a, str>,
    #[serde(borrow)]
    long_url: Cow<'a, str>,
    #[serde(default)]
    redirect_status: Option<u16>,
    #[serde(default)]
    archived: Option<bool>,
    #[serde(default, borrow)]
    meta: Option<LinkLimits<'a>>,
    // Not a flattened `LinkLimits`: that would copy every other field of the line.
    #[serde(default, borrow)]
    valid_since: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    valid_until: Option<Cow<'a, str>>,
    #[serde(default)]
    max_visits: Option<u64>,
}

/// Limits of a link. Exports have them in the line itself or in its `meta`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinkLimits<'a> {
    #[serde(default, borrow)]
    valid_since: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    valid_until: Option<Cow<'a, str>>,
    #[serde(default)]
    max_visits: Option<u64>,
}

impl LinkLimits<'_> {
    /// True if a link redirects now and for [`LASTING`], however often it is visited.
    fn allow_a_run(&self) -> Result<bool, String> {
        let instant = |name: &str, value: &Option<Cow<'_, str>>| match value {
            None => Ok(None),
            Some(text) => text
                .parse::<Timestamp>()
                .map(Some)
                .map_err(|_| format!("{name} is {text:?}; expected a date such as 2030-01-31T12:00:00Z")),
        };
        let now = Timestamp::now();
        let has_begun = instant("validSince", &self.valid_since)?.is_none_or(|since| since <= now);
        let lasts = instant("validUntil", &self.valid_until)?.is_none_or(|until| until > now + LASTING);
        Ok(has_begun && lasts && self.max_visits.is_none())
    }
}

impl LinkTable {
    /// Reads an export: one JSON object a line, with `shortCode` and `longUrl`.
    ///
    /// Skips archived links, those with a limit of visits, and those that start later or expire within a day: the
    /// right response for them changes during a run. `progress` gets the number of lines from time to time, and
    /// returns false to stop.
    ///
    /// # Errors
    /// The file and the line, with the fault.
    pub(crate) fn read(path: &Path, mut progress: impl FnMut(usize) -> bool) -> Result<LinkTable, String> {
        let show = path.display();
        let file = File::open(path).map_err(|error| format!("{show}: {error}"))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut links = LinkTable::default();
        let mut line = Vec::new();
        let mut skipped = 0;
        for number in 1.. {
            line.clear();
            let read = reader.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| format!("{show}: {error}"))? == 0 {
                break;
            }
            if line.len() as u64 == LINE_LEN_MAX {
                return Err(format!("{show}, line {number}: longer than {LINE_LEN_MAX} bytes"));
            }
            if number % LOOK_EVERY == 0 && !progress(number) {
                return Err("interrupted".to_owned());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let taken = links.take_line(&line).map_err(|reason| format!("{show}, line {number}: {reason}"))?;
            skipped += u64::from(!taken);
        }
        if links.is_empty() {
            let why = match skipped {
                0 => String::new(),
                _ => format!(
                    " to request ({skipped} are archived, not yet started, visit-limited or expire within a day)"
                ),
            };
            return Err(format!("{show} contains no links{why}; write one with `carom export`"));
        }
        Ok(links)
    }

    /// Adds the link of a line; false if the link is skipped.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let line: ExportLine<'_> = serde_json::from_slice(line)
            .map_err(|error| format!("not an object with \"shortCode\" and \"longUrl\": {error}"))?;
        let ExportLine { valid_since, valid_until, max_visits, .. } = line;
        if line.archived == Some(true)
            || !(LinkLimits { valid_since, valid_until, max_visits }).allow_a_run()?
            || !line.meta.unwrap_or_default().allow_a_run()?
        {
            return Ok(false);
        }
        self.push(line.short_code.as_bytes(), line.long_url.as_bytes(), line.redirect_status)?;
        Ok(true)
    }

    /// Adds a link, with the status of its redirect if that is known.
    ///
    /// # Errors
    /// A message if the code does not fit into a request line, the destination does not fit into a header, or the
    /// status is not that of a redirect.
    pub(crate) fn push(&mut self, code: &[u8], target: &[u8], status: Option<u16>) -> Result<(), String> {
        if code.is_empty() || code.len() > CODE_LEN_MAX || !code.iter().all(u8::is_ascii_graphic) {
            return Err("shortCode is empty, too long, or has a character that is not printable ASCII".to_owned());
        }
        if target.iter().any(|byte| byte.is_ascii_control()) {
            return Err("longUrl has control characters".to_owned());
        }
        let status = match status {
            None => STATUSES.len(),
            Some(status) => STATUSES
                .iter()
                .position(|known| *known == status)
                .ok_or_else(|| format!("redirectStatus {status} is not one of {STATUSES:?}"))?,
        };
        self.places.push((self.texts.len() as u64) << 10 | (status as u64) << 7 | code.len() as u64);
        self.texts.extend_from_slice(code);
        self.texts.extend_from_slice(target);
        Ok(())
    }

    /// Returns the number of links.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are no links.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the code of a link.
    pub(crate) fn code(&self, link: u64) -> &[u8] {
        let (start, code_len) = self.place(link);
        &self.texts[start..start + code_len]
    }

    /// Returns the destination of a link.
    pub(crate) fn target(&self, link: u64) -> &[u8] {
        let (start, code_len) = self.place(link);
        let end = self.places.get(link as usize + 1).map_or(self.texts.len(), |next| (next >> 10) as usize);
        &self.texts[start + code_len..end]
    }

    /// Returns the status of a link's redirect, if it is known.
    pub(crate) fn status(&self, link: u64) -> Option<u16> {
        STATUSES.get((self.places[link as usize] >> 7 & 0x7) as usize).copied()
    }

    fn place(&self, link: u64) -> (usize, usize) {
        let place = self.places[link as usize];
        ((place >> 10) as usize, (place & 0x7f) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LinkTable, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        LinkTable::read(file.path(), |_| true)
    }

    #[test]
    fn links_come_back_as_they_were() {
        let links = read(
            "{\"shortCode\":\"abc\",\"longUrl\":\"https://a/\\u00e4?q=1\",\"title\":null}\n\n{\"longUrl\":\"https:\\/\\/b/\",\"shortCode\":\"Z\",\"redirectStatus\":301,\"meta\":{\"validUntil\":null}}",
        )
        .unwrap();
        assert_eq!((links.len(), links.status(0), links.status(1)), (2, None, Some(301)));
        assert_eq!((links.code(0), links.target(0)), (&b"abc"[..], "https://a/ä?q=1".as_bytes()));
        assert_eq!((links.code(1), links.target(1)), (&b"Z"[..], &b"https://b/"[..]));
    }

    #[test]
    fn links_whose_answer_changes_during_a_run_are_skipped() {
        let after = |hours: i64| Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        let limits = [
            format!("\"validUntil\":\"{}\"", after(2 * 365 * 24)),
            format!("\"meta\":{{\"validUntil\":\"{}\",\"validSince\":\"{}\"}}", after(25), after(-1)),
            format!("\"validUntil\":\"{}\"", after(23)),
            format!("\"meta\":{{\"validUntil\":\"{}\"}}", after(-1)),
            format!("\"validSince\":\"{}\"", after(1)),
            "\"meta\":{\"maxVisits\":5}".to_owned(),
            "\"archived\":true".to_owned(),
            "\"archived\":false,\"validSince\":\"2020-01-01T01:00:00+01:00\",\"maxVisits\":null".to_owned(),
        ];
        let lines = limits
            .iter()
            .enumerate()
            .map(|(number, limit)| format!("{{\"shortCode\":\"c{number}\",\"longUrl\":\"https://a/\",{limit}}}\n"));
        let links = read(&lines.collect::<String>()).unwrap();
        let codes: Vec<&[u8]> = (0..links.len() as u64).map(|link| links.code(link)).collect();
        assert_eq!(codes, [b"c0", b"c1", b"c7"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\"}\nnonsense", "line 2"),
            ("{\"shortCode\":\"a\"}", "longUrl"),
            ("{\"shortCode\":\"a b\",\"longUrl\":\"b\"}", "shortCode is empty"),
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\\r\\nX: y\"}", "control"),
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\",\"redirectStatus\":200}", "redirectStatus"),
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\",\"validUntil\":\"soon\"}", "2030-01-31T12:00:00Z"),
            ("{\"shortCode\":\"a\",\"longUrl\":\"b\",\"validUntil\":\"2020-01-01T00:00:00Z\"}", "(1 are archived"),
            ("", "no links"),
            ("\n\n", "no links"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(LinkTable::read(Path::new("/nowhere/at/all"), |_| true).is_err());
    }
}
