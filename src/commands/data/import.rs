//! Imports links from NDJSON into a store that no node has open.
//!
//! One thread cuts the input into chunks of whole lines. Several threads parse them, look up their codes and encode
//! records. The caller's thread alone decides, chunk by chunk in the order of the input. It collects and sorts new
//! records, and writes them as whole files of the store, past the journal. A line that matches a stored link counts as
//! unchanged, so an import that was cut off can be repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, CodeLength, CounterValue, GeneratedCode, Issuer, Segment};

use super::import_lines::{Chunk, Found, Item, Parsed, cut, parse_all, same};
use super::import_setup::{ImportError, ImportSetup, ImportSummary};
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::maintenance::index_builder::Entries;
use crate::services::maintenance::progress::{Progress, rate};
use carom_limits::{IMPORT_CHUNK_BYTES, IMPORT_REPORTS_MAX, IMPORT_RUN_LEN, IMPORT_SORTED_BYTES};
use carom_model::link::Link;
use carom_model::link::record;
use carom_model::replication::Partition;
use carom_store::links::{Links, StoreError};
use carom_telemetry::readable;

/// Number of chunks that wait between two stages.
const CHUNKS_WAITING: usize = 4;

/// Imports everything from `input`. Reports, progress and the summary go to `messages`.
///
/// # Errors
/// [`ImportError`] if the import ended early. Refused lines are no error: the summary counts them.
pub fn import(
    setup: &ImportSetup,
    input: &mut (dyn Read + Send),
    messages: &mut dyn Write,
) -> Result<ImportSummary, ImportError> {
    if setup.of_fleet {
        bring_everything(&setup.links)?;
    }
    import_by(IMPORT_SORTED_BYTES, setup, input, messages)
}

/// Notes, before the first link is imported, that everything must be compared with Redis when the node is started.
fn bring_everything(links: &Links) -> Result<(), StoreError> {
    let mut batch = links.batch();
    Partition::all().for_each(|partition| batch.set_compare(partition, true));
    links.commit(batch)?;
    links.sync()
}

/// Imports with generations of `sorted_bytes` bytes.
fn import_by(
    sorted_bytes: usize,
    setup: &ImportSetup,
    input: &mut (dyn Read + Send),
    messages: &mut dyn Write,
) -> Result<ImportSummary, ImportError> {
    let generation = AtomicU64::new(0);
    let mut committer = Committer::new(setup, &generation, sorted_bytes)?;
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
        // Each stage alone holds its end of a channel, so that a stage notices the early end of its neighbour.
        drop((chunks_out, parsed_in));
        let result = committer.take_all(&parsed_out, messages);
        drop(parsed_out);
        for parser in parsers {
            parser.join().expect("panics abort");
        }
        let read = reader.join().expect("panics abort");
        result.and(read.map_err(ImportError::Input))
    });
    // The decisions so far are written, even after an error.
    let written = committer.write().and_then(|()| Ok(setup.links.sync()?));
    result.and(written)?;
    Ok(committer.finish(messages))
}

/// The stage that decides and writes, on the caller's thread.
struct Committer<'s> {
    setup: &'s ImportSetup,
    /// Number of generations in the store. A generation is a collection of records that was written together.
    generation: &'s AtomicU64,
    disk: DiskGuard,
    issuer: Issuer,
    fresh: Vec<GeneratedCode>,
    /// The records of the next generation: taken, but not in the store yet.
    records: Vec<u8>,
    /// Size in bytes at which they make a generation.
    sorted_bytes: usize,
    /// The place of each of them in `records`.
    collected: HashMap<Code, Range<usize>>,
    /// The codes of the last generation.
    last: HashSet<Code>,
    summary: ImportSummary,
    input_bytes: u64,
    progress: Progress,
}

impl<'s> Committer<'s> {
    fn new(
        setup: &'s ImportSetup,
        generation: &'s AtomicU64,
        sorted_bytes: usize,
    ) -> Result<Committer<'s>, ImportError> {
        let mut marks = Vec::new();
        for length in CodeLength::MIN.and_longer() {
            marks.push((length, CounterValue(setup.links.high_water(length.get())?)));
        }
        Ok(Committer {
            setup,
            generation,
            disk: DiskGuard::new(setup.data_dir.clone()),
            issuer: Issuer::new(setup.length, marks),
            fresh: Vec::new(),
            records: Vec::with_capacity(sorted_bytes),
            sorted_bytes,
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
        if !self.disk.has_room(self.records.len() as u64) {
            return Err(ImportError::DiskFull);
        }
        let mut errors = std::mem::take(&mut chunk.errors);
        for item in &chunk.items {
            if let Err(reason) = self.decide(&chunk, item)? {
                errors.push((item.line, reason.to_owned()));
            }
        }
        if self.records.len() + IMPORT_CHUNK_BYTES > self.sorted_bytes {
            self.write()?;
        }
        errors.sort();
        self.report(&errors, messages);
        self.input_bytes += chunk.input_bytes;
        self.progress.tick(messages, self.summary.taken + self.summary.unchanged, self.input_bytes);
        Ok(())
    }

    /// Writes the collected records to the store, and begins a new generation.
    fn write(&mut self) -> Result<(), ImportError> {
        let mut sorted: Vec<_> = self.collected.iter().map(|(code, range)| (SortKey::new(code), range)).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if !sorted.is_empty() {
            let records = || sorted.iter().map(|(key, range)| (key.bytes(), &self.records[(*range).clone()]));
            // Index entries are written before links. After a crash every link then has its entries, and entries
            // without a link do no harm.
            let mut entries = Entries::default();
            records().for_each(|(key, record)| entries.add(key, record));
            entries.ingest(&self.setup.links)?;
            self.setup.links.ingest(records())?;
        }
        self.last = self.collected.drain().map(|(code, _)| code).collect();
        self.records.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Decides one line: collects its record, or returns the reason for refusing it.
    fn decide(&mut self, chunk: &Parsed, item: &Item) -> Result<Result<(), &'static str>, ImportError> {
        let Some((code, range)) = &item.coded else {
            if self.setup.of_fleet {
                return Ok(Err("has no shortCode; in a fleet, create such links through the API"));
            }
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
            Found::Tombstone | Found::Freed { .. } => Err("shortCode belonged to a deleted link and cannot be reused"),
            Found::Damaged => Err("shortCode has a damaged record in the store"),
        })
    }

