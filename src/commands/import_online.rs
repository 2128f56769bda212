//! `carom import --to`: sends the links of an import to a running node, over its API.
//!
//! Lines go out in batches, each in one request, and the node answers every line once its link is on disk. A line may
//! be sent again without harm: the node finds the link, and counts no visit twice. So this keeps no record of its
//! place: a repeated import finds what is there.
//!
//! A batch goes out before its results are read, and the node stops reading if its results are not read. So a
//! batch is as short as the buffers of any connection, unless it is a single line, which has no result before its end.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::cli::{FileOrStdio, ImportArgs};
use super::data::import_report::{ImportFinding, ReportFile};
use super::data::import_setup::ImportSummary;
use super::import_source::{Input, key_from, moving_source, open_input, outcome};
use super::moving::http::{ApiClient, ApiFailure, KeyHeader, LinesFailure};
use super::moving::lines::{MovingLines, MovingProgress};
use super::moving::moved_link::MovedDomains;
use crate::bridge::IMPORT_PATH;
use crate::services::maintenance::progress::Progress;
use carom_limits::{BULK_CHUNK_BYTES, BULK_CHUNK_LINES, IMPORT_LINE_MAX, IMPORT_REPORTS_MAX};
use carom_settings::exit::{Exit, Reason};
use carom_settings::keys::IMPORT_TO_KEY_ENV;

/// Requests in a row that may bring no line forward.
const TRIES: u32 = 8;

/// Time before the second of them; it doubles with each further one.
const WAIT: Duration = Duration::from_millis(250);

/// The longest wait that a node may ask for.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A line to send, with its number in the source.
struct SentLine {
    number: u64,
    text: Vec<u8>,
}

impl SentLine {
    /// Returns the fields of the line; `null` if it is not JSON.
    fn fields(&self) -> Value {
        serde_json::from_slice(&self.text).unwrap_or_default()
    }

    /// Returns the name of the short URL for reports.
    fn name(&self) -> String {
        let fields = self.fields();
        let slug = fields["shortCode"].as_str().unwrap_or_default();
        match fields["domain"].as_str() {
            None | Some("") => slug.to_owned(),
            Some(domain) => format!("{domain}/{slug}"),
        }
    }

    /// Returns the number of earlier visits in the line.
    fn visits(&self) -> u64 {
        self.fields()["visitsSummary"]["total"].as_u64().unwrap_or_default()
    }
}

/// The answer of the node to a line.
#[derive(Deserialize)]
struct LineAnswer {
    line: u64,
    status: u16,
    #[serde(default)]
    unchanged: bool,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerError {
    #[serde(default)]
    detail: String,
    retry_after: Option<u64>,
}

/// Lines that must be sent again, and why.
struct Resend {
    lines: Vec<SentLine>,
    why: String,
    /// The wait that the node asks for.
    asked: Option<Duration>,
}

/// An input that counts the bytes that were read.
struct CountingInput {
    inner: Input,
    read: Arc<AtomicU64>,
}

impl Read for CountingInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// Sends links to a running node.
///
/// # Errors
/// The reason why the import stopped, or a note that lines were rejected.
pub(super) fn run(arguments: ImportArgs) -> Result<(), Exit> {
    let ImportArgs { to, to_key_file, rate, from, url, key_file, map_domains, dry_run, report, file, .. } = arguments;
    let usage = |what: String| Exit::new(Reason::Usage, what);
    let to = to.unwrap_or_default();
    if !to.starts_with("http://") && !to.starts_with("https://") {
        return Err(usage(format!("invalid value for --to: {to}; expected an http:// or https:// address")));
    }
    let key = key_from(to_key_file.as_deref(), IMPORT_TO_KEY_ENV)?;
    let client = ApiClient::new(&to, key.as_deref().map(|key| (KeyHeader::Named("X-Api-Key"), key)));
    let read = Arc::new(AtomicU64::new(0));
    let file = match (file, from) {
        (None, Some(_)) => None,
        (file, _) => Some(open_input(&file.unwrap_or(FileOrStdio::Standard))?),
    };
    let total_bytes = file.as_ref().and_then(|(_, len)| *len);
    let file = file.map(|(inner, _)| Box::new(CountingInput { inner, read: Arc::clone(&read) }) as Input);
    let (input, moving) = match from {
        None => (file.unwrap_or_else(|| Box::new(io::empty())), None),
        Some(shortener) => {
            let source = moving_source(shortener, file, url.as_deref(), key_file.as_deref())?;
            let (lines, progress) = MovingLines::new(source, MovedDomains::of_running_node(&map_domains));
            (Box::new(lines) as Input, Some(progress))
        }
    };
    let report_file = report.as_deref().map(|path| {
        ReportFile::create(path).map_err(|error| usage(format!("cannot write {}: {error}", path.display())))
    });
    let sender = ImportSender {
        client,
        path: format!("{IMPORT_PATH}{}", if dry_run { "?dryRun=true" } else { "" }),
        dry_run,
        rate,
        due: Instant::now(),
        moving,
        report: report_file.transpose()?,
        summary: ImportSummary::default(),
        read,
        progress: Progress::new(io::stderr().is_terminal(), total_bytes),
    };
    sender.run(LineReader::new(input), &mut io::stderr().lock(), report.as_deref())
}

/// Reads lines, each of bounded length.
struct LineReader {
    input: BufReader<Input>,
    number: u64,
    /// A line that the last batch had no room for.
    held: Option<SentLine>,
}

impl LineReader {
    fn new(input: Input) -> LineReader {
        LineReader { input: BufReader::new(input), number: 0, held: None }
    }

