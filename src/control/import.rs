//! Takes links from NDJSON into a store that no node has open.
//!
//! One thread cuts the input into chunks of whole lines, some threads parse them, look their codes up and encode records,
//! and the caller's thread, alone, decides: chunk after chunk in the order of the input. What is new is collected, sorted
//! and written as whole files of the store, past its journal. A line that says what is stored already is taken as it is,
//! so an import that was cut off can be repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carom_shards::code::CODE_LEN_MAX;
use carom_shards::{Code, CodeLength, CodeSpace, Counter, GeneratedCode, Issuer, Segment};

use super::disk::DiskGuard;
use super::ndjson::{self, Line};
use super::progress::{Progress, rate};
use crate::api::long_url::Authority;
use crate::limits::{IMPORT_CHUNK_BYTES, IMPORT_LINE_MAX, IMPORT_REPORTS_MAX, IMPORT_RUN_LEN, IMPORT_SORTED_BYTES};
use crate::link::{Link, Origin};
use crate::stats::unix_ms;
use crate::store::links::{Links, StoreError};
use crate::store::record::{self, RecordRef};

/// Chunks that wait between two stages.
const CHUNKS_WAITING: usize = 4;

/// What an import works with.
#[derive(Debug)]
pub struct ImportSetup {
    /// The store.
    pub links: Links,
    /// The data directory, whose disk is watched.
    pub data_dir: PathBuf,
    /// The code space, for lines without a code.
    pub space: CodeSpace,
    /// Length of codes issued, as configured.
    pub length: CodeLength,
    /// The authorities that the service answers to.
    pub own: Vec<Authority>,
    /// How many threads parse.
    pub threads: usize,
    /// Bytes of the input, where known.
    pub total_bytes: Option<u64>,
    /// Whether the messages go to a terminal, so that progress is drawn.
    pub terminal: bool,
}

/// What became of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportSummary {
    /// Links that are new in the store.
    pub taken: u64,
    /// Lines that say what was stored already.
    pub unchanged: u64,
    /// Lines that were not taken.
    pub refused: u64,
    /// How long it took.
    pub time: Duration,
}

impl ImportSummary {
    /// Whether every line is in the store.
    pub fn is_complete(&self) -> bool {
        self.refused == 0
    }
}