    fn collect(&mut self, code: Code, record: &[u8]) {
        let start = self.records.len();
        self.records.extend_from_slice(record);
        self.collected.insert(code, start..self.records.len());
        self.summary.taken += 1;
    }

    /// True if the code may have been stored since this chunk looked it up.
    fn may_have_changed(&self, chunk: &Parsed, code: &Code) -> bool {
        match self.generation.load(Ordering::Relaxed) - chunk.generation {
            0 => false,
            1 => self.last.contains(code),
            _ => true,
        }
    }

    /// Gives a line without a code a new one.
    fn issue(&mut self, item: &Item) -> Result<(), ImportError> {
        let link = item.link.as_deref().expect("a line without a code keeps its link");
        loop {
            let code = self.next_code()?.within(link.labels.domain_id());
            // After the counter was set back it repeats codes, so each code is looked up.
            if self.collected.contains_key(&code) || self.setup.links.get(&code)?.is_some() {
                continue;
            }
            let link = Link { code, ..link.clone() };
            let mut record = Vec::with_capacity(link.target.len() + 64);
            record::encode_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), &link, &mut record);
            self.collect(code, &record);
            return Ok(());
        }
    }

    fn next_code(&mut self) -> Result<Code, ImportError> {
        while self.fresh.is_empty() {
            let want = IMPORT_RUN_LEN.min(self.issuer.remaining());
            let run = self.issuer.issue(want).ok_or(ImportError::NoCodes)?;
            // The mark is durable before any link that depends on it.
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
                    let _ = writeln!(messages, "further rejected lines are counted but not listed");
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
            "imported {}, {unchanged} unchanged, {refused} rejected, in {:.1} s ({}/s)",
            readable::count(taken, "link"),
            time.as_secs_f64(),
            rate(taken + unchanged + refused, time)
        );
        self.summary
    }
}

/// The key of a code, in the order of the store.
struct SortKey {
    bytes: [u8; CODE_KEY_LEN_MAX],
    len: usize,
}

impl SortKey {
    fn new(code: &Code) -> SortKey {
        let mut bytes = [0; CODE_KEY_LEN_MAX];
        let len = code.key(&mut bytes).len();
        SortKey { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn cmp(&self, other: &SortKey) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::readers::export::export;
    use crate::services::testing::KEY;
    use carom_model::destination::long_url::Authority;
    use carom_model::domains::{Domains, UnknownHost};
    use carom_shards::{CodeSecret, CodeSpace};
    use std::path::Path;

    fn setup(dir: &Path) -> ImportSetup {
        ImportSetup {
            of_fleet: false,
            links: Links::open(&dir.join("links"), KEY).unwrap().0,
            data_dir: dir.to_owned(),
            space: CodeSpace::new(&CodeSecret::from_bytes([1; 32])),
            length: CodeLength::DEFAULT,
            own: vec![Authority::of("http://127.0.0.1:8080").unwrap()],
            domains: Domains::new("https://s.test", &[], false, UnknownHost::NotFound),
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

    /// Returns enough lines for several chunks.
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
        // An empty store takes the whole export, and exporting it again gives the same bytes.
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
        for start in
            ["line 3: not a JSON object", "line 4: shortCode belongs to another", "line 6: longUrl points to this"]
        {
            assert!(messages.contains(start), "{messages}");
        }
        assert!(!summary.is_complete());
        assert!(messages.contains("imported 2 links, 1 unchanged, 3 rejected"), "{messages}");
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
        assert!(
            messages.contains("line 11: is longer") && messages.contains("line 12: not a JSON object"),
            "{messages}"
        );
    }

    #[test]
    fn the_same_code_in_chunks_far_apart_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = many(30_000);
        let again = many(30_000);
        input.extend(&again);
        input.extend(b"{\"shortCode\":\"c0000001\",\"longUrl\":\"https://example.org/other\"}\n");
        assert_eq!(counts(&run(&setup(&dir.path().join("a")), &input).0), (30_000, 30_000, 1));
        // With every chunk a generation, a code may be stored after its look-up.
        let setup = setup(&dir.path().join("b"));
        let summary = import_by(1, &setup, &mut &input[..], &mut Vec::new()).unwrap();
        assert_eq!(counts(&summary), (30_000, 30_000, 1));
    }

    #[test]
    fn neighbours_with_one_code_are_noticed_across_generations() {
        let dir = tempfile::tempdir().unwrap();
        let setup = setup(dir.path());
        let mut input = Vec::new();
        // Two chunks of lines for a few codes, alternating, so that look-ups run ahead of the decisions.
        for number in 0..60_000 {
            let line =
                format!("{{\"shortCode\":\"c{}\",\"longUrl\":\"https://example.org/{}\"}}\n", number % 7, number % 7);
            input.extend_from_slice(line.as_bytes());
        }
        let summary = import_by(1, &setup, &mut &input[..], &mut Vec::new()).unwrap();
        assert_eq!(counts(&summary), (7, 59_993, 0));
    }
}