    /// Returns the next line that is not blank, or the number of one that is too long; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Result<SentLine, u64>>> {
        loop {
            let mut text = Vec::new();
            let bounded = &mut self.input.by_ref().take(IMPORT_LINE_MAX as u64 + 1);
            if bounded.read_until(b'\n', &mut text)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if text.len() > IMPORT_LINE_MAX && !text.ends_with(b"\n") {
                self.input.skip_until(b'\n')?;
                return Ok(Some(Err(self.number)));
            }
            let text =
                if self.number == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text[..]) } else { &text[..] };
            let text = text.trim_ascii();
            if !text.is_empty() {
                return Ok(Some(Ok(SentLine { number: self.number, text: text.to_vec() })));
            }
        }
    }

    /// Returns the next lines, at most `most` and [`BULK_CHUNK_BYTES`] unless one is longer, with the numbers of those
    /// that are too long. Both are empty at the end.
    fn next_batch(&mut self, most: usize) -> io::Result<(Vec<SentLine>, Vec<u64>)> {
        let (mut lines, mut too_long, mut bytes) = (Vec::new(), Vec::new(), 0);
        while lines.len() + too_long.len() < most {
            let next = match self.held.take() {
                Some(line) => Some(Ok(line)),
                None => self.next()?,
            };
            match next {
                Some(Ok(line)) if !lines.is_empty() && bytes + line.text.len() > BULK_CHUNK_BYTES => {
                    self.held = Some(line);
                    break;
                }
                Some(Ok(line)) => {
                    bytes += line.text.len();
                    lines.push(line);
                }
                Some(Err(number)) => too_long.push(number),
                None => break,
            }
        }
        Ok((lines, too_long))
    }
}

/// A running import into a node.
struct ImportSender {
    client: ApiClient,
    path: String,
    dry_run: bool,
    rate: Option<NonZeroU32>,
    /// The time from which on the rate allows further lines.
    due: Instant,
    moving: Option<Arc<MovingProgress>>,
    report: Option<ReportFile>,
    summary: ImportSummary,
    /// Bytes of the input that were read.
    read: Arc<AtomicU64>,
    progress: Progress,
}

impl ImportSender {
    fn run(mut self, mut lines: LineReader, messages: &mut dyn Write, report: Option<&Path>) -> Result<(), Exit> {
        let sent = self.send_all(&mut lines, messages);
        // Links that could not be read are reported even if the node does not answer.
        self.report_findings(Vec::new(), messages)?;
        if let Some(file) = &mut self.report {
            file.finish().map_err(|error| unwritten(&error))?;
        }
        self.summary.time = self.progress.elapsed();
        self.progress.clear(messages);
        if let Some(remark) = self.moving.as_ref().and_then(|moving| moving.remark()) {
            let _ = writeln!(messages, "note: {remark}");
        }
        let _ = writeln!(messages, "{}", self.summary.to_text(self.dry_run));
        sent?;
        outcome(self.moving.as_deref(), &self.summary, report)
    }