/// Why an import ended early. What was said to be taken up to then may be in the store or not: repeat it.
#[derive(Debug)]
pub enum ImportError {
    /// The store failed.
    Store(StoreError),
    /// The input cannot be read.
    Input(io::Error),
    /// There is no room. Repeat the import when there is.
    DiskFull,
    /// All codes of all lengths are used up.
    NoCodes,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Store(error) => write!(f, "{error}"),
            ImportError::Input(error) => write!(f, "the input cannot be read: {error}"),
            ImportError::DiskFull => f.write_str("the disk is full; make room and import the same file again"),
            ImportError::NoCodes => f.write_str("all codes of all lengths are used up"),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<StoreError> for ImportError {
    fn from(error: StoreError) -> ImportError {
        ImportError::Store(error)
    }
}

/// Imports everything from `input`; reports, progress and the summary go to `messages`.
///
/// # Errors
/// [`ImportError`] where it could not go on. Lines that are not taken are no error: the summary counts them.
pub fn import(
    setup: &ImportSetup,
    input: &mut (dyn Read + Send),
    messages: &mut dyn Write,
) -> Result<ImportSummary, ImportError> {
    let generation = AtomicU64::new(0);
    let mut committer = Committer::new(setup, &generation)?;
    let result = std::thread::scope(|scope| {
        let (chunks_in, chunks_out) = sync_channel::<Chunk>(CHUNKS_WAITING);
        let (parsed_in, parsed_out) = sync_channel::<Parsed>(CHUNKS_WAITING);
        let chunks_out = Arc::new(Mutex::new(chunks_out));
        let reader = scope.spawn(move || cut(input, &chunks_in));
        let parsers: Vec<_> = (0..setup.threads.max(1))
            .map(|_| {
                let (chunks_out, parsed_in, generation) = (Arc::clone(&chunks_out), parsed_in.clone(), &generation);
                scope.spawn(move || parse_all(setup, generation, &chunks_out, &parsed_in))
            })
            .collect();
        // Each end is held by its stage alone, so that an early end of one is noticed by the one before.
        drop((chunks_out, parsed_in));
        let result = committer.take_all(&parsed_out, messages);
        drop(parsed_out);
        for parser in parsers {
            parser.join().expect("panics abort");
        }
        let read = reader.join().expect("panics abort");
        result.and(read.map_err(ImportError::Input))
    });
    // What was decided is kept, however it ended.
    let written = committer.write().and_then(|()| Ok(setup.links.sync()?));
    result.and(written)?;
    Ok(committer.finish(messages))
}

/// Whole lines of the input.
struct Chunk {
    number: u64,
    first_line: u64,
    bytes: Vec<u8>,
    /// A line, by its number, that was too long and left out behind this chunk.
    too_long: Option<u64>,
}

/// Cuts the input into chunks; ends early when nobody takes them any more.
fn cut(input: &mut dyn Read, chunks: &SyncSender<Chunk>) -> io::Result<()> {
    let mut rest = Vec::new();
    let (mut number, mut line, mut skipping) = (0, 1, false);
    loop {
        let mut bytes = std::mem::take(&mut rest);
        let before = bytes.len();
        let room = (IMPORT_CHUNK_BYTES - before) as u64;
        let ended = Read::take(&mut *input, room).read_to_end(&mut bytes)? < room as usize;
        if skipping {
            // The end of a line that was given up.
            let end = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
            skipping = end == bytes.len() && !ended;
            bytes.drain(..end);
        }
        let mut too_long = None;
        if !ended {
            let end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
            rest = bytes.split_off(end);
        }
        let first_line = line;
        line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        if rest.len() > IMPORT_LINE_MAX {
            rest.clear();
            too_long = Some(line);
            line += 1;
            skipping = true;
        }
        if chunks.send(Chunk { number, first_line, bytes, too_long }).is_err() || ended {
            return Ok(());
        }
        number += 1;
    }
}

/// A line's link, ready to be decided on.
struct Item {
    line: u64,
    /// The code and its record in the chunk's buffer; `None` where a code is to be issued.
    coded: Option<(Code, Range<usize>)>,
    /// The link with everything; the code is a stand-in where one is to be issued.
    link: Option<Box<Link>>,
    /// What the look-up before found.
    found: Found,
}

/// What is stored under the code of a line, compared with the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Absent,
    Same,
    Other,
    Tombstone,
    Damaged,
}

/// A chunk whose lines are parsed.
struct Parsed {
    number: u64,
    /// How many generations were in the store before its codes were looked up.
    generation: u64,
    records: Vec<u8>,
    items: Vec<Item>,
    errors: Vec<(u64, String)>,
    input_bytes: u64,
    failure: Option<StoreError>,
}

fn parse_all(setup: &ImportSetup, generation: &AtomicU64, chunks: &Mutex<Receiver<Chunk>>, out: &SyncSender<Parsed>) {
    let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(chunk) = next() {
        if out.send(parse_chunk(setup, generation, &chunk)).is_err() {
            return;
        }
    }
}

fn parse_chunk(setup: &ImportSetup, generation: &AtomicU64, chunk: &Chunk) -> Parsed {
    let mut parsed = Parsed {
        number: chunk.number,
        generation: generation.load(Ordering::Acquire),
        records: Vec::with_capacity(chunk.bytes.len()),
        items: Vec::with_capacity(chunk.bytes.len() / 128),
        errors: Vec::new(),
        input_bytes: chunk.bytes.len() as u64,
        failure: None,
    };
    let now_ms = unix_ms();
    let mut rest = &chunk.bytes[..];
    if chunk.number == 0 {
        rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
    }
    let mut line = chunk.first_line;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let text = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        if !text.is_empty() {
            match ndjson::read(text, &setup.own) {
                Ok(read) => {
                    if let Err(error) = parsed.add(setup, line, read, now_ms) {
                        parsed.failure = Some(error);
                        return parsed;
                    }
                }
                Err(error) => parsed.errors.push((line, error.to_string())),
            }
        }
        line += 1;
    }
    if let Some(line) = chunk.too_long {
        parsed.errors.push((line, format!("is longer than {IMPORT_LINE_MAX} bytes")));
    }
    parsed
}

impl Parsed {
    fn add(&mut self, setup: &ImportSetup, line: u64, read: Line, now_ms: u64) -> Result<(), StoreError> {
        let Line { code, target, policy, created_ms, origin } = read;
        let unsaid = (created_ms.is_none(), origin.is_none());
        let created_ms = created_ms.unwrap_or(now_ms);
        let Some(code) = code else {
            let code = Code::parse(b"-").expect("a character of the alphabet");
            let link = Link { code, policy, target: target.into(), created_ms, origin: Origin::Issued };
            let link = Some(Box::new(link));
            self.items.push(Item { line, coded: None, link, found: Found::Absent });
            return Ok(());
        };
        let origin = origin.unwrap_or(Origin::Custom);
        let link = Link { code, policy, target: target.into(), created_ms, origin };
        let start = self.records.len();
        record::encode_link(code.ascii(&mut [0; CODE_LEN_MAX]), &link, &mut self.records);
        let range = start..self.records.len();
        let found = compare(&setup.links, &link, unsaid)?;
        // What the line does not say matters when it is compared again, which is rare: then the link itself is needed.
        let link = (unsaid.0 || unsaid.1).then(|| Box::new(link));
        self.items.push(Item { line, coded: Some((code, range)), link, found });
        Ok(())
    }
}

/// Compares a link with what is stored under its code. What the line did not say (date, origin) may be anything.
fn compare(links: &Links, link: &Link, (any_date, any_origin): (bool, bool)) -> Result<Found, StoreError> {
    let stored = match links.get(&link.code) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(Found::Absent),
        Err(StoreError::Damaged(_)) => return Ok(Found::Damaged),
        Err(error) => return Err(error),
    };
    Ok(match record::decode(link.code.ascii(&mut [0; CODE_LEN_MAX]), &stored) {
        Ok(RecordRef::Link(stored)) => {
            let same = stored.policy == link.policy
                && stored.target == link.target
                && (any_date || stored.created_ms == link.created_ms)
                && (any_origin || stored.origin == link.origin);
            if same { Found::Same } else { Found::Other }
        }
        Ok(RecordRef::Tombstone { .. }) => Found::Tombstone,
        Err(_) => Found::Damaged,
    })
}

/// Decides and writes, alone.
struct Committer<'s> {
    setup: &'s ImportSetup,
    /// How many generations are in the store: collections that were written together.
    generation: &'s AtomicU64,
    disk: DiskGuard,
    issuer: Issuer,
    fresh: Vec<GeneratedCode>,
    /// Records that are taken and not yet in the store, the generation in the making.
    records: Vec<u8>,
    /// Where they are in `records`.
    collected: HashMap<Code, Range<usize>>,
    /// The codes of the generation before.
    last: HashSet<Code>,
    summary: ImportSummary,
    input_bytes: u64,
    progress: Progress,
}