    fn send_all(&mut self, lines: &mut LineReader, messages: &mut dyn Write) -> Result<(), Exit> {
        let most = self.rate.map_or(BULK_CHUNK_LINES, |rate| BULK_CHUNK_LINES.min(rate.get() as usize));
        loop {
            let unread = |error: io::Error| Exit::new(Reason::Incomplete, format!("the input cannot be read: {error}"));
            let (batch, too_long) = lines.next_batch(most).map_err(unread)?;
            if batch.is_empty() && too_long.is_empty() {
                return Ok(());
            }
            let reason = format!("is longer than {IMPORT_LINE_MAX} bytes");
            let too_long = too_long.into_iter();
            let mut findings: Vec<ImportFinding> =
                too_long.map(|line| ImportFinding::rejected(line, String::new(), reason.clone())).collect();
            self.pace(batch.len());
            let sent = self.send(batch, &mut findings);
            self.report_findings(findings, messages)?;
            sent?;
            let links = self.summary.taken + self.summary.unchanged;
            self.progress.tick(messages, links, self.read.load(Ordering::Relaxed));
        }
    }

    /// Waits until the rate allows these lines.
    fn pace(&mut self, lines: usize) {
        let Some(rate) = self.rate else { return };
        let now = Instant::now();
        thread::sleep(self.due.saturating_duration_since(now));
        // After a pause, the import does not catch up: the rate holds at every moment.
        self.due = self.due.max(now) + Duration::from_secs_f64(lines as f64 / f64::from(rate.get()));
    }

    /// Sends a batch, and again what the node could not take at once.
    fn send(&mut self, batch: Vec<SentLine>, findings: &mut Vec<ImportFinding>) -> Result<(), Exit> {
        let (mut pending, mut tries, mut wait) = (batch, 0, WAIT);
        while !pending.is_empty() {
            let before = pending.len();
            let mut body = Vec::new();
            pending.iter().for_each(|line| {
                body.extend_from_slice(&line.text);
                body.push(b'\n');
            });
            let again = match self.client.post_lines(&self.path, &body) {
                Ok(answer) => self.take_answers(pending, &answer, findings)?,
                Err(LinesFailure { failure, asked }) if failure.may_pass() => {
                    Resend { lines: pending, why: failure.reason, asked }
                }
                Err(LinesFailure { failure, .. }) => return Err(stopped(&failure)),
            };
            if again.lines.len() < before {
                (tries, wait) = (0, WAIT);
            }
            pending = again.lines;
            if pending.is_empty() {
                break;
            }
            tries += 1;
            if tries == TRIES {
                return Err(stopped(&ApiFailure { status: None, reason: again.why }));
            }
            thread::sleep(again.asked.unwrap_or(wait).min(WAIT_MAX));
            wait *= 2;
        }
        Ok(())
    }

    /// Counts the lines that the node has decided. Returns the others.
    fn take_answers(
        &mut self,
        lines: Vec<SentLine>,
        text: &[u8],
        findings: &mut Vec<ImportFinding>,
    ) -> Result<Resend, Exit> {
        let answers =
            text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<LineAnswer>(line).ok());
        let mut answers: HashMap<u64, LineAnswer> = answers.map(|answer| (answer.line, answer)).collect();
        let why = "the node has not answered all lines".to_owned();
        let mut again = Resend { lines: Vec::new(), why, asked: None };
        for (line, number) in lines.into_iter().zip(1..) {
            let Some(LineAnswer { status, unchanged, error, .. }) = answers.remove(&number) else {
                again.lines.push(line);
                continue;
            };
            let (detail, retry_after) = error.map_or((String::new(), None), |error| (error.detail, error.retry_after));
            match status {
                200 if unchanged => self.summary.unchanged += 1,
                200 => {
                    self.summary.taken += 1;
                    self.summary.visits += line.visits();
                }
                401 | 403 => return Err(stopped(&ApiFailure { status: Some(status), reason: detail })),
                429 | 503 => {
                    again.asked = again.asked.max(retry_after.map(Duration::from_secs));
                    again.why = detail;
                    again.lines.push(line);
                }
                _ => findings.push(ImportFinding::rejected(line.number, line.name(), detail)),
            }
        }
        Ok(again)
    }

    /// Reports findings, and those of the source.
    fn report_findings(&mut self, mut findings: Vec<ImportFinding>, messages: &mut dyn Write) -> Result<(), Exit> {
        findings.extend(self.moving.iter().flat_map(|moving| moving.take_findings()));
        findings.sort();
        for finding in &findings {
            *(if finding.is_taken { &mut self.summary.cut } else { &mut self.summary.refused }) += 1;
            if let Some(file) = &mut self.report {
                file.add(finding).map_err(|error| unwritten(&error))?;
            }
            let count = self.summary.refused + self.summary.cut;
            if count > IMPORT_REPORTS_MAX + 1 {
                continue;
            }
            self.progress.clear(messages);
            let _ = if count <= IMPORT_REPORTS_MAX {
                writeln!(messages, "{}", finding.to_text())
            } else {
                writeln!(messages, "further rejected lines are counted but not listed")
            };
        }
        Ok(())
    }
}