impl<'s> Committer<'s> {
    fn new(setup: &'s ImportSetup, generation: &'s AtomicU64) -> Result<Committer<'s>, ImportError> {
        let mut marks = Vec::new();
        for length in CodeLength::MIN.and_longer() {
            marks.push((length, Counter(setup.links.high_water(length.get())?)));
        }
        Ok(Committer {
            setup,
            generation,
            disk: DiskGuard::new(setup.data_dir.clone()),
            issuer: Issuer::new(setup.length, marks),
            fresh: Vec::new(),
            records: Vec::with_capacity(IMPORT_SORTED_BYTES),
            collected: HashMap::new(),
            last: HashSet::new(),
            summary: ImportSummary::default(),
            input_bytes: 0,
            progress: Progress::new(setup.terminal, setup.total_bytes),
        })
    }

    /// Takes chunks in the order of the input.
    fn take_all(&mut self, parsed: &Receiver<Parsed>, messages: &mut dyn Write) -> Result<(), ImportError> {
        let mut early = BTreeMap::new();
        let mut next = 0;
        while let Ok(chunk) = parsed.recv() {
            early.insert(chunk.number, chunk);
            while let Some(chunk) = early.remove(&next) {
                self.take(chunk, messages)?;
                next += 1;
            }
        }
        Ok(())
    }

    fn take(&mut self, mut chunk: Parsed, messages: &mut dyn Write) -> Result<(), ImportError> {
        if let Some(error) = chunk.failure.take() {
            return Err(error.into());
        }
        if !self.disk.has_room(chunk.input_bytes, self.records.len() as u64, Instant::now()) {
            return Err(ImportError::DiskFull);
        }
        let mut errors = std::mem::take(&mut chunk.errors);
        for item in &chunk.items {
            if let Err(reason) = self.decide(&chunk, item)? {
                errors.push((item.line, reason.to_owned()));
            }
        }
        if self.records.len() + IMPORT_CHUNK_BYTES > IMPORT_SORTED_BYTES {
            self.write()?;
        }
        errors.sort();
        self.report(&errors, messages);
        self.input_bytes += chunk.input_bytes;
        self.progress.tick(messages, self.summary.taken + self.summary.unchanged, self.input_bytes);
        Ok(())
    }

    /// Puts what was collected into the store and begins a new generation.
    fn write(&mut self) -> Result<(), ImportError> {
        let mut sorted: Vec<_> = self.collected.iter().map(|(code, range)| (SortKey::new(code), range)).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if !sorted.is_empty() {
            let records = sorted.iter().map(|(key, range)| (key.ascii(), &self.records[(*range).clone()]));
            self.setup.links.ingest(records)?;
        }
        self.last = self.collected.drain().map(|(code, _)| code).collect();
        self.records.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Decides one line: collects its record, or gives the reason why not.
    fn decide(&mut self, chunk: &Parsed, item: &Item) -> Result<Result<(), &'static str>, ImportError> {
        let Some((code, range)) = &item.coded else {
            self.issue(item)?;
            return Ok(Ok(()));
        };
        let record = &chunk.records[range.clone()];
        let found = match self.collected.get(code) {
            Some(before) => same(code, &self.records[before.clone()], item, record),
            None if self.may_have_changed(chunk, code) => {
                self.setup.links.get(code)?.map_or(Found::Absent, |stored| same(code, &stored, item, record))
            }
            None => item.found,
        };
        Ok(match found {
            Found::Absent => {
                self.collect(*code, record);
                Ok(())
            }
            Found::Same => {
                self.summary.unchanged += 1;
                Ok(())
            }
            Found::Other => Err("shortCode belongs to another link"),
            Found::Tombstone => Err("shortCode belonged to a link that was deleted, and is not given again"),
            Found::Damaged => Err("shortCode has a damaged record in the store"),
        })
    }

    fn collect(&mut self, code: Code, record: &[u8]) {
        let start = self.records.len();
        self.records.extend_from_slice(record);
        self.collected.insert(code, start..self.records.len());
        self.summary.taken += 1;
    }

    /// Whether the code may have come into the store after this chunk's look-up.
    fn may_have_changed(&self, chunk: &Parsed, code: &Code) -> bool {
        match self.generation.load(Ordering::Relaxed) - chunk.generation {
            0 => false,
            1 => self.last.contains(code),
            _ => true,
        }
    }

    /// Gives a line without a code a fresh one.
    fn issue(&mut self, item: &Item) -> Result<(), ImportError> {
        let link = item.link.as_deref().expect("a line without a code keeps its link");
        loop {
            let code = self.next_code()?;
            // A counter that was set back gives codes a second time; so each is looked up.
            if self.collected.contains_key(&code) || self.setup.links.get(&code)?.is_some() {
                continue;
            }
            let link = Link { code, ..link.clone() };
            let mut record = Vec::with_capacity(link.target.len() + 64);
            record::encode_link(code.ascii(&mut [0; CODE_LEN_MAX]), &link, &mut record);
            self.collect(code, &record);
            return Ok(());
        }
    }

    fn next_code(&mut self) -> Result<Code, ImportError> {
        while self.fresh.is_empty() {
            let want = IMPORT_RUN_LEN.min(self.issuer.remaining());
            let run = self.issuer.issue(want).ok_or(ImportError::NoCodes)?;
            // The mark is durable before any link that needs it.
            let mut mark = self.setup.links.batch();
            mark.set_high_water(run.length.get(), run.end().0);
            self.setup.links.commit(mark)?;
            self.setup.links.sync()?;
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).map_err(|error| StoreError::Failed(error.to_string()))?;
            self.fresh = Segment::prepare(&self.setup.space, run, seed).into_codes();
        }
        Ok(self.fresh.pop().expect("it was just filled").to_code())
    }

    fn report(&mut self, errors: &[(u64, String)], messages: &mut dyn Write) {
        for (line, reason) in errors {
            self.summary.refused += 1;
            match self.summary.refused {
                1..=IMPORT_REPORTS_MAX => {
                    self.progress.clear(messages);
                    let _ = writeln!(messages, "line {line}: {reason}");
                }
                refused if refused == IMPORT_REPORTS_MAX + 1 => {
                    self.progress.clear(messages);
                    let _ = writeln!(messages, "more bad lines are only counted");
                }
                _ => {}
            }
        }
    }

    fn finish(mut self, messages: &mut dyn Write) -> ImportSummary {
        self.summary.time = self.progress.elapsed();
        self.progress.clear(messages);
        let ImportSummary { taken, unchanged, refused, time } = self.summary;
        let _ = writeln!(
            messages,
            "imported {taken} links, {unchanged} unchanged, {refused} refused, in {:.1} s ({}/s)",
            time.as_secs_f64(),
            rate(taken + unchanged + refused, time)
        );
        self.summary
    }
}