fn unwritten(error: &io::Error) -> Exit {
    Exit::new(Reason::Incomplete, format!("the report cannot be written: {error}"))
}

/// Returns the exit of an import that the node has ended.
fn stopped(failure: &ApiFailure) -> Exit {
    let exit = Exit::new(Reason::Incomplete, format!("the import stopped: {}", failure.reason));
    exit.with_remedy(match failure.status {
        Some(401 | 403) => {
            "pass a key with the role admin for all domains with --to-key-file, or set CAROM_IMPORT_TO_KEY"
        }
        Some(_) => "check that --to is the address of a carom node of this version",
        None => "the links before that are imported; run the same command again to continue",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(text: &[u8]) -> LineReader {
        LineReader::new(Box::new(io::Cursor::new(text.to_vec())))
    }

    fn sender() -> ImportSender {
        ImportSender {
            client: ApiClient::new("http://127.0.0.1:1", None),
            path: IMPORT_PATH.to_owned(),
            dry_run: false,
            rate: None,
            due: Instant::now(),
            moving: None,
            report: None,
            summary: ImportSummary::default(),
            read: Arc::default(),
            progress: Progress::new(false, None),
        }
    }

    #[test]
    fn lines_keep_their_numbers_and_are_bounded() {
        let long = "x".repeat(2 * IMPORT_LINE_MAX);
        let longest = "y".repeat(IMPORT_LINE_MAX);
        let text = format!("\u{feff}{{}}\r\n\n {{1}} \n{long}\n{longest}\nend");
        let mut lines = reader(text.as_bytes());
        let mut seen = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            seen.push(match line {
                Ok(line) => (line.number, line.text.len()),
                Err(number) => (number, 0),
            });
        }
        assert_eq!(seen, [(1, 2), (3, 3), (4, 0), (5, IMPORT_LINE_MAX), (6, 3)]);
        let (batch, too_long) = reader(text.as_bytes()).next_batch(2).unwrap();
        assert_eq!((batch.len(), too_long.len()), (2, 0));
        let mut lines = reader(text.as_bytes());
        let batches = [(); 4].map(|()| {
            let (batch, too_long) = lines.next_batch(9).unwrap();
            (batch.len(), too_long.len())
        });
        assert_eq!(batches, [(2, 1), (1, 0), (1, 0), (0, 0)], "a long line goes out alone");
    }

    #[test]
    fn answers_are_counted_reported_or_sent_again() {
        let text = br#"{"shortCode":"a","visitsSummary":{"total":5}}
            {"shortCode":"b"}
            {"shortCode":"c","domain":"go.test"}
            {"shortCode":"d"}
            {"shortCode":"e"}"#;
        let (batch, _) = reader(text).next_batch(9).unwrap();
        let answer = br#"{"line":1,"status":200,"shortCode":"a"}
{"line":2,"status":200,"unchanged":true}
{"line":3,"status":400,"error":{"detail":"is wrong"}}
{"line":4,"status":429,"error":{"detail":"too fast","retryAfter":3}}
{"line":5,"sta"#;
        let (mut sender, mut findings) = (sender(), Vec::new());
        let again = sender.take_answers(batch, answer, &mut findings).ok().unwrap();
        assert_eq!(again.lines.iter().map(|line| line.number).collect::<Vec<_>>(), [4, 5]);
        assert_eq!((&*again.why, again.asked), ("too fast", Some(Duration::from_secs(3))));
        assert_eq!(findings, [ImportFinding::rejected(3, "go.test/c".to_owned(), "is wrong".to_owned())]);
        let ImportSummary { taken, unchanged, visits, .. } = sender.summary;
        assert_eq!((taken, unchanged, visits), (1, 1, 5));
        let (batch, _) = reader(b"{}").next_batch(9).unwrap();
        let ended = br#"{"line":1,"status":401,"error":{"detail":"Invalid key"},"ended":true}"#;
        assert!(sender.take_answers(batch, ended, &mut findings).is_err());
    }
}