/// A code in the order of the store, which is that of its ASCII form.
struct SortKey {
    ascii: [u8; CODE_LEN_MAX],
    len: usize,
}

impl SortKey {
    fn new(code: &Code) -> SortKey {
        let mut key = SortKey { ascii: [0; CODE_LEN_MAX], len: code.len() };
        code.ascii(&mut key.ascii);
        key
    }

    fn ascii(&self) -> &[u8] {
        &self.ascii[..self.len]
    }

    fn cmp(&self, other: &SortKey) -> std::cmp::Ordering {
        self.ascii().cmp(other.ascii())
    }
}

/// Compares a line with a record of the same import.
fn same(code: &Code, stored: &[u8], item: &Item, record: &[u8]) -> Found {
    if stored == record {
        return Found::Same;
    }
    let key = &mut [0; CODE_LEN_MAX];
    match (record::decode(code.ascii(key), stored), &item.link) {
        (Ok(RecordRef::Link(stored)), Some(link)) if stored.policy == link.policy && stored.target == link.target => {
            Found::Same
        }
        (Ok(RecordRef::Link(_)), _) => Found::Other,
        (Ok(RecordRef::Tombstone { .. }), _) => Found::Tombstone,
        (Err(_), _) => Found::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::export::export;
    use crate::control::testing::KEY;
    use carom_shards::SpaceKey;
    use std::path::Path;

    fn setup(dir: &Path) -> ImportSetup {
        ImportSetup {
            links: Links::open(&dir.join("links"), KEY).unwrap().0,
            data_dir: dir.to_owned(),
            space: CodeSpace::new(&SpaceKey::from_bytes([1; 32])),
            length: CodeLength::DEFAULT,
            own: vec![Authority::of("http://127.0.0.1:8080").unwrap()],
            threads: 2,
            total_bytes: None,
            terminal: false,
        }
    }

    fn run(setup: &ImportSetup, mut input: &[u8]) -> (ImportSummary, String) {
        let mut messages = Vec::new();
        let summary = import(setup, &mut input, &mut messages).unwrap();
        (summary, String::from_utf8(messages).unwrap())
    }

    fn counts(summary: &ImportSummary) -> (u64, u64, u64) {
        (summary.taken, summary.unchanged, summary.refused)
    }

    /// Lines enough for several chunks.
    fn many(count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for number in 0..count {
            writeln!(
                out,
                r#"{{"shortCode":"c{number:07}","longUrl":"https://example.org/{number}/{}","dateCreated":"2026-01-02T03:04:05+00:00"}}"#,
                "x".repeat(number % 200)
            )
            .unwrap();
        }
        out
    }

    #[test]
    fn an_import_can_be_repeated_and_exported() {
        let dir = tempfile::tempdir().unwrap();
        let first = setup(&dir.path().join("a"));
        let input = many(20_000);
        assert_eq!(counts(&run(&first, &input).0), (20_000, 0, 0));
        drop(first);
        let first = setup(&dir.path().join("a"));
        assert_eq!(counts(&run(&first, &input).0), (0, 20_000, 0));
        let (mut exported, mut messages) = (Vec::new(), Vec::new());
        let summary = export(&first.links, 2, &mut exported, &mut messages, false).unwrap();
        assert!(summary.is_complete());
        assert_eq!(summary.links, 20_000);
        // An export is taken whole by an empty store, and exported again it is the same.
        let second = setup(&dir.path().join("b"));
        assert_eq!(counts(&run(&second, &exported).0), (20_000, 0, 0));
        let mut again = Vec::new();
        export(&second.links, 3, &mut again, &mut messages, false).unwrap();
        assert!(again == exported);
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let setup = setup(dir.path());
        let input = b"\xef\xbb\xbf{\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/1\"}\r\n\n\
            not json\n\
            {\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/2\"}\n\
            {\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/1\"}\n\
            {\"longUrl\":\"http://127.0.0.1:8080/abc\"}\n\
            {\"longUrl\":\"https://example.org/3\"}";
        let (summary, messages) = run(&setup, input);
        assert_eq!(counts(&summary), (2, 1, 3));
        for start in ["line 3: not the JSON", "line 4: shortCode belongs to another", "line 6: longUrl leads to this"] {
            assert!(messages.contains(start), "{messages}");
        }
        assert!(!summary.is_complete());
        assert!(messages.contains("imported 2 links, 1 unchanged, 3 refused"), "{messages}");
    }

    #[test]
    fn reports_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (summary, messages) = run(&setup(dir.path()), "x\n".repeat(1_500).as_bytes());
        assert_eq!(summary.refused, 1_500);
        assert_eq!(messages.lines().count(), IMPORT_REPORTS_MAX as usize + 2);
    }

    #[test]
    fn lines_without_a_code_get_issued_ones_above_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let setup = setup(dir.path());
        let input = "{\"longUrl\":\"https://example.org/\"}\n".repeat(30_000);
        assert_eq!(counts(&run(&setup, input.as_bytes()).0), (30_000, 0, 0));
        let mark = setup.links.high_water(7).unwrap();
        assert!(mark >= 30_000);
        assert_eq!(counts(&run(&setup, input.as_bytes()).0), (30_000, 0, 0));
        assert!(setup.links.high_water(7).unwrap() >= mark + 30_000);
        let mut exported = Vec::new();
        export(&setup.links, 1, &mut exported, &mut Vec::new(), false).unwrap();
        let issued = memchr::memmem::find_iter(&exported, b"\"origin\":\"issued\"").count();
        assert_eq!(issued, 60_000);
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = many(10);
        input.extend(std::iter::repeat_n(b'x', 3 * IMPORT_CHUNK_BYTES));
        input.push(b'\n');
        input.extend(b"bad\n");
        input.extend(b"{\"shortCode\":\"last\",\"longUrl\":\"https://example.org/\"}\n");
        let (summary, messages) = run(&setup(dir.path()), &input);
        assert_eq!(counts(&summary), (11, 0, 2));
        assert!(messages.contains("line 11: is longer") && messages.contains("line 12: not the JSON"), "{messages}");
    }

    #[test]
    fn the_same_code_in_chunks_far_apart_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = many(30_000);
        let again = many(30_000);
        input.extend(&again);
        input.extend(b"{\"shortCode\":\"c0000001\",\"longUrl\":\"https://example.org/other\"}\n");
        assert_eq!(counts(&run(&setup(dir.path()), &input).0), (30_000, 30_000, 1));
    }
}
